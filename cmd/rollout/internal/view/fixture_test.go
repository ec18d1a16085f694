package view_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hostile is text that a model or a task could contain.
const hostile = `<script>document.title="pwned"</script><img src=x onerror="document.title='pwned'">"'&</script><!--` + "\u202egnp.exe\u200b\x1b[31m"

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func tokenizer(tb testing.TB) *bpe.Tokenizer {
	tb.Helper()
	return must((&model.Place{Key: "tokenizer", Dir: lettasim.ModelName}).LoadTokenizer())(tb)
}

// A maker makes the samples of a run.
type maker struct {
	tb      testing.TB
	tok     *bpe.Tokenizer
	rng     *rand.Rand
	samples []*tokenize.Sample
}

func newMaker(tb testing.TB) *maker {
	tb.Helper()
	return &maker{tb: tb, tok: tokenizer(tb), rng: rand.New(rand.NewPCG(1, 2))}
}

func (m *maker) ids(text string) []int32 {
	m.tb.Helper()
	return must(m.tok.AppendTokens(nil, text))(m.tb)
}

// row returns a row whose spans have the given texts: the prompt, then answers and tool returns in
// turn.
func (m *maker) row(texts ...string) tokenize.Row {
	m.tb.Helper()
	r := tokenize.Row{TurnOffsets: []int32{0}, TurnRoles: []int8{}, Grade: tokenize.Exact, Source: tokenize.SourceTurns}
	for i, text := range texts {
		ids := m.ids(text)
		role := tokenize.RoleTool
		switch {
		case i == 0:
			role, r.PromptLength = tokenize.RolePrompt, int32(len(ids))
		case i%2 == 1:
			role = tokenize.RoleAssistant
			r.LastCall++
			r.FinishReasons, r.StepIDs = append(r.FinishReasons, "stop"), append(r.StepIDs, fmt.Sprintf("step-%d", r.LastCall))
		}
		for range ids {
			mask, logprob, version := int8(0), float32(0), int32(-1)
			if role == tokenize.RoleAssistant {
				mask, logprob, version = 1, -float32(m.rng.ExpFloat64()), 3
			}
			r.LossMask, r.Logprobs, r.Versions = append(r.LossMask, mask), append(r.Logprobs, logprob), append(r.Versions, version)
		}
		r.InputIDs = append(r.InputIDs, ids...)
		r.TurnOffsets, r.TurnRoles = append(r.TurnOffsets, int32(len(r.InputIDs))), append(r.TurnRoles, int8(role))
	}
	return r
}

// sample adds a sample with the given rows.
func (m *maker) sample(task string, index, size int, reward *float64, rows ...tokenize.Row) *tokenize.Sample {
	key := fmt.Sprintf("%032x-%d", len(m.samples)-index, index)
	s := &tokenize.Sample{
		Key: key, TaskID: task, GroupID: "g-" + task, RolloutID: key + "/1", Index: int32(index), GroupSize: int32(size), Attempt: 1,
		Rows: rows, Reward: reward, Status: "completed", StopReason: "end_turn", Model: "sglang/test", AgentID: "agent-" + key[24:],
		RunIDs: []string{"run-" + key[24:]}, StartedAt: epoch.Add(time.Duration(len(m.samples)) * time.Second),
		Duration: time.Duration(1+m.rng.IntN(20)) * time.Second, Working: time.Second,
	}
	for i := range rows {
		rows[i].SegmentIndex, rows[i].SegmentCount = int32(i), int32(len(rows))
		s.Steps += rows[i].LastCall
		s.PromptTokens += int64(rows[i].PromptLength)
		for _, mask := range rows[i].LossMask {
			s.CompletionTokens += int64(mask)
		}
	}
	m.samples = append(m.samples, s)
	return s
}

func (m *maker) failure(task string, index, size int, class, text string) *tokenize.Sample {
	s := m.sample(task, index, size, nil)
	s.Status, s.StopReason = "error", ""
	s.Failures = []tokenize.Failure{{Class: class, Stage: "run", Error: text, Call: -1, Text: text}}
	return s
}

