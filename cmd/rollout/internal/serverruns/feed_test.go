package serverruns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// A fakeRun is a server run with the times that matter to a listing.
type fakeRun struct {
	id, agent           string
	began, seen, ended  time.Time // seen: its row is committed; ended: zero is never
	deleted             time.Time // zero: never
	conversation, quits bool      // its status stays created; its steps have ended
}

// A fakeServer lists runs as the server does.
//
// Source: services/run_manager.py, services/helpers/run_manager_helper.py.
type fakeServer struct {
	t    *testing.T
	tags map[string][]string // of agents

	fixed bool // after and before work as documented
	most  int  // maximum page size, whatever is requested; 0: 1000
	// listed is called after each page with its last run, or nil.
	listed func(*fakeRun)

	mu       sync.Mutex
	runs     []*fakeRun
	failures int // number of requests that fail before one succeeds
	asked    map[string]int
}

func (s *fakeServer) visible(r *fakeRun, now time.Time) bool {
	return !r.seen.After(now) && (r.deleted.IsZero() || r.deleted.After(now))
}

func (s *fakeServer) over(r *fakeRun, now time.Time) bool {
	return !r.conversation && !r.ended.IsZero() && !r.ended.After(now)
}

func (s *fakeServer) json(r *fakeRun, now time.Time) map[string]any {
	status := "created"
	if s.over(r, now) {
		status = "completed"
	}
	return map[string]any{"id": r.id, "agent_id": r.agent, "status": status, "created_at": r.began.UTC().Format("2006-01-02T15:04:05.000000Z")}
}

func (s *fakeServer) serve(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if q.Method != http.MethodGet {
		s.t.Errorf("%s %s", q.Method, q.URL)
	}
	if s.failures > 0 {
		s.failures--
		http.Error(w, `{"detail":"An unknown error occurred"}`, http.StatusInternalServerError)
		return
	}
	query := q.URL.Query()
	s.asked[query.Get("agent_id")]++
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	answer := func(v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	path := strings.Split(strings.Trim(q.URL.Path, "/"), "/")[1:]
	if path[0] == "agents" {
		s.agents(query, path, answer, w)
		return
	}
	if len(path) == 1 {
		answer(s.list(query, now))
		return
	}
	i := slices.IndexFunc(s.runs, func(r *fakeRun) bool { return r.id == path[1] && s.visible(r, now) })
	if i < 0 {
		http.Error(w, `{"detail":"Run not found"}`, http.StatusNotFound)
		return
	}
	r := s.runs[i]
	switch {
	case len(path) == 2:
		answer(s.json(r, now))
	case path[2] == "steps" && r.quits && !r.ended.After(now):
		answer([]any{map[string]any{"id": "step-1", "stop_reason": "end_turn", "status": "success"}})
	default:
		answer([]any{})
	}
}

func (s *fakeServer) agents(query map[string][]string, path []string, answer func(any), w http.ResponseWriter) {
	state := func(id string) map[string]any { return map[string]any{"id": id, "tags": s.tags[id]} }
	if len(path) > 1 {
		if s.tags[path[1]] == nil {
			http.Error(w, `{"detail":"Agent not found"}`, http.StatusNotFound)
			return
		}
		answer(state(path[1]))
		return
	}
	out := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.tags)) {
		if slices.Contains(s.tags[id], query["tags"][0]) && (query["after"] == nil || id > query["after"][0]) {
			out = append(out, state(id))
		}
	}
	answer(out)
}

