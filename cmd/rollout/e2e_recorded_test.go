package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

type wantedFailure struct {
	class, reason, stage, status, stop string
	attempts                           int32
	sends                              int // of each attempt, answered or not
	tokens                             int
}

var recordedFailures = map[string]wantedFailure{
	// The engine answered 500. The response to the send says nothing more, but the server run does.
	"http-500": {class: "unavailable", stage: "run", status: "error", attempts: 2, sends: 1},
	// The model's call has null arguments, and the server aborted the rollout.
	"tool-null-args": {class: "malformed_call", stage: "run", status: "error", attempts: 1, sends: 1},
	// Only one of the two token flags was sent in this recording.
	"logprobs-only": {class: "no_turns", reason: "no_turns", stage: "run", status: "error", stop: "end_turn", attempts: 1, sends: 1},
	// No client approves, so the recorded second send, which the server refuses, is never made.
	"approval-pending": {class: "agent_error", stage: "run", status: "error", stop: "requires_approval", attempts: 1, sends: 1, tokens: 19},
	"bad-body":         {class: "bad_request", stage: "run", status: "error", attempts: 1, sends: 1},
	"unknown-agent":    {class: "bad_request", stage: "run", status: "error", attempts: 1, sends: 1},
	// Without the client tool in the configuration its call stays open. TestRecordedClientTool
	// configures it.
	"client-tool-return": {class: "agent_error", stage: "run", status: "error", stop: "requires_approval", attempts: 1, sends: 1, tokens: 26},
}

// recordedForks lists the calls that fork in each recording. It is written out to detect two
// implementations that both miss a fork.
var recordedForks = map[string]string{
	"approval": "1", "compaction": "1", "conversation": "1 2", "large": "1", "multi": "1 2 3", "sixteen": "1 4 7 10 13",
	"tool-args-compact": "1", "tool-args-numbers": "1", "tool-malformed": "1", "tool-parallel-dropped": "1", "tool-split": "1",
	"tool-text": "1", "tool-think-two": "1 2",
}

// A sendCounter is a server that counts the sends by their request id.
type sendCounter struct {
	http.Handler
	mu    sync.Mutex
	sends map[string]int // by key/attempt
}

func (c *sendCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
		c.mu.Lock()
		c.sends[r.Header.Get("x-api-request-log-id")]++
		c.mu.Unlock()
	}
	c.Handler.ServeHTTP(w, r)
}

func countSends(t *testing.T, sim *lettasim.Server) (c *sendCounter, url string) {
	t.Helper()
	c = &sendCounter{Handler: sim, sends: map[string]int{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, s.URL
}

// Every recorded exchange, collected from a server that sends prompt ids, gives the tokens and
// log-probabilities that the engine saw and answered in the recording, bit for bit.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	const samples = 2
	all := recordings(t)
	for _, format := range []string{"parquet", "arrow"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true})
			counter, url := countSends(t, sim)
			tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true}))
			dir := filepath.Join(t.TempDir(), "run")
			mustRun(t, exit.Failures, "collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", dir,
				"--format", format, "--samples", fmt.Sprint(samples), "--retries", "1", "--fail-on-error", "50%", "--quiet")
			mustRun(t, exit.OK, "verify", dir)
			got := readDataset(t, dir)
			for shard := range got.log.Shards(sink.KindData) {
				if shard.Format.String() != format {
					t.Errorf("shard %s has format %s", shard.Path, shard.Format)
				}
			}
			if n := len(got.rows) + len(got.failures); n != samples*len(all) {
				t.Errorf("%d samples came back, want %d", n, samples*len(all))
			}
			forks := map[string]string{}
			for _, rec := range all {
				for index := range int32(samples) {
					id := sampleID{rec.name, index}
					if want, failed := recordedFailures[rec.name]; failed {
						checkFailure(t, rec, want, id, got, counter)
						continue
					}
					want := rec.want(t, false)
					checkSample(t, want, id, got, counter)
					var calls []string
					for i := range want.rows {
						if k := want.rows[i].forkCall; k >= 0 {
							calls = append(calls, fmt.Sprint(k))
						}
					}
					if calls != nil {
						forks[rec.name] = strings.Join(calls, " ")
					}
				}
			}
			if !maps.Equal(forks, recordedForks) {
				t.Errorf("the recordings fork at %v, want %v", forks, recordedForks)
			}
			for key, n := range got.keys() {
				if n != 1 {
					t.Errorf("sample %s is in the commit log %d times", key, n)
				}
			}
			if s := sim.Stats(); s.AgentsAlive != 0 {
				t.Errorf("%d agents remain on the server", s.AgentsAlive)
			}
		})
	}
}

