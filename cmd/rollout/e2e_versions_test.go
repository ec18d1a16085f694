package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A truth is the simulator's log: the version of each call, by step.
type truth struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (l *truth) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *truth) byStep(t *testing.T) map[string]int32 {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int32{}
	for dec := json.NewDecoder(bytes.NewReader(l.log.Bytes())); dec.More(); {
		var line struct {
			StepID  string `json:"step_id"`
			Version int32  `json:"version"`
		}
		noError(t, dec.Decode(&line))
		out[line.StepID] = line.Version
	}
	return out
}

// A versionCount counts the sampled tokens of a run by the state of their version.
type versionCount struct{ known, unknown, wrong int }

func compareVersions(t *testing.T, dir string, truth map[string]int32) (n versionCount, seen map[int32]bool) {
	t.Helper()
	seen = map[int32]bool{}
	for _, r := range readDataset(t, dir).allRows() {
		call := 0
		for k, role := range r.TurnRoles {
			lo, hi := r.TurnOffsets[k], r.TurnOffsets[k+1]
			if tokenize.Role(role) != tokenize.RoleAssistant {
				if r.Versions != nil && slices.ContainsFunc(r.Versions[lo:hi], func(v int32) bool { return v != -1 }) {
					t.Errorf("row %s/%d: a version on context", r.SampleKey, r.SegmentIndex)
				}
				continue
			}
			want, ok := truth[r.StepIDs[call]]
			if !ok {
				t.Fatalf("step %q is not in the log of the simulator", r.StepIDs[call])
			}
			call++
			for i := lo; i < hi; i++ {
				switch {
				case r.Versions == nil || r.Versions[i] == -1:
					n.unknown++
				case r.Versions[i] != want:
					n.wrong++
				default:
					n.known++
					seen[want] = true
				}
			}
		}
		least, greatest := versionSpan(r)
		if (r.PolicyVersionMin == nil) != (least < 0) || r.PolicyVersionMin != nil && (*r.PolicyVersionMin != least || *r.PolicyVersionMax != greatest) {
			t.Errorf("row %s/%d: policy_version_min and _max are not those of its tokens (%d, %d)", r.SampleKey, r.SegmentIndex, least, greatest)
		}
	}
	return n, seen
}

// versionSpan returns the least and the greatest version of the sampled tokens, or -1 if one is
// unknown.
func versionSpan(r *sink.StoredRow) (least, greatest int32) {
	least, greatest = -1, -1
	for k, role := range r.TurnRoles {
		for i := r.TurnOffsets[k]; i < r.TurnOffsets[k+1] && tokenize.Role(role) == tokenize.RoleAssistant; i++ {
			switch {
			case r.Versions == nil || r.Versions[i] < 0:
				return -1, -1
			case least < 0:
				least, greatest = r.Versions[i], r.Versions[i]
			}
			least, greatest = min(least, r.Versions[i]), max(greatest, r.Versions[i])
		}
	}
	return least, greatest
}

