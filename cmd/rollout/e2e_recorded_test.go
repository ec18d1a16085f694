package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
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
	// Without the client tool in the configuration its call stays open.
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
	return c, serveHandler(t, sim, c)
}

// recordedAgent configures the client tool of one recording, and sends on conversations.
const recordedAgent = `
agent:
  conversation: true
  client_tools:
    - name: bash
      description: Run a shell command.
      parameters: {type: object, properties: {cmd: {type: string, description: the command}}, required: [cmd]}
      answer: "a.txt\nb.txt"
`

// Every recorded exchange, collected from a server that sends prompt ids, gives the tokens and
// log-probabilities that the engine saw and answered in the recording, bit for bit. With a client
// tool in the configuration, its rollout continues after the tool's result.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	const samples = 2
	all := recordings(t)
	for format, config := range map[string]string{"parquet": "", "arrow": recordedAgent} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true})
			counter, url := countSends(t, sim)
			dir, args := collectTasks(t, url, sim.Tasks(lettasim.TaskOptions{Cases: true}), "-c", writeFile(t, "run.yaml", []byte(config)),
				"--format", format, "--samples", fmt.Sprint(samples), "--retries", "1", "--fail-on-error", "50%", "--quiet")
			mustRun(t, exit.Failures, args...)
			wantForks, wantFailures := maps.Clone(recordedForks), maps.Clone(recordedFailures)
			if config != "" {
				wantForks["client-tool-return"] = "1"
				delete(wantFailures, "client-tool-return")
			}
			if n := sim.Stats().Requests["POST /v1/conversations/{id}/messages"]; (n > 0) != (config != "") {
				t.Errorf("%d sends on a conversation", n)
			}
			got := verified(t, dir)
			for shard := range got.logs[0].Shards(sink.KindData) {
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
					if want, failed := wantFailures[rec.name]; failed {
						checkFailure(t, rec, want, id, got, counter)
						continue
					}
					want := rec.want(t, config != "")
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
			if !maps.Equal(forks, wantForks) {
				t.Errorf("the recordings fork at %v, want %v", forks, wantForks)
			}
			got.once(t)
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
		same := func(what string, got, want any) {
			t.Helper()
			if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
				t.Errorf("%v row %d: %s = %s, want %s", id, i, what, got, want)
			}
		}
		bits := func(list []float32) (all []uint32) {
			for _, x := range list {
				all = append(all, math.Float32bits(x))
			}
			return all
		}
		same("input_ids", r.InputIDs, w.ids)
		same("loss_mask", r.LossMask, w.mask)
		same("logprobs", bits(r.Logprobs), bits(w.logprobs))
		same("turn_offsets", r.TurnOffsets, w.offsets)
		same("turn_roles", r.TurnRoles, w.roles)
		for _, m := range r.LossMask {
			trained += int(m)
		}
		same("versions are null", r.Versions == nil, true)
		same("prompt_length", r.PromptLength, w.offsets[1])
		same("segment_index", r.SegmentIndex, i)
		same("segment_count", r.SegmentCount, len(want.rows))
		same("n_unscored", r.Unscored, w.unscored)
		same("n_trimmed", r.Trimmed, 0)
		same("verification", r.Verification, "exact")
		same("prompt_source", r.PromptSource, "turns")
		same("calls", len(r.FinishReasons), w.calls)
		same("step_ids", len(r.StepIDs), w.calls)
		same("finish_reasons", r.FinishReasons, w.finish)
		same("truncated", r.Truncated, w.truncated())
		checkDivergence(t, id, i, r, w, want)

		same("status", r.Status, want.status)
		same("stop_reason", r.StopReason, want.reason)
		same("prompt_tokens", r.PromptTokens, want.prompt)
		same("completion_tokens", r.CompletionTokens, want.completion)
		same("steps", r.Steps, want.steps)
		// Only a tap knows the engine's sampling parameters.
		same("sampling is null", r.Temperature == nil && r.TopP == nil && r.MaxNewTokens == nil && r.TopK == nil, true)
		same("model", r.Model, simModel)
		same("agent and runs have ids", r.AgentID != "" && !slices.Contains(r.RunIDs, ""), true)
		same("run_ids", len(r.RunIDs), want.sends)
		same("sample_key", r.SampleKey, rows[0].SampleKey)
		same("rollout_id", r.RolloutID, collector.RolloutID(r.SampleKey, 1))
		same("attempt", r.Attempt, 1)
		same("group_id", r.GroupID, got.rows[sampleID{id.task, 0}][0].GroupID)
		same("sends", counter.count(r.RolloutID), want.sends)
		same("reward is null", r.Reward == nil, true)
		same("flags", r.Flags, w.flags)
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
	if r.Divergence == nil || w.forkCall < 0 {
		if r.Divergence != nil || w.forkCall >= 0 {
			t.Errorf("%v row %d: a divergence is there: %v, want call %d", id, i, r.Divergence != nil, w.forkCall)
		}
		return
	}
	var d struct {
		Call, Offset int
		Kind         string
		Row, Prompt  []int32
	}
	err := json.Unmarshal([]byte(*r.Divergence), &d)
	before, prompt := want.rows[i-1].ids[w.forkAt:], w.ids[w.forkAt:w.offsets[1]]
	if err != nil || d.Call != w.forkCall || d.Offset != w.forkAt || d.Kind == "" ||
		!slices.Equal(d.Row, before[:min(16, len(before))]) || !slices.Equal(d.Prompt, prompt[:min(16, len(prompt))]) {
		t.Errorf("%v row %d: divergence %s (%v), want call %d at %d", id, i, *r.Divergence, err, w.forkCall, w.forkAt)
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
	if want.tokens == 0 {
		return
	}
	left := rec.want(t, false)
	if !slices.Equal(f.OutputIDs, left.ids) || !slices.EqualFunc(f.Logprobs, left.logprobs, func(a float32, b *float64) bool {
		return b == nil && a != a || b != nil && math.Float32bits(a) == math.Float32bits(float32(*b))
	}) {
		t.Errorf("%v: the failure keeps %d tokens, which are not the %d sampled ones, or have other log-probabilities", id, len(f.OutputIDs), len(left.ids))
	}
}

