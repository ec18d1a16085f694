package collector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// A notebook is a journal in memory. It keeps every note as a line of text.
type notebook struct {
	err func(line string) error

	mu    sync.Mutex
	lines []string
}

func (n *notebook) note(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		if err := n.err(line); err != nil {
			return err
		}
	}
	n.lines = append(n.lines, line)
	return nil
}

func (n *notebook) Begin(a collector.Attempt, endpoint string) error {
	return n.note("begin %s/%d %s at %s", taskOf(a.Key), a.N, a.Kind, endpoint)
}

func (n *notebook) Agent(key string, attempt int, id string) error {
	return n.note("agent %s/%d", taskOf(key), attempt)
}

func (n *notebook) ServerRun(key string, attempt int, id string) error {
	return n.note("run %s/%d %s", taskOf(key), attempt, id)
}

func (n *notebook) End(key string, attempt int, class collector.Class, charged bool) error {
	return n.note("end %s/%d %v %t", taskOf(key), attempt, class, charged)
}

// keyOf is the key of a sample of tasks(n); taskOf is the inverse, as "t3-1".
func keyOf(task, index int) string {
	return collector.SampleKey(&collector.Task{ID: fmt.Sprintf("t%d", task), Messages: []string{"hello"}}, index)
}

var names = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for task := range 50 {
		for index := range 8 {
			m[keyOf(task, index)] = fmt.Sprintf("t%d-%d", task, index)
		}
	}
	return m
})

func taskOf(key string) string { return names()[key] }

// A revived backend is a scripted one with agents of an earlier process. Where the
// script says openErr, nothing can be taken over.
type revived struct {
	scripted
	reattached []collector.OpenAttempt
	was        []collector.Attempt
}

func (b *revived) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	b.mu.Lock()
	b.reattached, b.was = append(b.reattached, left), append(b.was, a)
	b.mu.Unlock()
	agent, err := b.Open(ctx, a)
	if err == nil && a.ServerRun != nil {
		for _, id := range append(left.ServerRuns, "run-new") {
			a.ServerRun(id)
		}
	}
	return agent, err
}

// lefts looks up a table by task name.
func lefts(m map[string]collector.Left) func(string) collector.Left {
	return func(key string) collector.Left { return m[taskOf(key)] }
}

func openAt(endpoint string, n int) collector.Left {
	return collector.Left{Attempts: n, Open: &collector.OpenAttempt{N: n, Endpoint: endpoint, AgentID: "agent", ServerRuns: []string{"run-old"}}}
}

func TestOpenAttemptsFirstThenBegunGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(collector.Attempt) step { return step{takes: time.Second} }
		a, b, s := &revived{scripted: scripted{script: slow}}, &revived{scripted: scripted{script: slow}}, &shelf{atOnce: true}
		j := &notebook{}
		left := map[string]collector.Left{
			"t1-0": {Done: true},
			"t3-1": openAt("b", 2), "t4-0": openAt("a", 1), "t4-1": openAt("elsewhere", 3),
			"t5-0": {Attempts: 2, Charged: 1}, "t6-0": {Failed: collector.ClassAgentError},
		}
		var late []string
		c := setup(t, a, s, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 1}, {Name: "b", Backend: b, MaxInFlight: 1}}
			cfg.Samples, cfg.Planned, cfg.Left, cfg.Journal = 2, 14, lefts(left), j
			cfg.Events.Reattached = func(a collector.Attempt, _ string, err error) {
				if err != nil && errors.Is(err, collector.ErrGone) {
					late = append(late, collector.RolloutID(taskOf(a.Key), a.N))
				}
			}
		})
		if err := c.Run(t.Context(), tasks(7)); err != nil {
			t.Fatal(err)
		}
		a.check(t)
		b.check(t)
		var got []string
		for _, sample := range s.samples {
			got = append(got, fmt.Sprintf("%s/%d", taskOf(sample.Key), sample.Attempt))
		}
		// Two at a time: the order within a pair is that of the goroutines.
		for i := 0; i+1 < len(got); i += 2 {
			slices.Sort(got[i : i+2])
		}
		want := []string{"t3-1/2", "t4-0/1", "t1-1/1", "t4-1/4", "t3-0/1", "t5-0/3", "t5-1/1", "t6-1/1", "t0-0/1", "t0-1/1", "t2-0/1", "t2-1/1"}
		if !slices.Equal(got, want) {
			t.Errorf("order %v\nwant  %v", got, want)
		}
		if len(a.reattached) != 1 || len(b.reattached) != 1 || b.reattached[0].N != 2 || b.was[0].Kind != collector.KindReattach {
			t.Errorf("reattached at a: %+v, at b: %+v", a.reattached, b.reattached)
		}
		st := c.Stats()
		counts(t, st, 13, 1, 0, 0)
		if st.Earlier != (collector.Earlier{Committed: 1, Failed: 1}) || st.ByClass[collector.ClassAgentError] != 1 {
			t.Errorf("earlier %+v, by class %v", st.Earlier, st.ByClass)
		}
		if st.Reattached != 2 || st.Gone != 1 || st.Attempts != 12 || st.Retries != 2 || st.InfraRetries != 2 || !slices.Equal(late, []string{"t4-1/3"}) {
			t.Errorf("reattached %d, gone %d %v, attempts %d, retries %d", st.Reattached, st.Gone, late, st.Attempts, st.Retries)
		}
		for _, sample := range s.samples {
			taken := sample.Key == keyOf(3, 1) || sample.Key == keyOf(4, 0)
			if (sample.Rows[0].Flags&tokenize.FlagReattached != 0) != taken {
				t.Errorf("%s: flags %v, taken over is %t", taskOf(sample.Key), sample.Rows[0].Flags, taken)
			}
		}
		// What was noted by the process that made the attempt is not noted again.
		for _, line := range []string{"begin t3-1/2 reattach at b", "run t3-1/2 run-old"} {
			if slices.Contains(j.lines, line) {
				t.Errorf("journal has %q", line)
			}
		}
		for _, line := range []string{"run t3-1/2 run-new", "end t3-1/2 none false", "end t4-1/3 lost false"} {
			if !slices.Contains(j.lines, line) {
				t.Errorf("journal lacks %q: %q", line, j.lines)
			}
		}
		begun := 0
		for _, line := range j.lines {
			if strings.HasPrefix(line, "begin t4-1/4 infra_retry") || strings.HasPrefix(line, "begin t5-0/3 infra_retry") || strings.HasPrefix(line, "begin t6-1/1 first") {
				begun++
			}
		}
		if begun != 3 {
			t.Errorf("journal %q", j.lines)
		}
	})
}

