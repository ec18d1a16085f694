package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
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
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		out[line.StepID] = line.Version
	}
	return out
}

// A versionCount counts the sampled tokens of a run by the state of their version.
type versionCount struct{ known, unknown, wrong int }

func compareVersions(t *testing.T, dir string, truth map[string]int32) (n versionCount, seen map[int32]bool) {
	t.Helper()
	seen = map[int32]bool{}
	for _, rows := range readDataset(t, dir).rows {
		for _, r := range rows {
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
// the simulator's log or is unknown.
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
	}{
		{name: "url", weights: "every=2s", noTraces: true, page: "/model_info", args: both, least: 0.15, most: 0.99},
		{name: "url and traces", weights: "every=700ms", page: "", args: both, least: 0.99, most: 1, long: true},
		{name: "by calls", weights: "every=150", noTraces: true, page: "/get_model_info", args: both, least: 0.01, most: 0.99, long: true},
		{name: "faults", weights: "every=2s", noTraces: true, page: "/", args: both, faults: true, least: 0.1, most: 0.99, long: true},
		{name: "killed", weights: "every=2s", noTraces: true, page: "/model_info", args: both, kills: 3, least: 0.02, most: 0.99},
		{name: "killed, faults and traces", weights: "every=500ms", page: "/model_info", args: both, kills: 2, faults: true, least: 0.6, most: 1, long: true},
		{name: "arrow", weights: "every=2s", noTraces: true, page: "/model_info", args: []string{"--one-engine", "--format", "arrow"}, least: 0.15, most: 0.99, long: true},
		{name: "a page that is late", weights: "every=1s,lag=150ms", noTraces: true, page: "/model_info", args: both, least: 0.01, most: 0.99, long: true},
		{name: "a page that is early", weights: "every=1s,lag=-150ms", noTraces: true, page: "/model_info", args: both, least: 0.01, most: 0.99, long: true},
		{name: "two engines", weights: "every=700ms,engines=2", noTraces: true, page: "/model_info", most: 0, notice: "proves no version without --one-engine"},
		{name: "two engines with traces", weights: "every=700ms,engines=2", page: "/model_info", least: 0.99, most: 1, notice: "proves no version without --one-engine", long: true},
		{name: "a number that falls", weights: "every=1s,fall=4", noTraces: true, page: "/model_info", args: both, most: 0.95, notice: "fell from 4 to 1", samples: 10, long: true},
		{name: "traces of all calls", weights: "every=500ms,engines=2", page: "trace", least: 0.99, most: 1},
		{name: "traces of all calls, and there are none", weights: "every=700ms", noTraces: true, page: "trace", most: 0, long: true},
		{name: "traces of all calls, killed", weights: "every=500ms", page: "trace", kills: 2, faults: true, least: 0.95, most: 1, long: true},
		{name: "words", weights: "every=700ms,words", page: "/model_info", args: both, most: 0, notice: `returned "default", not a number`},
		{name: "no page", weights: "every=700ms", most: 0, long: true},
	} {
		if v.long && testing.Short() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			var log truth
			cfg := lettasim.Config{InputIDs: true, NoTraces: v.noTraces, Script: metamorphicScript()}
			var err error
			if cfg.Weights, err = lettasim.ParseWeights(v.weights); err != nil {
				t.Fatal(err)
			}
			cfg.Latency = latencyOf(t, "50ms..400ms")
			cfg.Weights.Log = &log
			if v.faults {
				cfg.Faults = recoverableFaults(0.03)
			}
			sim := newSim(t, cfg)
			url := serveSim(t, sim)
			dir := filepath.Join(t.TempDir(), "run")
			args := []string{
				"collect", "--resume", "--server", url, "--model", simModel, "--out", dir, "--max-in-flight", "24", "--samples", fmt.Sprint(cmp.Or(v.samples, 6)), "--retries", "6",
				"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 30})),
				"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_age: 1s}\n")),
			}
			asks := v.page != "" || len(v.args) > 0
			if v.page == "trace" {
				args = append(args, "--policy-version", v.page)
			} else if asks {
				args = append(args, "--policy-version", url+v.page)
			}
			args = append(args, v.args...)
			began := time.Now()
			for n := range v.kills {
				p := start(t, args...)
				waitFor(t, "commits", func() bool {
					commits, _ := filepath.Glob(filepath.Join(dir, "_commits", "0*.json"))
					return len(commits) > n && sim.Stats().InFlight > 4
				})
				if err := p.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = p.Wait() // it was killed
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
			share := float64(n.known) / float64(n.known+n.unknown+n.wrong)
			t.Logf("%d tokens with their version, %d unknown (%.1f%% known), versions seen: %d", n.known, n.unknown, 100*share, len(seen))
			if n.wrong > 0 {
				t.Errorf("%d tokens have another version than the one that sampled them", n.wrong)
			}
			if share < v.least || share > v.most {
				t.Errorf("%.3f of the tokens have a version, want %v to %v", share, v.least, v.most)
			}
			if v.least > 0 && len(seen) < 2 {
				t.Errorf("the data has versions %v: the test has lost its teeth", seen)
			}
			// Words instead of numbers are reported twice: for the page and for the traces.
			if strings.Count(r.stderr, "policy version: ") > 2 || !strings.Contains(r.stderr, v.notice) {
				t.Errorf("want %q among two notices at most:\n%s", v.notice, r.stderr)
			}
			if asked := sim.Stats().Requests["GET /model_info"] + sim.Stats().Requests["GET /get_model_info"]; asked > int64(4*took.Seconds())+int64(4*(1+v.kills)) {
				t.Errorf("%d requests for the page in %v, want at most four per second", asked, took)
			}
		})
	}
}