func checkSample(t *testing.T, want *wanted, id sampleID, got *readBack, counter *sendCounter) {
	t.Helper()
	rows := got.rows[id]
	if len(got.failures[id]) > 0 || len(rows) != len(want.rows) {
		t.Errorf("%v: %d rows and %d failures, want %d rows", id, len(rows), len(got.failures[id]), len(want.rows))
		return
	}
	trained := 0
	for i, r := range rows {
		w := &want.rows[i]
		bad := func(what string, got, want any) {
			t.Helper()
			t.Errorf("%v row %d: %s = %v, want %v", id, i, what, got, want)
		}
		same := func(what string, equal bool) {
			t.Helper()
			if !equal {
				t.Errorf("%v row %d: %s differ", id, i, what)
			}
		}
		same("input_ids", slices.Equal(r.InputIDs, w.ids))
		same("loss_mask", slices.Equal(r.LossMask, w.mask))
		same("logprobs", slices.EqualFunc(r.Logprobs, w.logprobs, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }))
		same("turn_offsets", slices.Equal(r.TurnOffsets, w.offsets))
		same("turn_roles", slices.Equal(r.TurnRoles, w.roles))
		for _, m := range r.LossMask {
			trained += int(m)
		}
		if r.Versions != nil {
			bad("versions", r.Versions, "null")
		}
		if r.PromptLength != w.offsets[1] {
			bad("prompt_length", r.PromptLength, w.offsets[1])
		}
		if r.SegmentIndex != int32(i) || r.SegmentCount != int32(len(want.rows)) {
			bad("segment", fmt.Sprint(r.SegmentIndex, "/", r.SegmentCount), fmt.Sprint(i, "/", len(want.rows)))
		}
		if r.Unscored != w.unscored || r.Trimmed != 0 {
			bad("n_unscored, n_trimmed", fmt.Sprint(r.Unscored, r.Trimmed), fmt.Sprint(w.unscored, 0))
		}
		if r.Verification != "exact" || r.PromptSource != "turns" {
			bad("grade", r.Verification+" from "+r.PromptSource, "exact from turns")
		}
		if len(r.FinishReasons) != w.calls || len(r.StepIDs) != w.calls {
			bad("calls", fmt.Sprint(len(r.FinishReasons), len(r.StepIDs)), w.calls)
		}
		if !slices.Equal(r.FinishReasons, w.finish) {
			bad("finish_reasons", r.FinishReasons, w.finish)
		}
		if r.Truncated != w.truncated() {
			bad("truncated", r.Truncated, w.truncated())
		}
		checkDivergence(t, id, i, r, w, want)

		if r.Status != want.status || r.StopReason != want.reason {
			bad("status", r.Status+" "+r.StopReason, want.status+" "+want.reason)
		}
		if r.PromptTokens != want.prompt || r.CompletionTokens != want.completion || r.Steps != want.steps {
			bad("usage", fmt.Sprint(r.PromptTokens, r.CompletionTokens, r.Steps), fmt.Sprint(want.prompt, want.completion, want.steps))
		}
		// Only a tap knows the engine's sampling parameters.
		if r.Temperature != nil || r.TopP != nil || r.MaxNewTokens != nil || r.TopK != nil {
			bad("sampling", fmt.Sprint(r.Temperature, r.TopP, r.MaxNewTokens, r.TopK), nil)
		}
		if r.Model != simModel || r.AgentID == "" || len(r.RunIDs) != want.sends || slices.Contains(r.RunIDs, "") {
			bad("origin", fmt.Sprint(r.Model, r.AgentID, r.RunIDs), fmt.Sprint(simModel, " an agent and ", want.sends, " server runs"))
		}
		if r.SampleKey != rows[0].SampleKey || r.RolloutID != collector.RolloutID(r.SampleKey, 1) || r.Attempt != 1 || r.GroupID != got.rows[sampleID{id.task, 0}][0].GroupID {
			bad("identity", fmt.Sprint(r.SampleKey, r.RolloutID, r.Attempt, r.GroupID), "one sample of one group")
		}
		if n := counter.count(r.RolloutID); n != want.sends {
			bad("sends", n, want.sends)
		}
		if r.Reward != nil {
			bad("reward", *r.Reward, nil)
		}
		if !slices.Equal(r.Flags, w.flags) {
			bad("flags", r.Flags, w.flags)
		}
	}
	scored := 0
	for _, lp := range want.logprobs {
		if lp != nil {
			scored++
		}
	}
	if trained != scored || int64(len(want.ids)) != want.completion {
		t.Errorf("%v: %d tokens are trained, the engine scored %d of %d (the server counts %d)", id, trained, scored, len(want.ids), want.completion)
	}
}