// What is noted, and when: each note before what it is about can happen, and the end
// after the sink has the sample and before the agent is removed.
func TestJournalOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &notebook{}
		b := &noting{scripted: scripted{script: func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t0" && a.N == 1:
				return step{openErr: collector.ErrServer}
			case a.Task.ID == "t0" && a.N == 2:
				return step{runErr: collector.ErrMalformedCall}
			case a.Task.ID == "t1":
				return step{runErr: collector.ErrRejected}
			}
			return step{}
		}}, j: j}
		s := &notedShelf{shelf: shelf{atOnce: true}, j: j}
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.Journal, cfg.Retries, cfg.DataRetries = j, 1, 1 })
		// The first answer makes the server one that is up, whose failures are charged.
		if err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
			for _, id := range []string{"t2", "t0", "t1"} {
				if !yield(&collector.Task{ID: id, Messages: []string{"hello"}}, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"begin t2-0/1 first at a", "(open)", "agent t2-0/1", "run t2-0/1 run-1", "(sink)", "end t2-0/1 none false", "(close)",
			"begin t0-0/1 first at a", "(open)", "end t0-0/1 server_error true",
			"begin t0-0/2 infra_retry at a", "(open)", "agent t0-0/2", "run t0-0/2 run-1", "(close)", "end t0-0/2 malformed_call true",
			"begin t0-0/3 data_retry at a", "(open)", "agent t0-0/3", "run t0-0/3 run-1", "(sink)", "end t0-0/3 none false", "(close)",
			"begin t1-0/1 first at a", "(open)", "agent t1-0/1", "run t1-0/1 run-1", "(close)", "(sink)", "end t1-0/1 bad_request false",
		}
		if !slices.Equal(j.lines, want) {
			t.Errorf("journal\n%q\nwant\n%q", j.lines, want)
		}
		st := c.Stats()
		if st.InfraRetries != 1 || st.DataRetries != 1 || st.Retries != 2 {
			t.Errorf("infra, data, all retries = %d, %d, %d, want 1, 1, 2", st.InfraRetries, st.DataRetries, st.Retries)
		}
	})
}

// A noting backend writes what it does into the journal.
type noting struct {
	scripted
	j *notebook
}

func (b *noting) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	if err := b.j.note("(open)"); err != nil {
		return nil, err
	}
	g, err := b.scripted.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &notingAgent{g, a, b.j}, nil
}

type notingAgent struct {
	collector.Agent
	a collector.Attempt
	j *notebook
}

func (g *notingAgent) Run(ctx context.Context) (*collector.Reply, error) {
	g.a.ServerRun("run-1")
	return g.Agent.Run(ctx)
}