// Without the model's tokenizer, the recorded answers of the released server prove no prompt. No
// row claims one, and no token is lost. The run is refused. Without the preflight it ends by
// itself, until it is resumed.
func TestRecordedWithoutPrompts(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{KeepIDs: true})
	counter, url := countSends(t, sim)
	dir, args := collectTasks(t, url, sim.Tasks(lettasim.TaskOptions{Cases: true}), "--retries", "1", "--fail-on-error", "100%")
	if r := mustRun(t, exit.Unusable, args...); runfolder.Exists(dir) || !strings.Contains(r.stderr, "pass the folder of the model's tokenizer and chat template with --tokenizer") {
		t.Errorf("a run was created, or the remedy is missing:\n%s", r.stderr)
	}
	// One at a time, so that no sample is still in flight when the run ends.
	args = append(args, "--preflight", "connect", "--max-in-flight", "1")
	contains(t, mustRun(t, exit.Unusable, args...).stderr, "16 samples failed with no_prompt, and no sample produced a row: ", "pass the folder of the model's tokenizer and chat template with --tokenizer")
	mustRun(t, exit.Failures, append(args, "--resume")...)
	got := verified(t, dir)
	all := recordings(t)
	got.has(t, 0, len(all))
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

// A recording is the part of a recorded exchange that the end-to-end tests use. This code does not
// use the product's decoders: it derives the expected sample a second time, from the engine's own
// requests and answers.
type recording struct {
	name      string
	Exchanges []struct {
		Request struct {
			Body struct {
				Messages []struct{ Type, Role string }
			}
		}
		Response struct {
			Status int
			Body   json.RawMessage
		}
		ModelCalls []struct {
			Path     string
			Status   int
			InputIDs []int32 `json:"input_ids"`
			Response json.RawMessage
		} `json:"model_calls"`
	}
}