// If the weights change during rollouts, in many configurations, every version in the data matches
// the simulator's log or is unknown. A page proves the version of a send if it does not change from
// shortly before the send until shortly after it. So the weights change after a number of calls: on
// a slow machine they change later, and the share of sends with a version only grows.
func TestVersions(t *testing.T) {
	t.Parallel()
	both := []string{"--one-engine"}
	for _, v := range []struct {
		name     string
		weights  string
		noTraces bool
		args     []string
		page     string // page of the server, or trace; empty: no --policy-version
		faults   bool
		kills    int
		// least and most bound the share of tokens with a known version. notice is a required
		// message.
		least, most float64
		notice      string
		long        bool
		samples     int // of each task; 0 means 6
		inFlight    int // 0 means 24
	}{
		{name: "url", weights: "every=180", inFlight: 16, noTraces: true, page: "/model_info", args: both, least: 0.15, most: 0.99},
		{name: "url and traces", weights: "every=700ms", page: "", args: both, least: 0.99, most: 1, long: true},
		{name: "faults", weights: "every=180", inFlight: 16, noTraces: true, page: "/", args: both, faults: true, least: 0.1, most: 0.99, long: true},
		{name: "killed", weights: "every=180", inFlight: 16, noTraces: true, page: "/model_info", args: both, kills: 3, least: 0.02, most: 0.99},
		{name: "killed, faults and traces", weights: "every=500ms", page: "/model_info", args: both, kills: 2, faults: true, least: 0.6, most: 1, long: true},
		{name: "arrow", weights: "every=180", inFlight: 16, noTraces: true, page: "/get_model_info", args: []string{"--one-engine", "--format", "arrow"}, least: 0.15, most: 0.99, long: true},
		{name: "a page that is late", weights: "every=3s,lag=150ms", inFlight: 16, noTraces: true, page: "/model_info", args: both, least: 0.01, most: 0.99, samples: 10, long: true},
		{name: "a page that is early", weights: "every=3s,lag=-150ms", inFlight: 16, noTraces: true, page: "/model_info", args: both, least: 0.01, most: 0.99, samples: 10, long: true},
		{name: "two engines", weights: "every=700ms,engines=2", noTraces: true, page: "/model_info", most: 0, notice: "proves no version without --one-engine"},
		{name: "two engines with traces", weights: "every=700ms,engines=2", page: "/model_info", least: 0.99, most: 1, notice: "proves no version without --one-engine", long: true},
		{name: "a number that falls", weights: "every=100,fall=4", noTraces: true, page: "/model_info", args: both, most: 0.95, notice: "fell from 4 to 1", samples: 10, long: true},
		{name: "traces of all calls", weights: "every=500ms,engines=2", page: "trace", least: 0.99, most: 1},
		{name: "traces of all calls, and there are none", weights: "every=700ms", noTraces: true, page: "trace", most: 0, long: true},
		{name: "traces of all calls, killed", weights: "every=500ms", page: "trace", kills: 2, faults: true, least: 0.95, most: 1, long: true},
		{name: "words", weights: "every=700ms,words", page: "/model_info", args: both, most: 0, notice: `returned "default", not a number`},
		{name: "no page", weights: "every=700ms", most: 0, long: true},
	} {
		if v.long && testing.Short() {
			continue
		}
		// once collects. It returns the share of tokens with a known version, and whether the share and
		// the number of versions are high enough.
		once := func(t *testing.T) (share float64, enough bool) {
			t.Helper()
			var log truth
			cfg := lettasim.Config{InputIDs: true, NoTraces: v.noTraces, Script: metamorphicScript()}
			cfg.Weights = must(lettasim.ParseWeights(v.weights))(t)
			cfg.Latency = latencyOf(t, "50ms..400ms")
			cfg.Weights.Log = &log
			if v.faults {
				cfg.Faults = recoverableFaults(0.03)
			}
			sim := newSim(t, cfg)
			url := serveSim(t, sim)
			dir, args := collectArgs(t, sim, url, 30,
				"--resume", "--max-in-flight", fmt.Sprint(cmp.Or(v.inFlight, 24)), "--samples", fmt.Sprint(cmp.Or(v.samples, 6)), "--retries", "6", "-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_age: 1s}\n")))
			asks := v.page != "" || len(v.args) > 0
			if v.page == "trace" {
				args = append(args, "--policy-version", v.page)
			} else if asks {
				args = append(args, "--policy-version", url+v.page)
			}
			args = append(args, v.args...)
			began := time.Now()
			for n := range v.kills {
				p := startProgram(t, "rollout", nil, args...)
				waitFor(t, "commits", func() bool {
					return commitsOf(dir) > n && sim.Stats().InFlight > 4
				})
				p.kill()
			}
			r := mustRun(t, exit.OK, args...)
			took := time.Since(began)
			mustRun(t, exit.OK, "verify", dir)
			source := "none"
			if asks && len(v.args) > 0 {
				source = "trace,url"
			} else if asks {
				source = "trace"
			}
			footersSay(t, dir, source)
			n, seen := compareVersions(t, dir, log.byStep(t))
			share = float64(n.known) / float64(n.known+n.unknown+n.wrong)
			t.Logf("%d tokens with their version, %d unknown (%.1f%% known), versions seen: %d", n.known, n.unknown, 100*share, len(seen))
			if n.wrong > 0 {
				t.Errorf("%d tokens have another version than the one that sampled them", n.wrong)
			}
			// Words instead of numbers are reported twice: for the page and for the traces.
			if strings.Count(r.stderr, "policy version: ") > 2 || !strings.Contains(r.stderr, v.notice) {
				t.Errorf("want %q among two notices at most:\n%s", v.notice, r.stderr)
			}
			if asked := sim.Stats().Requests["GET /model_info"] + sim.Stats().Requests["GET /get_model_info"]; asked > int64(4*took.Seconds())+int64(4*(1+v.kills)) {
				t.Errorf("%d requests for the page in %v, want at most four per second", asked, took)
			}
			if share > v.most {
				t.Errorf("%.3f of the tokens have a version, want at most %v", share, v.most)
			}
			return share, share >= v.least && (v.least == 0 || len(seen) > 1)
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			tries := 1
			if v.noTraces && strings.HasPrefix(v.page, "/") {
				tries = 3 // a busy machine reads the page late, and then knows fewer versions
			}
			for try := 1; ; try++ {
				share, enough := once(t)
				if enough {
					return
				}
				if try == tries {
					t.Fatalf("%.3f of the tokens have a version, want at least %v and not all the same: the test has lost its teeth", share, v.least)
				}
				t.Logf("try %d: %.3f of the tokens have a version, want at least %v and not all the same", try, share, v.least)
			}
		})
	}
}