// write writes the samples into a new run folder, in their order.
func (m *maker) write(dir string) {
	m.tb.Helper()
	m.describe(dir)
	add(m.tb, dir, m.samples)
}

// add adds samples to the dataset in dir, in their order.
func add(tb testing.TB, dir string, samples []*tokenize.Sample) {
	tb.Helper()
	fill(tb, must(sink.Create(dir, sink.Config{RunID: runID}))(tb), samples)
}

// fill adds samples to a dataset and closes it.
func fill(tb testing.TB, d *sink.Dataset, samples []*tokenize.Sample) {
	tb.Helper()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	for _, s := range samples {
		if err := d.Append(tb.Context(), s, func(error) {}); err != nil {
			tb.Fatal(err)
		}
	}
	for _, err := range []error{d.Close(tb.Context()), <-ended} {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

const runID = "20260301-120000-0badcafe"

// describe makes the folder of a run.
func (m *maker) describe(dir string) {
	m.tb.Helper()
	tasks := map[string]bool{}
	for _, s := range m.samples {
		tasks[s.TaskID] = true
	}
	info := runfolder.Info{Version: 1, ID: runID, CreatedAt: epoch}
	info.Tasks.Tasks, info.Tasks.Planned = len(tasks), len(m.samples)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.tb.Fatal(err)
	}
	body := must(runfolder.EncodeSummed(info))(m.tb)
	if err := os.WriteFile(filepath.Join(dir, runfolder.RunFile), body, 0o600); err != nil {
		m.tb.Fatal(err)
	}
}

// chat returns a prompt in the form of the chat template of Qwen.
func chat(question string) string {
	return "<|im_start|>system\nYou are a careful assistant.<|im_end|>\n<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"
}

const (
	calls   = "<think>\nI should call the tool.\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 2}}\n</tool_call><|im_end|>"
	returns = "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	answers = "The answer is 4.<|im_end|>"
)

// smallRun makes a run that has everything that the page shows: 24 tasks of 4 samples.
func smallRun(tb testing.TB) string {
	tb.Helper()
	m := newMaker(tb)
	for task := range 24 {
		name := fmt.Sprintf("gsm8k-%03d", task)
		if task == 20 {
			name = hostile
		}
		for i := range 4 {
			reward := new(float64((task * i) % 3 / 2))
			prompt := chat(fmt.Sprintf("What is %d and %d?", task, task))
			switch {
			case task == 5 && i == 3:
				m.failure(name, i, 4, "timeout_total", "the sample took longer than 5m")
			case task == 20 && i == 0:
				m.failure(name, i, 4, "agent_error", hostile)
			case task == 20:
				s := m.sample(name, i, 4, reward, m.row(chat(hostile), hostile+"<|im_end|>"))
				s.StopReason, s.Model, s.AgentID, s.RunIDs = hostile, hostile, hostile, []string{hostile}
				s.RewardDetails, s.Metadata = new(`{"<script>":"</script><img src=x onerror=alert(1)>"}`), new(`{"a":"`+"\u202e"+`"}`)
				s.Messages = new(`[{"role":"user","content":"<img src=x onerror=alert(1)>"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"<b>","arguments":"{\"x\":\"</script>\"}"}}]}]`)
				s.Rows[0].StepIDs[0], s.Rows[0].FinishReasons[0] = hostile, hostile
			case task == 2 && i == 1: // a fork: the second row starts with another text
				one, two := m.row(prompt, calls, returns, answers), m.row(prompt+calls+"\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n", "The answer is 5.<|im_end|>")
				n := int32(0)
				for one.InputIDs[n] == two.InputIDs[n] {
					n++
				}
				two.Divergence = &tokenize.Divergence{Call: 1, Offset: n, Kind: tokenize.DivergedInContext, Row: one.InputIDs[n : n+2], Prompt: two.InputIDs[n : n+2]}
				m.sample(name, i, 4, reward, one, two).RewardDetails = new(`{"correct": 0.5, "format": 1}`)
			case task == 3 && i == 2: // long: 3,000 sampled words
				long := ""
				for w := range 3000 {
					long += fmt.Sprintf(" word%d", w)
				}
				m.sample(name, i, 4, reward, m.row(prompt, long+"<|im_end|>")).Rows[0].Truncated = false
			case task == 7 && i == 0:
				s := m.sample(name, i, 4, nil, m.row(prompt, "needle in this answer<|im_end|>"))
				s.Rows[0].Grade, s.Status, s.StopReason = tokenize.Unverified, "max_steps", "max_steps"
			case task == 8 && i == 0:
				s := m.sample(name, i, 4, reward, m.row(prompt, calls, returns, answers))
				s.Rows[0].Flags |= tokenize.FlagReattached
				for k := s.Rows[0].TurnOffsets[1]; k < s.Rows[0].TurnOffsets[2]; k++ {
					s.Rows[0].LossMask[k], s.Rows[0].Logprobs[k] = 0, 0
				}
				s.Rows[0].Unscored = s.Rows[0].TurnOffsets[2] - s.Rows[0].TurnOffsets[1]
			default:
				m.sample(name, i, 4, reward, m.row(prompt, calls, returns, fmt.Sprintf("The answer is %d.<|im_end|>", 2*task+i)))
			}
		}
	}
	dir := filepath.Join(tb.TempDir(), "run1")
	m.write(dir)
	return dir
}

// pictureRun makes a run that looks like a real one: 150 tasks of 8 samples.
func pictureRun(tb testing.TB) string {
	tb.Helper()
	m := newMaker(tb)
	at := 0.0
	for task := range 150 {
		name, skill := fmt.Sprintf("gsm8k-train-%05d", task), m.rng.Float64()*0.7
		for i := range 8 {
			at += m.rng.Float64() * 3
			seconds := 4 + 30*math.Exp(m.rng.NormFloat64()*0.7)
			var s *tokenize.Sample
			if m.rng.IntN(30) == 0 {
				class := [][2]string{{"timeout_total", "the sample took longer than 5m"}, {"connection", "read tcp 10.0.0.1:8283: connection reset by peer"}, {"agent_error", "the agent ended with stop reason error"}}[m.rng.IntN(3)]
				s = m.failure(name, i, 8, class[0], class[1])
			} else {
				reward := 0.0
				if m.rng.Float64() < skill+at/6000 {
					reward = 1
				}
				question := chat(fmt.Sprintf("Anna has %d apples and buys %d more. How many apples does she have?", task, i))
				end := fmt.Sprintf("Anna has %d apples.<|im_end|>", task+i)
				for range int(4 * math.Exp(m.rng.NormFloat64()*0.6)) {
					end = "Let me check this once more. " + end
				}
				s = m.sample(name, i, 8, new(reward), m.row(question, calls, returns, end))
			}
			s.StartedAt = epoch.Add(time.Duration(at * 1e9))
			s.Duration, s.Working = time.Duration(seconds*1e9), time.Duration(seconds*0.8*1e9)
		}
	}
	dir := filepath.Join(tb.TempDir(), "run1")
	m.write(dir)
	return dir
}

// manyRun makes a run of n samples with short rows.
func manyRun(tb testing.TB, n int) string {
	tb.Helper()
	m := newMaker(tb)
	for i := range n {
		reward := new(float64(m.rng.IntN(5)) / 4)
		m.sample(fmt.Sprintf("task-%06d", i/8), i%8, 8, reward, m.row("question", "an answer of a few words"))
	}
	dir := filepath.Join(tb.TempDir(), "many")
	m.describe(dir)
	sinktest.Write(tb, dir, sink.Config{RunID: runID}, m.samples)
	return dir
}

// open opens the View of a run, with the simulated tokenizer.
func open(tb testing.TB, dir string) *view.View {
	tb.Helper()
	run := must(runs.Open(tb.Context(), dir, slog.New(slog.DiscardHandler)))(tb)
	return view.Open(run, tokenizer(tb))
}
