package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// finalFaults maps faults that hit every attempt at a sample to the class of its failure. The class
// is empty if the sample is still data.
var finalFaults = map[lettasim.FaultKind]string{
	lettasim.NullCall:        "malformed_call",
	lettasim.NoTurns:         "no_turns",
	lettasim.EmptyTurn:       "token_mismatch",
	lettasim.NullLogprobs:    "token_mismatch",
	lettasim.ShortLogprobs:   "token_mismatch",
	lettasim.IDMismatch:      "token_mismatch",
	lettasim.WideID:          "decode",
	lettasim.StopError:       "agent_error",
	lettasim.StopCancelled:   "agent_error",
	lettasim.StopUnknown:     "agent_error",
	lettasim.NaNLogprob:      "",
	lettasim.SurplusLogprobs: "",
}

// passingFaults are faults that do not hit a second attempt.
var passingFaults = []lettasim.FaultKind{
	lettasim.EngineDown, lettasim.DatabaseFull, lettasim.Unavailable, lettasim.TooMany, lettasim.Conflict, lettasim.Reset,
	lettasim.Drop, lettasim.Truncated, lettasim.Stalled, lettasim.CreateFails, lettasim.DeleteFails,
}

// 2,000 samples with 512 in flight survive a server with all kinds of faults. Not parallel, because
// it counts goroutines.
func TestManySamples(t *testing.T) {
	tasks, samples, inFlight := 250, 8, 512
	if testing.Short() {
		tasks, inFlight = 50, 100
	}
	total := tasks * samples
	before := goleak.IgnoreCurrent()

	cfg := lettasim.Config{InputIDs: true, KeepAnswers: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 4}, Drift: 0.3, Length: 0.05}}
	cfg.Latency = latencyOf(t, "500ms..1s")
	for _, kind := range slices.Concat(passingFaults, slices.Sorted(maps.Keys(finalFaults))) {
		f := lettasim.Fault{Kind: kind, Rate: 0.01}
		if kind == lettasim.Conflict {
			f.After = time.Second // a conflict without a delay is a refusal
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	sim := newSim(t, cfg)
	taskFile := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks}))
	config := writeFile(t, "run.yaml", []byte("server: {idle_timeout: 5s, adaptive: false}\noutput: {shard_age: 1s}\nrun: {retries: 3, fail_on_error: 50%}\n"))
	dir := filepath.Join(t.TempDir(), "run")

	// The first answers wait until nearly the maximum is in flight, however slowly the machine
	// starts the samples.
	most := int64(inFlight) * 3 / 4
	crowded, crowd := context.WithTimeout(t.Context(), 2*time.Minute)
	defer crowd()
	gathering := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") && sim.Stats().AgentsAlive > 8 { // the trial call does not wait
			<-crowded.Done()
		}
		sim.ServeHTTP(w, r)
	})

	alive := int64(0)
	t.Run("collect", func(t *testing.T) { // its end stops the server
		url := serveHandler(t, sim, gathering)
		done := make(chan ran, 1)
		go func() {
			done <- invoke(t.Context(), "collect", "-c", config, "--server", url, "--model", simModel, "--tasks", taskFile, "--out", dir,
				"--samples", fmt.Sprint(samples), "--max-in-flight", fmt.Sprint(inFlight), "--quiet")
		}()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case r := <-done:
				tick.Stop()
				if r.code != exit.Failures || withoutLateRemovals(r.stderr) != "" {
					t.Fatalf("exit code %d, want %d\n%s", r.code, exit.Failures, r.stderr)
				}
				return
			case <-tick.C:
				if alive = max(alive, sim.Stats().AgentsAlive); alive >= most {
					crowd()
				}
			}
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Errorf("goroutines are left: %v", err)
	}
	if s := sim.Stats(); s.AgentsAlive != 0 || s.MaxInFlight > int64(inFlight) || alive < most {
		t.Errorf("%d agents remain; at most %d were seen alive and %d sends in flight, want none left and nearly %d", s.AgentsAlive, alive, s.MaxInFlight, inFlight)
	}
	for kind, n := range sim.Stats().Faults {
		if n == 0 && !testing.Short() {
			t.Errorf("no fault %s: the test has lost its teeth", kind)
		}
	}
	checkMany(t, sim, dir, total)
}