func (s *fakeServer) list(query map[string][]string, now time.Time) []any {
	get := func(name string) string { return strings.Join(query[name], ",") }
	var list []*fakeRun
	for _, r := range s.runs {
		if s.visible(r, now) && (get("agent_id") == "" || get("agent_id") == r.agent) && (query["statuses"] == nil || !s.over(r, now)) {
			list = append(list, r)
		}
	}
	before := func(a, b *fakeRun) int {
		if c := a.began.Compare(b.began); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	}
	order := before
	if get("order") != "asc" {
		order = func(a, b *fakeRun) int { return before(b, a) }
	}
	slices.SortFunc(list, order)
	for name, behind := range map[string]bool{"after": s.fixed, "before": !s.fixed} {
		if i := slices.IndexFunc(s.runs, func(r *fakeRun) bool { return r.id == get(name) && s.visible(r, now) }); i >= 0 { // an unknown id does not filter
			list = slices.DeleteFunc(list, func(r *fakeRun) bool { return order(r, s.runs[i]) == 0 || order(r, s.runs[i]) > 0 != behind })
		}
	}
	limit, err := strconv.Atoi(get("limit"))
	if err != nil || limit < 1 || limit > 1000 {
		s.t.Errorf("limit %q", get("limit"))
	}
	out := []any{}
	if s.most > 0 {
		limit = min(limit, s.most)
	}
	var last *fakeRun
	for _, r := range list[:min(limit, len(list))] {
		out, last = append(out, s.json(r, now)), r
	}
	if s.listed != nil {
		s.listed(last)
	}
	return out
}

// collect runs a feed until it ends or ctx is done. It returns how often each run was yielded.
func (s *fakeServer) collect(ctx context.Context, t *testing.T, c *letta.Client, cfg serverruns.Config) (map[string]int, serverruns.Counts) {
	t.Helper()
	got := map[string]int{}
	known := map[string]bool{} // as the intake knows them: a batch at a time
	var batch []string
	cfg.Client = c
	cfg.Known = func(id string) bool { return known[id] }
	cfg.Again = func(error, time.Duration) {}
	if cfg.StuckAfter == 0 {
		cfg.StuckAfter = 15 * time.Minute
	}
	f := serverruns.New(cfg)
	for task, err := range f.Tasks(ctx) {
		if err != nil {
			t.Error(err)
			break
		}
		if task.Recorded == nil || task.Recorded.Run != task.ID || task.Samples != 1 || task.Recorded.Server != c.BaseURL() {
			t.Errorf("%+v", task)
		}
		got[task.ID]++
		if batch = append(batch, task.ID); !f.Ready() {
			for _, id := range batch {
				known[id] = true
			}
			batch = nil
		}
	}
	return got, f.Counts()
}

func newFake(t *testing.T) *fakeServer {
	t.Helper()
	return &fakeServer{t: t, tags: map[string][]string{}, asked: map[string]int{}}
}

func id(kind string, n int) string {
	return fmt.Sprintf("%s-%08x-0000-4000-8000-000000000000", kind, n)
}

// TestFollow checks that a following feed yields every ended or dead run once, although runs end in
// any order, become visible late, are deleted, and requests fail.
func TestFollow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, r := newFake(t), rand.New(rand.NewPCG(seed, 1))
			s.fixed, s.most = seed%2 == 1, []int{0, 20}[seed/2]
			lettatest.InBubble(t, s.serve, letta.ClientConfig{ReadRetries: -1}, func(t *testing.T, c *letta.Client) {
				t.Helper()
				const span = 20 * time.Minute
				begin := time.Now()
				want := map[string]int{}
				some := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
				for i := range 300 {
					run := &fakeRun{id: id("run", r.IntN(1<<28)), agent: id("agent", r.IntN(20)), began: begin.Add(some(span) - 10*time.Minute)}
					if seed > 1 {
						run.began = run.began.Truncate(time.Minute) // many at the same moment
					}
					run.seen = run.began.Add(some(90 * time.Second))
					run.ended = run.began.Add(some([]time.Duration{time.Second, time.Minute, 20 * time.Minute}[r.IntN(3)]))
					switch {
					case i%50 == 1:
						run.ended = time.Time{} // its server died
					case i%50 == 2:
						run.conversation, run.quits = true, true
					case i%10 == 3:
						run.deleted = run.seen.Add(some(5 * time.Minute))
					}
					if want[run.id] > 0 {
						continue
					}
					want[run.id] = 1
					s.runs = append(s.runs, run)
				}
				ctx, cancel := context.WithTimeout(t.Context(), span+40*time.Minute)
				defer cancel()
				ill := rand.New(rand.NewPCG(seed, 2))
				tick := time.NewTicker(3 * time.Minute)
				defer tick.Stop()
				var sick sync.WaitGroup
				defer sick.Wait()
				sick.Go(func() {
					for {
						select {
						case <-tick.C:
							s.mu.Lock()
							s.failures = ill.IntN(4)
							s.mu.Unlock()
						case <-ctx.Done():
							return
						}
					}
				})
				got, counts := s.collect(ctx, t, c, serverruns.Config{Which: config.Runs{}, Follow: true})
				for _, run := range s.runs {
					if n := got[run.id]; n != 1 && (n > 1 || run.deleted.IsZero()) {
						t.Errorf("%s given %d times: %+v", run.id, n, run)
					}
				}
				if counts.Given != len(got) || counts.Running != 0 {
					t.Errorf("%+v, given %d", counts, len(got))
				}
			})
		})
	}
}