func checkDivergence(t *testing.T, id sampleID, i int, r *sink.StoredRow, w *wantedRow, want *wanted) {
	t.Helper()
	if w.forkCall < 0 {
		if r.Divergence != nil {
			t.Errorf("%v row %d: divergence %s where there is none", id, i, *r.Divergence)
		}
		return
	}
	var d struct {
		Call, Offset int
		Kind         string
		Row, Prompt  []int32
	}
	if r.Divergence == nil {
		t.Errorf("%v row %d: no divergence", id, i)
		return
	}
	if err := json.Unmarshal([]byte(*r.Divergence), &d); err != nil {
		t.Errorf("%v row %d: divergence %s: %v", id, i, *r.Divergence, err)
		return
	}
	before := want.rows[i-1].ids[w.forkAt:]
	prompt := w.ids[w.forkAt:w.offsets[1]]
	if d.Call != w.forkCall || d.Offset != w.forkAt || d.Kind == "" ||
		!slices.Equal(d.Row, before[:min(16, len(before))]) || !slices.Equal(d.Prompt, prompt[:min(16, len(prompt))]) {
		t.Errorf("%v row %d: divergence %s, want call %d at %d", id, i, *r.Divergence, w.forkCall, w.forkAt)
	}
}

func (c *sendCounter) count(rolloutID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sends[rolloutID]
}

func checkFailure(t *testing.T, rec *recording, want wantedFailure, id sampleID, got *readBack, counter *sendCounter) {
	t.Helper()
	if len(got.rows[id]) > 0 || len(got.failures[id]) != 1 {
		t.Errorf("%v: %d rows and %d failures, want one failure", id, len(got.rows[id]), len(got.failures[id]))
		return
	}
	f := got.failures[id][0]
	have := wantedFailure{
		class: f.Class, reason: f.Reason, stage: f.Stage, status: f.Status, stop: f.StopReason,
		attempts: f.Attempt, sends: want.sends, tokens: len(f.OutputIDs),
	}
	// An attempt that fails before any answer of the server is free. On a slow machine there can be
	// several.
	if want.class == "unavailable" && have.attempts > want.attempts {
		have.attempts = want.attempts
	}
	if have != want || f.Call != -1 {
		t.Errorf("%v: %+v, want %+v", id, have, want)
	}
	for n := range f.Attempt {
		if sends := counter.count(collector.RolloutID(f.SampleKey, int(n)+1)); sends != want.sends {
			t.Errorf("%v attempt %d: %d sends, want %d", id, n+1, sends, want.sends)
		}
	}
	if f.Error == "" || strings.Contains(f.Error, "\n") {
		t.Errorf("%v: the error is no line: %q", id, f.Error)
	}
	if want.tokens > 0 {
		checkLeft(t, rec.want(t, false), id, f)
	}
}

// checkLeft checks that the failure has all tokens of a failed sample.
func checkLeft(t *testing.T, want *wanted, id sampleID, f *sink.StoredFailure) {
	t.Helper()
	if !slices.Equal(f.OutputIDs, want.ids) {
		t.Errorf("%v: the failure keeps %d tokens, which are not the %d sampled ones", id, len(f.OutputIDs), len(want.ids))
	}
	if !slices.EqualFunc(f.Logprobs, want.logprobs, func(a float32, b *float64) bool {
		return b == nil && a != a || b != nil && math.Float32bits(a) == math.Float32bits(float32(*b))
	}) {
		t.Errorf("%v: the failure's log-probabilities differ", id)
	}
}

// Without the model's tokenizer, the recorded answers of the released server prove no prompt. No
// row claims one, and no token is lost. The run is refused. Without the preflight it ends by
// itself, until it is resumed.
func TestRecordedWithoutPrompts(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{KeepIDs: true})
	counter, url := countSends(t, sim)
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true}))
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", dir, "--retries", "1", "--fail-on-error", "100%"}
	if r := mustRun(t, exit.Unusable, args...); runfolder.Exists(dir) || !strings.Contains(r.stderr, "add --tokenizer DIR") {
		t.Errorf("a run was created, or the remedy is missing:\n%s", r.stderr)
	}
	// One at a time, so that no sample is still in flight when the run ends.
	args = append(args, "--preflight", "connect", "--max-in-flight", "1")
	if r := mustRun(t, exit.Unusable, args...); !strings.Contains(r.stderr, "16 samples failed with no_prompt and no sample has a row: ") || !strings.Contains(r.stderr, "add --tokenizer DIR") {
		t.Errorf("the reason or the remedy is missing:\n%s", r.stderr)
	}
	mustRun(t, exit.Failures, append(args, "--resume")...)
	mustRun(t, exit.OK, "verify", dir)
	got := readDataset(t, dir)
	all := recordings(t)
	if len(got.rows) != 0 || len(got.failures) != len(all) {
		t.Errorf("%d samples with rows, %d with failures; want 0, %d", len(got.rows), len(got.failures), len(all))
	}
	for _, rec := range all {
		id := sampleID{rec.name, 0}
		want, failed := recordedFailures[rec.name]
		if !failed {
			sample := rec.want(t, false)
			want = wantedFailure{
				class: "no_prompt", reason: "no_prompt", stage: "align", status: "error", stop: sample.reason,
				attempts: 1, sends: sample.sends, tokens: len(sample.ids),
			}
		}
		checkFailure(t, rec, want, id, got, counter)
	}
}