func (g *notingAgent) Close(ctx context.Context) error {
	return errors.Join(g.j.note("(close)"), g.Agent.Close(ctx))
}

type notedShelf struct {
	shelf
	j *notebook
}

func (s *notedShelf) Append(ctx context.Context, sample *tokenize.Sample, done func(error)) error {
	return errors.Join(s.j.note("(sink)"), s.shelf.Append(ctx, sample, done))
}

// An attempt that cannot be taken over costs nothing, is made again under the next
// number, and at once.
func TestGoneCostsNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step step
	}{
		{"nothing is there", step{openErr: fmt.Errorf("no agent: %w", collector.ErrGone)}},
		{"not every token is there", step{runErr: fmt.Errorf("no trace: %w", collector.ErrGone)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
					if a.Kind == collector.KindReattach {
						return tt.step
					}
					return step{}
				}}}
				j, s := &notebook{}, &shelf{atOnce: true}
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Left, cfg.Journal = lefts(map[string]collector.Left{"t0-0": openAt("a", 4)}), j
				})
				start := time.Now()
				if err := c.Run(t.Context(), tasks(1)); err != nil {
					t.Fatal(err)
				}
				b.check(t)
				st := c.Stats()
				counts(t, st, 1, 0, 0, 0)
				if st.Gone != 1 || st.Reattached != 0 || s.samples[0].Attempt != 5 || time.Since(start) != 0 {
					t.Errorf("gone %d, reattached %d, attempt %d, took %v", st.Gone, st.Reattached, s.samples[0].Attempt, time.Since(start))
				}
				if !slices.Contains(j.lines, "end t0-0/4 lost false") {
					t.Errorf("journal %q", j.lines)
				}
			})
		})
	}
}

// A server that is away while an attempt is to be taken over does not cost us the
// attempt: it is asked for again until the server is back.
func TestReattachWaitsForItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
			if away := time.Since(start); away > time.Second && away < 20*time.Second {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}}}
		s, j := &shelf{atOnce: true}, &notebook{}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Retries, cfg.Journal = 3, j
			cfg.Left = lefts(map[string]collector.Left{"t0-0": openAt("a", 1), "t1-0": openAt("a", 2), "t2-0": openAt("a", 1)})
		})
		if err := c.Run(t.Context(), tasks(3)); err != nil {
			t.Fatal(err)
		}
		b.check(t)
		st := c.Stats()
		counts(t, st, 3, 0, 0, 0)
		if st.Reattached != 3 || st.Gone != 0 || len(b.reattached) < 5 || st.Retries != 0 {
			t.Errorf("reattached %d in %d tries, gone %d, retries %d", st.Reattached, len(b.reattached), st.Gone, st.Retries)
		}
		for _, line := range j.lines {
			if strings.HasPrefix(line, "begin") || strings.HasPrefix(line, "end") && !strings.HasSuffix(line, "none false") {
				t.Errorf("journal has %q", line)
			}
		}
	})
}

// An attempt that was taken over and then failed is over once its agent is removed: the
// next one is a new one.
func TestReattachedAttemptFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
			if a.Task.ID == "t1" && a.Kind == collector.KindReattach {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}}}
		s, j := &shelf{atOnce: true}, &notebook{}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Retries, cfg.Journal = 1, j
			cfg.Left = lefts(map[string]collector.Left{"t0-0": openAt("a", 1), "t1-0": openAt("a", 3)})
		})
		if err := c.Run(t.Context(), tasks(2)); err != nil {
			t.Fatal(err)
		}
		b.check(t)
		st := c.Stats()
		counts(t, st, 2, 0, 0, 0)
		if st.Reattached != 1 || st.Gone != 0 || st.InfraRetries != 1 || len(b.reattached) != 2 || s.samples[1].Attempt != 4 {
			t.Errorf("reattached %d in %d tries, gone %d, infra retries %d, attempt %d", st.Reattached, len(b.reattached), st.Gone, st.InfraRetries, s.samples[1].Attempt)
		}
		for _, line := range []string{"end t1-0/3 server_error true", "begin t1-0/4 infra_retry at a"} {
			if !slices.Contains(j.lines, line) {
				t.Errorf("journal lacks %q: %q", line, j.lines)
			}
		}
	})
}