func recordings(t *testing.T) []*recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(exchangesDir, "*.json.gz"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	var all []*recording
	for _, path := range files {
		b := must(tokenizetest.Recording(path))(t)
		r := &recording{name: strings.TrimSuffix(filepath.Base(path), ".json.gz")}
		if err := json.Unmarshal(b, r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(r.Exchanges) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// A wanted is the sample that a recording implies.
type wanted struct {
	sends  int
	status string // of the last send
	reason string // of the last send

	prompt, completion int64 // totals from the server
	steps              int32

	ids      []int32    // sampled ids of all calls
	logprobs []*float64 // of ids
	rows     []wantedRow
}

type wantedRow struct {
	ids      []int32
	mask     []int8
	logprobs []float32
	offsets  []int32
	roles    []int8
	calls    int
	finish   []string // the engine's finish reasons
	unscored int32
	flags    []string
	forkCall int // the call that forked, or -1
	forkAt   int // first position where its prompt differs from the row before
}

const (
	rolePrompt, roleAssistant, roleTool, roleUser = 0, 1, 2, 3
)

// want derives the sample: its sends by the rules of a rollout, its calls by the rules of rows, and
// then its tokens. clientTools reports whether client tools are configured.
func (r *recording) want(t *testing.T, clientTools bool) *wanted {
	t.Helper()
	w := &wanted{}
	var open *wantedRow // the row that the next prompt can continue
	tool := false       // a tool turn is between the last call and the next
	call := 0
	client := false // the result of a client tool was sent
	for i, x := range r.Exchanges {
		if x.Response.Status != 200 {
			t.Fatalf("%s: send %d was answered with %d", r.name, i, x.Response.Status)
		}
		var body struct {
			Turns []struct{ Role string }
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Steps      int32 `json:"step_count"`
			}
			Stop struct {
				Reason string `json:"stop_reason"`
			} `json:"stop_reason"`
		}
		if err := json.Unmarshal(x.Response.Body, &body); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		w.sends++
		for _, m := range x.Request.Body.Messages {
			client = client || m.Type == "tool_return"
		}
		w.reason = body.Stop.Reason
		w.prompt += body.Usage.Prompt
		w.completion += body.Usage.Completion
		w.steps += body.Usage.Steps

		at := 0
		for _, m := range x.ModelCalls {
			if m.Path != "/generate" || m.Status != 200 {
				continue
			}
			var answer struct {
				IDs  []int32 `json:"output_ids"`
				Meta struct {
					Logprobs [][3]*float64 `json:"output_token_logprobs"`
					Finish   struct {
						Type string
					} `json:"finish_reason"`
				} `json:"meta_info"`
			}
			if err := json.Unmarshal(m.Response, &answer); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			for ; at < len(body.Turns) && body.Turns[at].Role == "tool"; at++ {
				tool = true
			}
			at++ // the assistant turn of this call

			switch n := diverges(open, m.InputIDs); {
			case open == nil:
				open = newWantedRow(m.InputIDs, -1, 0)
			case n == len(open.ids) && n < len(m.InputIDs):
				role := int8(roleUser)
				if tool {
					role = roleTool
				}
				open.context(m.InputIDs[n:], role)
			default:
				w.rows = append(w.rows, *open)
				open = newWantedRow(m.InputIDs, call, n)
			}
			tool = false
			call++
			open.calls++
			open.finish = append(open.finish, answer.Meta.Finish.Type)
			if client {
				open.flags = []string{"client_tool_context"}
			}
			for j, id := range answer.IDs {
				lp := answer.Meta.Logprobs[j][0]
				w.ids, w.logprobs = append(w.ids, id), append(w.logprobs, lp)
				open.sampled(id, lp)
			}
			open.end(roleAssistant)
		}
		for ; at < len(body.Turns); at++ {
			tool = tool || body.Turns[at].Role == "tool"
		}
		if !r.goesOn(i, w.reason, clientTools) {
			break
		}
	}
	if open != nil {
		w.rows = append(w.rows, *open)
	}
	w.rows = slices.DeleteFunc(w.rows, func(r wantedRow) bool { return !slices.Contains(r.mask, 1) })
	for i := range w.rows {
		if r := &w.rows[i]; r.truncated() {
			r.flags = append(r.flags, "length")
		}
	}
	w.status = map[string]string{
		"end_turn": "completed", "tool_rule": "completed", "max_steps": "max_steps", "max_tokens_exceeded": "truncated",
	}[w.reason]
	return w
}

// goesOn reports whether another send follows send i. The next message of the task follows only
// after a normal end of the agent. An answer follows if the server asked for one that the run can
// give.
func (r *recording) goesOn(i int, stop string, clientTools bool) bool {
	if i+1 == len(r.Exchanges) {
		return false
	}
	answers := false
	for _, m := range r.Exchanges[i+1].Request.Body.Messages {
		answers = answers || m.Type == "approval" || m.Type == "tool_return" && clientTools
	}
	return stop == "end_turn" || stop == "requires_approval" && answers
}

func newWantedRow(prompt []int32, forkCall, forkAt int) *wantedRow {
	r := &wantedRow{offsets: []int32{0}, forkCall: forkCall, forkAt: forkAt}
	r.context(prompt, rolePrompt)
	return r
}

// truncated reports whether the engine's limit ended the row's last output.
func (r *wantedRow) truncated() bool { return r.finish[len(r.finish)-1] == "length" }

func (r *wantedRow) context(ids []int32, role int8) {
	for _, id := range ids {
		r.ids, r.mask, r.logprobs = append(r.ids, id), append(r.mask, 0), append(r.logprobs, 0)
	}
	r.end(role)
}

func (r *wantedRow) sampled(id int32, logprob *float64) {
	r.ids = append(r.ids, id)
	if logprob == nil {
		r.mask, r.logprobs = append(r.mask, 0), append(r.logprobs, 0)
		r.unscored++
		return
	}
	r.mask, r.logprobs = append(r.mask, 1), append(r.logprobs, float32(*logprob))
}

func (r *wantedRow) end(role int8) {
	r.offsets, r.roles = append(r.offsets, int32(len(r.ids))), append(r.roles, role)
}

func diverges(r *wantedRow, prompt []int32) int {
	n := 0
	for r != nil && n < len(r.ids) && n < len(prompt) && r.ids[n] == prompt[n] {
		n++
	}
	return n
}

// shownOutput formats the sampled part of a row: mask and version of each token, and the flags.
func shownOutput(r *sink.StoredRow) string {
	var b strings.Builder
	for i := r.PromptLength; int(i) < len(r.InputIDs); i++ {
		fmt.Fprint(&b, r.LossMask[i])
	}
	if r.Versions != nil {
		fmt.Fprintf(&b, " versions %v", r.Versions[r.PromptLength:])
	}
	if r.Unscored > 0 {
		fmt.Fprintf(&b, " unscored %d", r.Unscored)
	}
	return strings.TrimSpace(b.String() + " " + strings.Join(r.Flags, ","))
}

// Exchanges with rare outputs give the expected rows, also when the same server runs are read a
// second time. The settings that refuse or mask such outputs work.
func TestOutputCases(t *testing.T) {
	t.Parallel()
	cases := must(lettasim.LoadCases(os.DirFS(filepath.Join("..", "..", "testdata", "cases")), "."))(t)
	const (
		all     = "1111111111"
		refused = "token_mismatch vocab"
	)
	kept := map[string]string{
		"weight-versions-spans": all + " versions [7 7 7 7 8 8 8 8 8 8]",
		"wv-int":                all + " versions [7 7 7 7 7 7 7 7 7 7]",
		"lp-f32min":             "1110111111 unscored 1",
		"eos-leak":              all + "11 after_stop",
		"oov":                   all + " padded_id",
	}
	cases = slices.DeleteFunc(cases, func(c *lettasim.Case) bool { return kept[c.Name] == "" })
	sim := must(lettasim.New(lettasim.Config{Cases: cases}))(t)
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true}))
	strict := maps.Clone(kept)
	strict["oov"], strict["eos-leak"] = refused, all+"00 unscored 2 after_stop"
	driven := []string{"--keep-agents", "--policy-version", "trace", "--tasks", tasks, "--preflight", "connect"}
	for _, tt := range []struct {
		name, config string
		code         int
		args         []string
		want         map[string]string
	}{
		{"driven", "", exit.OK, driven, kept},
		{"read", "", exit.OK, []string{"--from-runs", "since=2020-01-01T00:00:00Z"}, kept},
		{"strict", "tokens: {vocab: strict, after_stop: mask}", exit.Failures, driven, strict},
	} {
		dir := filepath.Join(t.TempDir(), tt.name)
		mustRun(t, tt.code, append([]string{
			"collect", "--config", writeFile(t, "collect.yaml", []byte(tt.config)), "--server", url, "--model", simModel, "--tokenizer", qwen3Dir,
			"--quiet", "--fail-on-error", "50%", "--retries", "0", "--out", dir,
		}, tt.args...)...)
		got := verified(t, dir)
		var said []string
		for _, r := range got.allRows() {
			said = append(said, shownOutput(r))
		}
		for _, f := range got.allFailures() {
			said = append(said, f.Class+" "+f.Reason)
		}
		slices.Sort(said)
		if want := slices.Sorted(maps.Values(tt.want)); !slices.Equal(said, want) {
			t.Errorf("%s: %q\nwant %q", tt.name, said, want)
		}
	}
}

// TestPictureOfARow draws the picture of a row, token by token, from a recorded rollout with a tool
// call and its model's tokenizer.
func TestPictureOfARow(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := regexp.MustCompile(`(?m)^.*"id":"tool",.*$`).Find(sim.Tasks(lettasim.TaskOptions{Cases: true}))
	tasks = []byte(strings.Replace(string(tasks), `{"id":"tool",`, `{"id":"tool","answer":"5",`, 1))
	dir := filepath.Join(t.TempDir(), "run1")
	mustRun(t, 0, "collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", writeFile(t, "tasks.jsonl", tasks), "--reward", "number", "--tokenizer", qwen3Dir, "--out", dir, "--quiet")
	out := mustRun(t, 0, "inspect", dir, "--row", "0", "--color", "always").stdout
	out = regexp.MustCompile(`, agent agent-[0-9a-f-]+`).ReplaceAllString(out, "") // the id is random
	picturetest.Check(t, "../../testdata/pictures/inspect.svg", picturetest.Terminal(t, 112, "$ rollout inspect run1 --row 0\n"+strings.TrimRight(out, "\n")), *update)
}
