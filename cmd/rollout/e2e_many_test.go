package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
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
	lettasim.Abort:           "aborted", // of the tasks that it is aimed at
	lettasim.AbortEarly:      "aborted",
	lettasim.NaNLogprob:      "",
	lettasim.SurplusLogprobs: "",
}

// shortFaults are faults that do not hit a second attempt and are short.
var shortFaults = []lettasim.FaultKind{
	lettasim.EngineDown, lettasim.DatabaseFull, lettasim.Unavailable, lettasim.Reset, lettasim.Drop, lettasim.Truncated,
	lettasim.CreateFails, lettasim.DeleteFails,
}

// lateRemoval matches a message about an agent whose removal timed out, which happens on a loaded
// machine. The end of the run removes such agents.
var lateRemoval = regexp.MustCompile(`(?m)^rollout: the agent of .* could not be removed: .*deadline exceeded; .*\n`)

// 2,000 samples with 512 in flight survive a server with all kinds of faults. Output that the engine
// aborted is not data, even if the server reports the end of a turn. Not parallel, because it counts
// goroutines.
func TestManySamples(t *testing.T) {
	tasks, samples, inFlight := 250, 8, 512
	if testing.Short() {
		tasks, inFlight = 50, 100
	}
	total := tasks * samples
	before := goleak.IgnoreCurrent()

	cfg := lettasim.Config{InputIDs: true, KeepAnswers: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 4}, Drift: 0.3, Length: 0.05}}
	cfg.Latency = latencyOf(t, "500ms..1s")
	for kind, task := range map[lettasim.FaultKind]string{lettasim.Abort: "scripted-0002", lettasim.AbortEarly: "scripted-0004"} {
		cfg.Faults = append(cfg.Faults, lettasim.Fault{Kind: kind, Aim: []lettasim.Aim{{Task: task, Sample: -1}}, Attempts: 99})
	}
	for _, kind := range slices.Concat(shortFaults, []lettasim.FaultKind{lettasim.TooMany, lettasim.Conflict, lettasim.Stalled}, slices.Sorted(maps.Keys(finalFaults))) {
		f := lettasim.Fault{Kind: kind, Rate: 0.01}
		if kind == lettasim.Conflict {
			f.After = time.Second // a conflict without a delay is a refusal
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	sim := newSim(t, cfg)
	config := writeFile(t, "run.yaml", []byte("server: {idle_timeout: 5s, adaptive: false}\noutput: {shard_age: 1s}\nrun: {retries: 3, fail_on_error: 50%}\n"))

	// The first answers wait until nearly the maximum is in flight, however slowly the machine
	// starts the samples.
	most := int64(inFlight) * 3 / 4
	crowded, crowd := context.WithTimeout(t.Context(), 2*time.Minute)
	defer crowd()
	gathering := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case asks(r, onCreate):
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"attempt":1,`)) && bytes.Contains(body, []byte(`"scripted-0006"`)) {
				sim.ServeHTTP(httptest.NewRecorder(), r) // the answer is lost, and the agent exists with an unknown id
				panic(http.ErrAbortHandler)
			}
		case asks(r, onSend) && sim.Stats().AgentsAlive > 8: // the trial call does not wait
			<-crowded.Done()
		}
		sim.ServeHTTP(w, r)
	})

	alive, dir := int64(0), filepath.Join(t.TempDir(), "run")
	t.Run("collect", func(t *testing.T) { // its end stops the server
		_, args := collectArgs(t, sim, serveHandler(t, sim, gathering), tasks, "-c", config, "--out", dir,
			"--samples", fmt.Sprint(samples), "--max-in-flight", fmt.Sprint(inFlight), "--quiet")
		done := make(chan ran, 1)
		go func() { done <- invoke(t.Context(), args...) }()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case r := <-done:
				tick.Stop()
				if r.code != exit.Failures || lateRemoval.ReplaceAllString(r.stderr, "") != "" {
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
	keys := got.once(t)
	if len(keys) != total {
		t.Errorf("%d samples in the commit log, want %d", len(keys), total)
	}
	if got.commits() < 3 {
		t.Errorf("%d commits: too few", got.commits())
	}

	var written struct {
		Last show.Summary `json:"last_invocation"`
	}
	readReport(t, dir, &written)
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
		if a.Fault == lettasim.Abort && (f.Attempt < 2 || f.Status != "error" || len(f.OutputIDs) == 0 || !strings.Contains(f.Error, "aborted a call")) {
			t.Errorf("%v: status %s, attempt %d, %d tokens: %s", id, f.Status, f.Attempt, len(f.OutputIDs), f.Error)
		}
		if f.Class != want {
			t.Errorf("%v failed with %s (%s), want %s after fault %q", id, f.Class, f.Error, want, a.Fault)
		}
	}
	if compared < total/2 || forked < total/20 {
		t.Errorf("%d samples were compared, %d have several rows: too few", compared, forked)
	}
	t.Logf("%d samples: %d attempts, %d commits, %d rows, failures %v, %.1fs", total, report.Attempts, got.commits(), report.Rows, classes, report.Seconds)
}

// recoverableFaults returns shortFaults.
func recoverableFaults(rate float64) lettasim.Faults {
	var faults lettasim.Faults
	for _, kind := range shortFaults {
		faults = append(faults, lettasim.Fault{Kind: kind, Rate: rate})
	}
	return faults
}

// faultsOf returns how many faults a server has had.
func faultsOf(sim *lettasim.Server) (n int) {
	for _, times := range sim.Stats().Faults {
		n += int(times)
	}
	return n
}

// metamorphicScript returns a script with everything that varies rows: several calls, forks,
// truncation, wrong answers.
func metamorphicScript() lettasim.Script {
	return lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 4}, Drift: 0.3, Length: 0.1, Wrong: 0.3}
}

// The same samples give the same rows whatever the number in flight, the format, the shard size, the
// faults, and the number of partitions and workers of a fleet. This holds because the server's answers depend
// only on the task and the sample. TestKillAtSteps adds crashes.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	const tasks, samples = 8, 3
	inFlight := []int{1, 8, 64}
	if testing.Short() {
		inFlight = []int{8}
	}
	type variant struct {
		faults       bool
		format, size string
		inFlight     int
		partitions   int // of a fleet in a bucket; 0: a run in a folder
		workers      int // of the fleet
	}
	var variants []variant
	for _, faults := range []bool{false, true} {
		for _, format := range []string{"parquet", "arrow"} {
			for _, size := range []string{"4KiB", "256MiB"} {
				for _, n := range inFlight {
					variants = append(variants, variant{faults, format, size, n, 0, 0})
				}
			}
		}
	}
	variants = append(variants, variant{false, "parquet", "256MiB", 8, 1, 1}, variant{true, "arrow", "4KiB", 4, 5, 2}, variant{true, "parquet", "256MiB", 4, 16, 3})
	collect := func(t *testing.T, v variant) map[sampleID]string {
		t.Helper()
		cfg := lettasim.Config{InputIDs: true, Script: metamorphicScript()}
		if v.faults {
			cfg.Faults = recoverableFaults(0.05)
		}
		sim := newSim(t, cfg)
		dir, args := collectArgs(t, sim, serveSim(t, sim), tasks,
			"--resume", "--quiet", "--samples", fmt.Sprint(samples), "--max-in-flight", fmt.Sprint(v.inFlight), "--format", v.format, "--reward", "number", "--retries", "6", "-c", writeFile(t, "run.yaml", []byte("output: {messages: true, shard_bytes: "+v.size+"}\n")))
		var d *readBack
		if v.partitions > 0 {
			b := newBucket(t)
			b.work(t, v.workers, b.plan(t, v.partitions, args...)...)
			mustRun(t, exit.OK, "verify", b.at)
			d = readLogs(t, b.logs(t)...)
		} else {
			mustRun(t, exit.OK, args...)
			d = verified(t, dir)
		}
		d.once(t)
		if hit := faultsOf(sim); v.faults != (hit > 3) {
			t.Errorf("%d faults: the test has lost its teeth", hit)
		}
		if commits := d.commits(); v.size == "4KiB" && commits < 2 || v.size != "4KiB" && commits > max(v.partitions, 1) {
			t.Errorf("%d commits with shards of %s", commits, v.size)
		}
		return d.logical(t)
	}
	// The other variants are compared with the first one.
	want := collect(t, variants[0])
	if len(want) != tasks*samples {
		t.Fatalf("%d samples, want %d", len(want), tasks*samples)
	}
	for _, v := range variants[1:] {
		t.Run(fmt.Sprintf("%+v", v), func(t *testing.T) {
			t.Parallel()
			sameSamples(t, collect(t, v), want)
		})
	}
}

// Lost answers fail no sample. Every tenth reply is cut and every twentieth has a wrong length, and
// the server keeps no prompts besides its answers. If rows must be exact, their rollouts are
// repeated; otherwise rows of a lower grade are written and counted.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		recorded bool // with a tokenizer
		args     []string
		remade   string // for this reason; empty: not
		grade    tokenize.Grade
	}{
		{"no tokenizer", false, nil, "no_prompt", tokenize.Exact},
		{"exact rows are required", true, []string{"--require", "exact"}, "grade", tokenize.Exact},
		{"rebuilt ones will do", true, nil, "", tokenize.CountVerified},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const tasks, samples = 20, 10
			sim := newSim(t, lettasim.Config{InputIDs: true, BareTraces: true, Script: killScript(), Faults: lettasim.Faults{
				{Kind: lettasim.Drop, Rate: 0.1}, {Kind: lettasim.Truncated, Rate: 0.05},
			}})
			lines := sim.Tasks(lettasim.TaskOptions{Scripted: tasks})
			if tt.recorded {
				lines = recordedTasks(t, sim, tasks)
				tt.args = append(tt.args, "--tokenizer", qwen3Dir)
			}
			dir, args := collectTasks(t, serveSim(t, sim), lines, append(tt.args, "--samples", fmt.Sprint(samples), "--preflight", "connect")...)
			r := mustRun(t, exit.OK, args...)
			got, lost := verified(t, dir), faultsOf(sim)
			if got.has(t, tasks*samples, 0); lost < tasks*samples/20 {
				t.Errorf("%d answers were lost: the test has lost its teeth", lost)
			}
			lesser := 0
			for _, row := range got.allRows() {
				if row.Verification != tokenize.Exact.String() {
					lesser++
				}
			}
			if (lesser > 0) != (tt.grade != tokenize.Exact) {
				t.Errorf("%d rows are not exact", lesser)
			}

			var report struct {
				Proof struct{ Downgraded int } `json:"verification"`
				Last  struct {
					Remade        map[string]show.RolloutCount
					Kept          show.RolloutCount
					Downgraded    int            `json:"downgraded_rows"`
					FailedByClass map[string]int `json:"failed_by_class"`
				} `json:"last_invocation"`
			}
			readReport(t, dir, &report)
			last := report.Last
			if last.Downgraded != lesser || report.Proof.Downgraded != lesser {
				t.Errorf("%d rows are less than exact; the run counts %d, its report %d", lesser, last.Downgraded, report.Proof.Downgraded)
			}
			if last.Kept.N != tasks*samples || last.Kept.Mean <= 0 {
				t.Errorf("kept: %+v", last.Kept)
			}
			again := last.Remade[tt.remade]
			if tt.remade == "" && len(last.Remade) > 0 || tt.remade != "" && (again.N != lost || again.Timed != lost || len(last.Remade) != 1) {
				t.Errorf("%d answers were lost; made again: %+v", lost, last.Remade)
			}
			for text, want := range map[string]bool{
				fmt.Sprintf("%d rollouts in progress were lost and collected again: %s %d (mean ", lost, tt.remade, lost): tt.remade != "",
				fmt.Sprintf("%d rows are not exact because their replies were lost", lesser):                              lesser > 0,
			} {
				if strings.Contains(r.stderr, text) != want {
					t.Errorf("%q is reported: %v, want %v\n%s", text, !want, want, r.stderr)
				}
			}
		})
	}
}