func footersSay(t *testing.T, dir, want string) {
	t.Helper()
	log := must(sink.ReadLog(dir))(t)
	for s := range log.Shards(sink.KindData) {
		meta, err := log.Meta(s)
		if got := meta["rollout.versions_source"]; err != nil || got != want {
			t.Errorf("%s: rollout.versions_source is %q (%v), want %q", s.Path, got, err, want)
		}
	}
}

// The first contradicting trace reveals a page that is not the engine's. From then on the versions
// come from the traces.
func TestVersionPageOfAnother(t *testing.T) {
	t.Parallel()
	var log truth
	cfg := lettasim.Config{InputIDs: true, Weights: lettasim.Weights{Every: 50 * time.Millisecond, Log: &log}}
	sim := newSim(t, cfg)
	page := serveHandler(t, sim, text(http.StatusOK, "1000000"))
	dir, args := collectArgs(t, sim, serveSim(t, sim), 5, "--samples", "20", "--max-in-flight", "1", "--policy-version", page, "--one-engine")
	r := mustRun(t, exit.OK, args...)
	if want := "returned 1000000 during a call, but the engine's trace of the call has "; strings.Count(r.stderr, want) != 1 {
		t.Errorf("want %q once:\n%s", want, r.stderr)
	}
	if n, _ := compareVersions(t, dir, log.byStep(t)); n.wrong > 0 || n.unknown > 0 {
		t.Errorf("%+v tokens, want all known", n)
	}
}

// A claimed version is valid for one invocation. The next one has its own or none, and each shard
// records the source of its versions.
func TestVersionClaim(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, NoTraces: true})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 4, "--resume", "--samples", "2", "--limit")
	mustRun(t, exit.OK, append(args, "3", "--policy-version", "5")...)
	contains(t, mustRun(t, exit.OK, append(args, "5")...).stderr, "policy version 5 was claimed only for the previous invocation")
	mustRun(t, exit.OK, append(args, "8", "--policy-version", "6")...)
	count := map[string]int{}
	footersSay(t, dir, "flag")
	for _, rows := range readDataset(t, dir).rows {
		count[claimed(rows[0])]++
	}
	if want := map[string]int{"5 5": 3, "none": 2, "6 6": 3}; !maps.Equal(count, want) {
		t.Errorf("samples by version: %v, want %v", count, want)
	}
}

// Samples that an earlier process sent have no version in the next one, because the claim of that
// process is unknown.
func TestVersionTakenOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some 7 seconds of rollouts")
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: latencyOf(t, "300ms..2s")})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 12, "--resume", "--samples", "4", "--max-in-flight", "12", "--policy-version")
	p := startProgram(t, "rollout", nil, append(args, "5")...)
	waitFor(t, "a run in the middle", func() bool { return sim.Stats().Answered > 8 && sim.Stats().InFlight > 8 })
	p.kill()
	mustRun(t, exit.OK, append(args, "6")...)
	count := map[string]int{}
	for _, r := range readDataset(t, dir).allRows() {
		count[fmt.Sprintf("%s, taken over: %v", claimed(r), slices.Contains(r.Flags, tokenize.FlagReattached.String()))]++
	}
	if count["none, taken over: true"] == 0 || count["5 5, taken over: false"] == 0 || count["6 6, taken over: false"] == 0 || len(count) != 3 {
		t.Errorf("rows: %v, want some of 5 and of 6, and none of these but none where they were taken over", count)
	}
}

// streamHere runs collect --stream in this process. c controls it. end drains it and waits for its
// end.
func streamHere(t *testing.T, url, dir string, flags ...string) (c *ctl.Client, end func()) {
	t.Helper()
	stdin, _ := io.Pipe() // its end would end the whole process
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), append([]string{
			"collect", "--stream", "--attached", "--server", url, "--model", simModel,
			"--out", dir, "--preflight", "connect", "--quiet",
		}, flags...), stdin, io.Discard, t.Output(), func(string) string { return "" })
	}()
	waitFor(t, "the socket of "+dir, func() bool {
		var err error
		c, err = ctl.Dial(t.Context(), dir)
		return err == nil
	})
	t.Cleanup(func() { c.Close() })
	return c, func() {
		t.Helper()
		noError(t, c.Do(ctl.Request{Op: ctl.OpDrain}, nil))
		if got := <-code; got != exit.OK {
			t.Fatalf("exit code %d", got)
		}
	}
}

// claimed returns the versions of a row as text.
func claimed(r *sink.StoredRow) string {
	switch {
	case r.PolicyVersionMin != nil:
		return fmt.Sprint(*r.PolicyVersionMin, *r.PolicyVersionMax)
	case r.Versions != nil:
		return fmt.Sprint(r.Versions)
	}
	return "none"
}