// Open attempts of an endpoint that is given up are made again at another.
func TestOpenAttemptsOfLostEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := &revived{scripted: scripted{script: func(collector.Attempt) step { return step{openErr: collector.ErrConnection} }}}
		b, s := &revived{}, &shelf{atOnce: true}
		left := map[string]collector.Left{}
		for i := range 8 {
			left[fmt.Sprintf("t%d-0", i)] = openAt("dead", 2)
		}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "dead", Backend: dead, MaxInFlight: 2}, {Name: "b", Backend: b, MaxInFlight: 2}}
			cfg.Left, cfg.Planned, cfg.Outage = lefts(left), 10, time.Minute
		})
		if err := c.Run(t.Context(), tasks(10)); err != nil {
			t.Fatal(err)
		}
		b.check(t)
		st := c.Stats()
		counts(t, st, 10, 0, 0, 0)
		if st.Gone != 8 || st.Reattached != 0 || !st.Endpoints[0].Lost {
			t.Errorf("gone %d, reattached %d, endpoints %+v", st.Gone, st.Reattached, st.Endpoints)
		}
	})
}

func TestRetryFailedMendsOnlyFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			if a.Task.ID == "t2" {
				return step{runErr: collector.ErrServer}
			}
			return step{takes: time.Second}
		}}
		s, j := &shelf{atOnce: true}, &notebook{}
		var kinds []string
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.RetryFailed, cfg.Planned, cfg.Journal, cfg.MaxFailures, cfg.Retries = true, 6, j, 4, 1
			cfg.Left = lefts(map[string]collector.Left{
				"t0-0": {Done: true, Attempts: 1}, "t1-0": {Failed: collector.ClassMalformedCall, Attempts: 2, Charged: 9},
				"t2-0": {Failed: collector.ClassTimeoutTotal, Attempts: 3, Charged: 4}, "t3-0": {Attempts: 1},
				"t4-0": {Failed: collector.ClassCensored, Attempts: 1},
			})
			cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) { kinds = append(kinds, a.Kind.String()) }
		})
		go func() {
			time.Sleep(500 * time.Millisecond)
			counts(t, c.Stats(), 1, 1, 1, 3) // t1 is being mended; t3 and t5 remain
			time.Sleep(time.Second)
			counts(t, c.Stats(), 2, 0, 1, 3) // t2 is being mended
		}()
		if err := c.Run(t.Context(), tasks(6)); err != nil {
			t.Fatal(err)
		}
		b.check(t)
		st := c.Stats()
		counts(t, st, 3, 1, 0, 2)
		if st.Earlier != (collector.Earlier{Committed: 1}) || st.ByClass[collector.ClassServerError] != 1 || len(st.ByClass) != 1 {
			t.Errorf("earlier %+v, by class %v", st.Earlier, st.ByClass)
		}
		want := []string{"data_retry", "infra_retry", "infra_retry", "infra_retry"}
		if !slices.Equal(kinds, want) {
			t.Errorf("kinds %v, want %v", kinds, want)
		}
		if got := s.samples[0].Attempt; got != 3 {
			t.Errorf("attempt %d of t1, want 3", got)
		}
	})
}

// A failed sample whose mending is cut off is what it was.
func TestCutMendingLeavesTheFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{hang: true} }}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.RetryFailed, cfg.Endpoints[0].MaxInFlight = true, 2
			cfg.Left = lefts(map[string]collector.Left{"t0-0": {Failed: collector.ClassDecode}, "t1-0": {Failed: collector.ClassCensored}})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Run(ctx, tasks(2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v", err)
		}
		st := c.Stats()
		counts(t, st, 0, 1, 1, 0)
		if st.Earlier != (collector.Earlier{Failed: 1, Skipped: 1}) {
			t.Errorf("earlier %+v", st.Earlier)
		}
	})
}

// Budgets go on where an earlier process left them.
func TestBudgetsGoOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		left     collector.Left
		err      error
		attempts int
	}{
		{"none used", collector.Left{}, collector.ErrServer, 3},
		{"one retry used", collector.Left{Attempts: 1, Charged: 1}, collector.ErrServer, 2},
		{"all retries used", collector.Left{Attempts: 5, Charged: 2}, collector.ErrServer, 1},
		{"one data retry used", collector.Left{Attempts: 1, Rerolled: 1}, collector.ErrAgent, 3},
		{"retries are not data retries", collector.Left{Attempts: 2, Charged: 2}, collector.ErrAgent, 4},
		{"what no roll mends", collector.Left{}, collector.ErrNoTurns, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: func(a collector.Attempt) step {
					if a.Task.ID == "t0" {
						return step{}
					}
					return step{runErr: tt.err}
				}}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Retries, cfg.DataRetries = 2, 3
					cfg.Left = lefts(map[string]collector.Left{"t0-0": {Attempts: 1}, "t1-0": tt.left})
				})
				if err := c.Run(t.Context(), tasks(2)); err != nil {
					t.Fatal(err)
				}
				if st := c.Stats(); st.Attempts != 1+tt.attempts || st.Failed != 1 {
					t.Errorf("%d attempts, want %d", st.Attempts-1, tt.attempts)
				}
			})
		})
	}
}

func TestJournalErrorEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"begin", "agent", "run", "end"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &notebook{err: func(line string) error {
					if strings.HasPrefix(line, what) {
						return errPlain
					}
					return nil
				}}
				b := &noting{scripted: scripted{script: func(collector.Attempt) step { return step{takes: time.Second} }}, j: j}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Journal = j })
				err := c.Run(t.Context(), tasks(3))
				if !errors.Is(err, collector.ErrStorage) || !errors.Is(err, errPlain) {
					t.Errorf("Run = %v, want %v", err, collector.ErrStorage)
				}
				b.check(t)
				identity(t, c.Stats())
			})
		})
	}
}

// A stop notes the end of what it closed, and of nothing that may live.
func TestStopNotesWhatItClosed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step step
		want []string
	}{
		{"closed", step{hang: true}, []string{"begin t0-0/1 first at a", "(open)", "agent t0-0/1", "run t0-0/1 run-1", "(close)", "end t0-0/1 cancelled false"}},
		{"not closed", step{hang: true, closeErr: errPlain}, []string{"begin t0-0/1 first at a", "(open)", "agent t0-0/1", "run t0-0/1 run-1", "(close)"}},
		{"being made", step{opening: true}, []string{"begin t0-0/1 first at a", "(open)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &notebook{}
				b := &noting{scripted: scripted{script: func(collector.Attempt) step { return tt.step }}, j: j}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Journal = j })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Run(ctx, tasks(1)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Run = %v", err)
				}
				if !slices.Equal(j.lines, tt.want) {
					t.Errorf("journal %q, want %q", j.lines, tt.want)
				}
				counts(t, c.Stats(), 0, 0, 0, 1)
			})
		})
	}
}

type spanKey struct{}

// Spans enclose what happens in them, and end with what ended them.
func TestSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		begin := func(what string) func(context.Context, collector.Attempt, string) (context.Context, func(error)) {
			return func(ctx context.Context, a collector.Attempt, endpoint string) (context.Context, func(error)) {
				in, _ := ctx.Value(spanKey{}).(string)
				name := fmt.Sprintf("%s%s %d %s", in, what, a.N, a.Kind)
				return context.WithValue(ctx, spanKey{}, name+" > "), func(err error) {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprintf("%s: %v", name, collector.Classify(err)))
				}
			}
		}
		b := &scripted{script: func(a collector.Attempt) step {
			if a.N == 1 && a.Task.ID == "t1" {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Retries = 1
			cfg.Events.SampleSpan, cfg.Events.AttemptSpan = begin("sample"), begin("attempt")
		})
		if err := c.Run(t.Context(), tasks(2)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"sample 1 first > attempt 1 first: none", "sample 1 first: none",
			"sample 1 first > attempt 1 first: server_error", "sample 1 first > attempt 2 infra_retry: none", "sample 1 first: none",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("spans %q\nwant  %q", lines, want)
		}
	})
}

// The tasks are read once where nothing was left, and not beyond what is needed else.
func TestHowOftenTasksAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		left func(string) collector.Left
		want int
	}{
		{"no lookup", nil, 1},
		{"nothing left", lefts(nil), 2},
		{"all done", func(string) collector.Left { return collector.Left{Done: true} }, 1},
		{"all begun", func(string) collector.Left { return collector.Left{Attempts: 1} }, 2},
		{"some begun", lefts(map[string]collector.Left{"t1-0": {Attempts: 1}}), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reads := 0
			var source iter.Seq2[*collector.Task, error] = func(yield func(*collector.Task, error) bool) {
				reads++
				tasks(4)(yield)
			}
			c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Left = tt.left })
			if err := c.Run(t.Context(), source); err != nil {
				t.Fatal(err)
			}
			if reads != tt.want || c.Stats().Remaining != 0 {
				t.Errorf("read %d times, want %d; stats %+v", reads, tt.want, c.Stats())
			}
		})
	}
}

// A bad task is an error also in a resumed run, after what comes before it.
func TestBadTaskInResumedRun(t *testing.T) {
	t.Parallel()
	c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Left = lefts(nil) })
	err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
		tasks(2)(yield)
		yield(nil, errPlain)
	})
	if !errors.Is(err, errPlain) {
		t.Errorf("Run = %v, want %v", err, errPlain)
	}
	counts(t, c.Stats(), 2, 0, 0, 0)
}