func footersSay(t *testing.T, dir, want string) {
	t.Helper()
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
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
	page := serve(t, &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "1000000")
	})})
	dir := filepath.Join(t.TempDir(), "run")
	r := mustRun(t, exit.OK, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--samples", "20", "--max-in-flight", "1",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 5})), "--policy-version", page, "--one-engine")
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
	dir := filepath.Join(t.TempDir(), "run")
	args := func(more ...string) []string {
		return append([]string{
			"collect", "--resume", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--samples", "2",
			"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4})),
		}, more...)
	}
	mustRun(t, exit.OK, args("--limit", "3", "--policy-version", "5")...)
	if r := mustRun(t, exit.OK, args("--limit", "5")...); !strings.Contains(r.stderr, "policy version 5 was claimed for the last invocation only") {
		t.Errorf("no message about the end of the claim:\n%s", r.stderr)
	}
	mustRun(t, exit.OK, args("--limit", "8", "--policy-version", "6")...)
	count := map[string]int{}
	footersSay(t, dir, "flag")
	for _, rows := range readDataset(t, dir).rows {
		key := "null"
		if v := rows[0].PolicyVersionMin; v != nil {
			key = fmt.Sprint(*v)
		}
		count[key]++
	}
	if count["5"] != 3 || count["null"] != 2 || count["6"] != 3 {
		t.Errorf("samples by version: %v, want 3 of 5, 2 of null, 3 of 6", count)
	}
}

// Samples that an earlier process sent have no version in the next one, because the claim of that
// process is unknown.
func TestVersionTakenOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some 7 seconds of rollouts")
	}
	cfg := lettasim.Config{InputIDs: true}
	cfg.Latency = latencyOf(t, "300ms..2s")
	sim := newSim(t, cfg)
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"collect", "--resume", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--samples", "4", "--max-in-flight", "12",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 12})), "--policy-version",
	}
	p := start(t, append(args, "5")...)
	waitFor(t, "a run in the middle", func() bool { return sim.Stats().Answered > 8 && sim.Stats().InFlight > 8 })
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed
	mustRun(t, exit.OK, append(args, "6")...)
	count := map[string]int{}
	for _, rows := range readDataset(t, dir).rows {
		for _, r := range rows {
			taken, version := slices.Contains(r.Flags, tokenize.FlagReattached.String()), "null"
			if r.PolicyVersionMin != nil {
				version = fmt.Sprint(*r.PolicyVersionMin)
			}
			count[fmt.Sprintf("%s, taken over: %v", version, taken)]++
		}
	}
	if count["null, taken over: true"] == 0 || count["5, taken over: false"] == 0 || count["6, taken over: false"] == 0 || len(count) != 3 {
		t.Errorf("rows: %v, want some of 5 and of 6, and none of these but null where they were taken over", count)
	}
}

// Secrets in the URL of the version page are in no file and no output.
func TestVersionSecret(t *testing.T) {
	sim := newSim(t, lettasim.Config{InputIDs: true, NoTraces: true})
	url := serveSim(t, sim)
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"collect", "--server", url, "--model", simModel, "--out", dir, "--one-engine",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2})),
	}
	const secret = "hunter2"
	page := url + "/model_info?token=" + secret
	if r := mustRun(t, exit.Usage, append(args, "--policy-version", page)...); strings.Contains(r.stderr, secret) || !strings.Contains(r.stderr, "use a reference") {
		t.Errorf("a secret on the command line:\n%s", r.stderr)
	}
	file := writeFile(t, "page", []byte(page+"\n"))
	r := mustRun(t, exit.OK, append(args, "--policy-version", "${file:"+file+"}")...)
	if strings.Contains(r.stdout+r.stderr, secret) || !strings.Contains(r.stderr, "policy version: "+url+" returned") {
		t.Errorf("printed:\n%s%s", r.stdout, r.stderr)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if bytes.Contains(body, []byte(secret)) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