// A row has version N if its send began and ended while N was set. It has no version if set-version
// was called in between, or not yet.
func TestSetVersionOfRows(t *testing.T) {
	t.Parallel()
	// Every message waits at the server until the test lets it pass.
	arrived, pass := make(chan struct{}, 16), make(chan struct{})
	sim := newSim(t, lettasim.Config{InputIDs: true, NoTraces: true})
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asks(r, onSend) {
			arrived <- struct{}{}
			select {
			case <-pass:
			case <-r.Context().Done():
				return
			}
		}
		sim.ServeHTTP(w, r)
	}))
	dir := filepath.Join(t.TempDir(), "run")
	c, end := streamHere(t, url, dir)
	set := func(version int32) { noError(t, c.Do(ctl.Request{Op: ctl.OpSetVersion, Version: &version}, nil)) }
	// send collects one sample and calls during while its message is at the server.
	send := func(task string, during func()) {
		t.Helper()
		noError(t, c.Do(ctl.Request{Op: ctl.OpTask, Task: fmt.Appendf(nil, `{"id":%q,"prompt":"What is 2+2?"}`, task)}, nil))
		<-arrived
		during()
		for {
			var s ctl.Status
			noError(t, c.Do(ctl.Request{Op: ctl.OpStatus}, &s))
			if s.Remaining == 0 {
				return
			}
			select {
			case pass <- struct{}{}:
			case <-arrived: // another message of the same sample
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	send("early", func() {})
	send("late", func() { set(1) })
	send("one", func() {})
	send("again", func() { set(1) }) // the same version
	send("over", func() { set(2) })
	send("back", func() { set(1); set(2) })
	send("two", func() {})
	end()
	got := map[string]string{}
	for id, rows := range readDataset(t, dir).rows {
		got[id.task] = claimed(rows[0])
	}
	want := map[string]string{"early": "none", "late": "none", "one": "1 1", "again": "1 1", "over": "none", "back": "none", "two": "2 2"}
	if !maps.Equal(got, want) {
		t.Errorf("the rows have versions %v, want %v", got, want)
	}
	if info, err := runfolder.Read(dir); err != nil || info.VersionsSource() != "set-version" {
		t.Errorf("the run's versions come of %q, %v", info.VersionsSource(), err)
	}
}

// Versions of a page pace a run like set-version does. A late page never lowers a version that the
// trainer set.
func TestPagePaces(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true}))
	var says, asked atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, says.Load())
		asked.Add(1)
	}))
	defer page.Close()
	says.Store(3)
	dir := filepath.Join(t.TempDir(), "run")
	c, end := streamHere(t, url, dir, "--policy-version", page.URL, "--one-engine", "--max-lag", "1")
	version := func() (v int32) {
		t.Helper()
		var s ctl.Status
		noError(t, c.Do(ctl.Request{Op: ctl.OpStatus}, &s))
		if v = -1; s.Version != nil {
			v = *s.Version
		}
		return v
	}
	waitFor(t, "version 3", func() bool { return version() == 3 })
	says.Store(4)
	waitFor(t, "version 4", func() bool { return version() == 4 })
	noError(t, c.Do(ctl.Request{Op: ctl.OpSetVersion, Version: new(int32(9))}, nil))
	says.Store(5)
	before := asked.Load()
	waitFor(t, "requests for the page", func() bool { return asked.Load() > before+2 }) // the first answer of 5 was handled
	if v := version(); v != 9 {
		t.Errorf("the version is %d after the page came late, want 9", v)
	}
	end()
	if info, err := runfolder.Read(dir); err != nil || info.VersionsSource() != "trace,url" {
		t.Errorf("the run's versions come of %q, %v", info.VersionsSource(), err)
	}
}

// With --unclaimed, a claimed version is ignored, because the trainer gave an earlier process
// another. A page of versions is still used.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, NoTraces: true}))
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, 6) }))
	defer page.Close()
	dir := filepath.Join(t.TempDir(), "run")
	for _, test := range []struct {
		claimed, want string
		flags         []string
	}{
		{"5", "5 5", nil},
		{"5", "none", []string{"--unclaimed"}},
		{page.URL, "6 6", []string{"--unclaimed", "--one-engine"}},
	} {
		c, end := streamHere(t, url, dir, append(test.flags, "--resume", "--policy-version", test.claimed)...)
		noError(t, c.Do(ctl.Request{Op: ctl.OpTask, Task: fmt.Appendf(nil, `{"id":%q,"prompt":"What is 2+2?"}`, test.want)}, nil))
		end()
	}
	for id, rows := range readDataset(t, dir).rows {
		if got := claimed(rows[0]); got != id.task {
			t.Errorf("the version of task %s is %s", id.task, got)
		}
	}
}