// TestWhich checks that the filters are a union, that since excludes older runs, and that active
// runs are counted.
func TestWhich(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	lettatest.InBubble(t, s.serve, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		now := time.Now()
		s.tags = map[string][]string{id("agent", 0): {"a"}, id("agent", 1): {"b", "prod"}, id("agent", 2): {"prod"}, id("agent", 3): {}}
		for i := range 2500 { // three pages
			began := now.Add(time.Duration(i-2500) * time.Minute)
			run := &fakeRun{id: id("run", i), agent: id("agent", i%5), began: began, seen: began, ended: began.Add(time.Second)}
			if i == 2498 {
				run.ended = now.Add(time.Hour)
			}
			s.runs = append(s.runs, run)
		}
		since := now.Add(-100 * time.Minute)
		of := func(want func(i int) bool) (n int) {
			for i := range 2500 {
				if i != 2498 && want(i) {
					n++
				}
			}
			return n
		}
		recent := func(i int) bool { return i >= 2400 }
		for n, test := range []struct {
			name    string
			which   config.Runs
			want    int
			running int
		}{
			{"all", config.Runs{}, of(func(int) bool { return true }), 1},
			{"since", config.Runs{Since: since}, of(recent), 1},
			{"one agent", config.Runs{Agents: []string{id("agent", 3)}}, of(func(i int) bool { return i%5 == 3 }), 1},
			{"agent since", config.Runs{Agents: []string{id("agent", 1)}, Since: since}, of(func(i int) bool { return recent(i) && i%5 == 1 }), 0},
			{"tag", config.Runs{Tags: []string{"prod"}}, of(func(i int) bool { return i%5 == 1 || i%5 == 2 }), 0},
			{"tags", config.Runs{Tags: []string{"prod", "a", "none"}}, of(func(i int) bool { return i%5 < 3 }), 0},
			{"run", config.Runs{IDs: []string{id("run", 7), id("run", 2498)}}, 1, 1},
			{"run since", config.Runs{IDs: []string{id("run", 7), id("run", 2499)}, Since: since}, 1, 0},
			{"united", config.Runs{IDs: []string{id("run", 4), id("run", 1)}, Agents: []string{id("agent", 0)}, Tags: []string{"prod"}}, 1 + of(func(i int) bool { return i%5 < 3 }), 0},
		} {
			s.fixed, s.most = n%2 == 1, n%3*333
			got, counts := s.collect(t.Context(), t, c, serverruns.Config{Which: test.which})
			if len(got) != test.want || counts.Given != test.want || counts.Running != test.running {
				t.Errorf("%s: %d runs, %+v, want %d and %d", test.name, len(got), counts, test.want, test.running)
			}
		}
	})
}