func checkMany(t *testing.T, sim *lettasim.Server, dir string, total int) {
	t.Helper()
	if r := mustRun(t, exit.OK, "verify", dir); strings.Contains(r.stderr, "named by no commit") {
		t.Errorf("orphans are left: %s", r.stderr)
	}
	got := readDataset(t, dir)
	keys := got.keys()
	if len(keys) != total {
		t.Errorf("%d samples in the commit log, want %d", len(keys), total)
	}
	for key, n := range keys {
		if n != 1 {
			t.Errorf("sample %s is in the commit log %d times", key, n)
		}
	}
	if len(got.log.Commits) < 3 {
		t.Errorf("%d commits: too few", len(got.log.Commits))
	}

	var written struct {
		Last show.Summary `json:"last_invocation"`
	}
	b, err := os.ReadFile(filepath.Join(dir, runfolder.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &written); err != nil {
		t.Fatal(err)
	}
	report := written.Last
	classes := map[string]int{}
	for id, failures := range got.failures {
		if len(failures) != 1 || len(got.rows[id]) > 0 {
			t.Errorf("%v: %d failures and %d rows", id, len(failures), len(got.rows[id]))
		}
		classes[failures[0].Class]++
	}
	if report.Planned != total || report.Committed+report.Failed+report.Skipped+report.Remaining != total || report.Remaining != 0 || report.Skipped != 0 ||
		report.Failed != len(got.failures) || report.Committed != len(got.rows) || !maps.Equal(report.FailedByClass, classes) || report.AgentsLeft != 0 {
		t.Errorf("the report does not add up: %+v; %d samples have rows, failures are %v", report, len(got.rows), classes)
	}
	if report.Retries == 0 || report.Attempts != total+report.Retries {
		t.Errorf("%d attempts, %d retries for %d samples", report.Attempts, report.Retries, total)
	}

	type attempt struct {
		sampleID
		n int
	}
	answers := map[attempt]lettasim.Answer{}
	for _, a := range sim.Answers() {
		answers[attempt{sampleID{a.Task, int32(a.Sample)}, a.Attempt}] = a
	}
	compared, forked := 0, 0
	for id, rows := range got.rows {
		a, ok := answers[attempt{id, int(rows[0].Attempt)}]
		if class, final := finalFaults[a.Fault]; !ok || final && class != "" {
			t.Errorf("%v is data, the server answered with fault %q", id, a.Fault)
		}
		if len(rows) > 1 {
			forked++
		}
		if a.Fault != "" {
			continue // the output differs from the answer
		}
		var d lettasim.Digest
		for _, r := range rows {
			for k, role := range r.TurnRoles {
				if role != roleAssistant {
					continue
				}
				lo, hi := r.TurnOffsets[k], r.TurnOffsets[k+1]
				lps := slices.Clone(r.Logprobs[lo:hi])
				for i := range lps {
					if r.LossMask[int(lo)+i] == 0 {
						lps[i] = float32(math.NaN())
					}
				}
				d.Append(r.InputIDs[lo:hi], lps)
			}
		}
		if d.String() != a.Digest {
			t.Errorf("%v: the sampled tokens are not those of the answer", id)
		}
		compared++
	}
	for id, failures := range got.failures {
		f := failures[0]
		a, ok := answers[attempt{id, int(f.Attempt)}]
		want := finalFaults[a.Fault]
		if !ok {
			want = finalFaults[lettasim.NullCall] // the fault without an answer
		}
		if f.Class != want {
			t.Errorf("%v failed with %s (%s), want %s after fault %q", id, f.Class, f.Error, want, a.Fault)
		}
	}
	if compared < total/2 || forked < total/20 {
		t.Errorf("%d samples were compared, %d have several rows: too few", compared, forked)
	}
	t.Logf("%d samples: %d attempts, %d commits, %d rows, failures %v, %.1fs", total, report.Attempts, len(got.log.Commits), report.Rows, classes, report.Seconds)
}