// TestPaging checks that each run is yielded and counted once although runs begin during a listing
// and its cursor run is deleted.
func TestPaging(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		fixed   bool
		moments int // distinct start times of the runs
		since   time.Duration
	}{
		{"0.16", false, 500, 0},
		{"cursors as documented", true, 500, 0},
		{"equal moments", false, 3, 0},
		{"equal moments, cursors as documented", true, 3, 0},
		{"since", false, 500, 4 * time.Hour},
		{"since, one moment", false, 1, 4 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, r := newFake(t), rand.New(rand.NewPCG(7, 7))
			s.fixed, s.most = test.fixed, 60
			lettatest.InBubble(t, s.serve, letta.ClientConfig{ReadRetries: -1}, func(t *testing.T, c *letta.Client) {
				t.Helper()
				now := time.Now()
				var which config.Runs
				if test.since > 0 {
					which.Since = now.Add(-test.since)
				}
				add := func(began time.Time) *fakeRun {
					run := &fakeRun{id: id("run", r.IntN(1<<31)), agent: id("agent", 0), began: began, seen: began, ended: began}
					s.runs = append(s.runs, run)
					return run
				}
				for i := range 500 {
					run := add(now.Add(-time.Duration(1+i*test.moments/500) * time.Minute))
					if r.IntN(3) == 0 {
						run.deleted = now.Add(time.Hour) // not yet
					}
				}
				lists := 0
				s.listed = func(last *fakeRun) {
					if lists++; lists < 20 && last != nil {
						add(time.Now())
						if !last.deleted.IsZero() {
							last.deleted = time.Now()
						}
					}
				}
				got, counts := s.collect(t.Context(), t, c, serverruns.Config{Which: which})
				want := 0
				for _, run := range s.runs {
					old := !which.Since.IsZero() && run.began.Before(which.Since)
					if n := got[run.id]; n > 1 || old && n > 0 || !old && n == 0 && run.began.Before(now) && run.deleted.IsZero() {
						t.Errorf("given %d times: %+v", n, run)
					}
					want += got[run.id]
				}
				if lists < 9 || counts.Given != want || counts.Total() != want {
					t.Errorf("%+v, given %d", counts, want)
				}
			})
		})
	}
}

// TestFollowNamed checks that a following feed of named runs ends when they have ended.
func TestFollowNamed(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	lettatest.InBubble(t, s.serve, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		now := time.Now()
		for i := range 2 {
			s.runs = append(s.runs, &fakeRun{id: id("run", i), agent: id("agent", i), began: now, seen: now, ended: now.Add(time.Duration(i) * 7 * time.Minute)})
		}
		got, counts := s.collect(t.Context(), t, c, serverruns.Config{Which: config.Runs{IDs: []string{id("run", 0), id("run", 1)}}, Follow: true})
		if took := time.Since(now); len(got) != 2 || counts.Running != 0 || took < 7*time.Minute || took > 8*time.Minute {
			t.Errorf("%v, %+v, after %v", got, counts, took)
		}
	})
}

// TestLateAgent checks that an agent created while a feed follows a tag is fetched once.
func TestLateAgent(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	lettatest.InBubble(t, s.serve, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		now := time.Now()
		for i := range 6 {
			began := now.Add(time.Duration(i)*time.Minute + 5*time.Minute)
			s.runs = append(s.runs, &fakeRun{id: id("run", i), agent: id("agent", i%3), began: began, seen: began, ended: began.Add(time.Second)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(4*time.Minute, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tags[id("agent", 0)], s.tags[id("agent", 1)] = []string{"prod"}, []string{"other"} // the third is deleted
		})
		got, _ := s.collect(ctx, t, c, serverruns.Config{Which: config.Runs{Tags: []string{"prod"}}, Follow: true})
		if want := map[string]int{id("run", 0): 1, id("run", 3): 1}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestErrors checks that a missing run ends a feed, and so does a long outage.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	lettatest.InBubble(t, s.serve, letta.ClientConfig{ReadRetries: -1}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		again := 0
		first := func(which config.Runs) error {
			f := serverruns.New(serverruns.Config{Client: c, Which: which, Known: func(string) bool { return false }, Again: func(error, time.Duration) { again++ }})
			for _, err := range f.Tasks(t.Context()) {
				return err
			}
			return nil
		}
		if err := first(config.Runs{IDs: []string{id("run", 1)}}); err == nil || !strings.Contains(err.Error(), "the server has no run "+id("run", 1)) || again > 0 {
			t.Errorf("%v, after %d more", err, again)
		}
		s.failures = 1 << 20
		began := time.Now()
		if err := first(config.Runs{}); err == nil || !strings.Contains(err.Error(), "An unknown error occurred") || again < 10 || time.Since(began) < 10*time.Minute {
			t.Errorf("%v, after %d more in %v", err, again, time.Since(began))
		}
	})
}
