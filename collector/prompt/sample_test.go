package prompt_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A keeper is a sink that keeps its samples.
type keeper struct {
	mu      sync.Mutex
	samples []*tokenize.Sample
}

func (k *keeper) Append(_ context.Context, s *tokenize.Sample, done func(error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.samples = append(k.samples, s)
	done(nil)
	return nil
}

// asTask returns the recording as a task with its agent configuration. The collector then makes the
// recorded requests.
func (r *recording) asTask(t *testing.T) (*collector.Task, agent.Config) {
	t.Helper()
	task := &collector.Task{ID: r.name}
	cfg := agent.Config{Model: "sglang//models/qwen3", SystemText: true, Approvals: agent.ApprovalApprove}
	for _, x := range r.Exchanges {
		request := lettatest.Request(t, x.Request.Body)
		cfg.Conversation = strings.Contains(x.Request.Path, "/conversations/")
		if request.OverrideModel != nil {
			cfg.OverrideModel = *request.OverrideModel
		}
		if request.MaxSteps != nil {
			cfg.MaxSteps = *request.MaxSteps
		}
		for i, tool := range request.ClientTools {
			if i == len(cfg.ClientTools) {
				cfg.ClientTools = append(cfg.ClientTools, agent.ClientToolConfig{Tool: tool})
			}
		}
		for _, m := range request.Messages {
			switch m := m.(type) {
			case *letta.MessageCreate:
				task.Messages = append(task.Messages, letta.InputText(m.Content))
			case *letta.ToolReturnCreate:
				cfg.ClientTools[0].Answer = new(letta.InputText(m.ToolReturns[0].ToolReturn))
			}
		}
	}
	return task, cfg
}

// TestRecordedSamples runs every recording through the whole collector and compares the rows with
// what the engine received. Each sampled token is in exactly one row, after exactly the prompt that
// the model saw. Without the answers, the sample is the same.
func TestRecordedSamples(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	calls, rows := 0, 0
	for _, rec := range provable(t) {
		truths := rec.truths()
		if rec.name == "compaction" {
			truths = truths[:2] // the first send ends the sample
		}
		s := rec.keptIDs(t, newPrompter(t, prompt.Config{Model: model}))
		n, err := checkGrade(s, truths, tokenize.CountVerified)
		if err != nil {
			t.Errorf("%s: %v", rec.name, err)
		}
		calls, rows = calls+n, rows+len(s.Rows)
		if records := rec.keptIDs(t, newPrompter(t, prompt.Config{Model: model}).WithoutAnswers()); !reflect.DeepEqual(records, s) {
			t.Errorf("%s: the samples differ:\n%+v\n%+v", rec.name, records, s)
		}
	}
	// 77 calls, without those after the compaction, the call of approval-pending, whose next
	// message the server refuses, and the call of nan, which has no trace.
	if calls != 73 {
		t.Errorf("%d calls have their true context in %d rows, want 73", calls, rows)
	}
	t.Logf("%d calls in %d rows", calls, rows)
}

// collect collects n samples of the recording from the server.
func (r *recording) collect(t *testing.T, server *lettasim.Server, p *prompt.Prompter, n int) []*tokenize.Sample {
	t.Helper()
	task, cfg := r.asTask(t)
	cfg.Prompter = p
	backend := newBackend(t, dial(t, server, letta.ClientConfig{}), cfg)
	kept := new(keeper)
	c := must(collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "sim", Backend: backend, MaxInFlight: 8}}, Sink: kept, Planned: n,
	}))(t)
	err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
		for i := range n {
			one := *task
			one.ID = fmt.Sprintf("%s#%d", r.name, i)
			if !yield(&one, nil) {
				return
			}
		}
	})
	if err != nil || len(kept.samples) != n {
		t.Fatalf("%s: %d samples, want %d; %v", r.name, len(kept.samples), n, err)
	}
	return kept.samples
}

func (r *recording) sample(t *testing.T, server lettasim.Config, p *prompt.Prompter) *tokenize.Sample {
	t.Helper()
	return r.collect(t, simulate(t, server, r.name), p, 1)[0]
}

// checkGrade compares the rows of a sample with the truth and returns the number of calls in them.
// All other calls must be failures.
func checkGrade(s *tokenize.Sample, truths []truth, grade tokenize.Grade) (int, error) {
	seen := make([]bool, len(truths))
	for i := range s.Rows {
		if s.Rows[i].Grade != grade {
			return 0, fmt.Errorf("row %d is %v", i, s.Rows[i].Grade)
		}
		if err := checkRow(&s.Rows[i], truths, seen); err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
		if grade != tokenize.Exact && slices.Contains(s.Rows[i].StepIDs, "") {
			return 0, fmt.Errorf("row %d: steps %q", i, s.Rows[i].StepIDs)
		}
	}
	if len(s.Rows) == 0 && len(s.Failures) == 1 && s.Failures[0].Call == -1 {
		var all []int32
		for k := range truths {
			all = append(all, truths[k].output...)
		}
		if f := &s.Failures[0]; !slices.Equal(f.OutputIDs, all) || f.Class == "" || f.Error == "" {
			return 0, fmt.Errorf("a failure without class, error or tokens: %+v", f)
		}
		return 0, nil
	}
	n := 0
	for k := range truths {
		if seen[k] {
			n++
			continue
		}
		if !slices.ContainsFunc(s.Failures, func(f tokenize.Failure) bool {
			return f.Call == int32(k) && slices.Equal(f.OutputIDs, truths[k].output) && f.Reason != "" && f.Error != ""
		}) {
			return n, fmt.Errorf("call %d is in no row and in no failure (%d failures, the first: %+v)", k, len(s.Failures), s.Failures)
		}
	}
	return n, nil
}

// checkRow verifies that each output of the row follows the whole prompt of its call.
func checkRow(row *tokenize.Row, truths []truth, seen []bool) error {
	k := int(row.FirstCall)
	for i, role := range row.TurnRoles {
		if tokenize.Role(role) != tokenize.RoleAssistant {
			continue
		}
		for len(truths) > k && len(truths[k].output) == 0 {
			k++
		}
		if k >= int(row.LastCall) || k >= len(truths) || seen[k] {
			return fmt.Errorf("output %d belongs to no call, or to an earlier one", i)
		}
		lo, hi := row.TurnOffsets[i], row.TurnOffsets[i+1]
		if !slices.Equal(row.InputIDs[:lo], truths[k].prompt) {
			return fmt.Errorf("call %d comes after %d ids, which are not its %d", k, lo, len(truths[k].prompt))
		}
		if !slices.Equal(row.InputIDs[lo:hi], truths[k].output) {
			return fmt.Errorf("call %d has another output", k)
		}
		seen[k] = true
		k++
	}
	if k != int(row.LastCall) {
		return fmt.Errorf("calls up to %d, but the row has %d", k, row.LastCall)
	}
	return nil
}

// TestCompactedSample builds the sample of a life with compactions, which the collector would end
// after the first send. Its sums agree with the server's, which exclude the calls that summarize.
// Later calls are failures with their reason, and earlier calls keep their rows.
func TestCompactedSample(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "compaction")[0]
	calls := known.rebuilt(t, prompt.NewRebuilder(model, true, true))
	var sum tokenize.Counts
	for _, e := range known.reply.Evidence.Sends {
		sum.PromptTokens += e.Response.Usage.PromptTokens
		sum.CompletionTokens += e.Response.Usage.CompletionTokens
		sum.Steps += e.Response.Usage.StepCount
	}
	if err := tokenize.CheckCounts(calls, sum); err != nil {
		t.Errorf("CheckCounts: %v", err)
	}
	rows, al := aligned(t, tokenize.AlignConfig{}, calls)
	seen := make([]bool, len(known.truths))
	for i := range rows {
		if err := checkRow(&rows[i], known.truths, seen); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(seen, []bool{true, true, false, false}) || !slices.Equal(al.LostCalls, []int32{2, 3}) {
		t.Errorf("calls in rows %v, lost %v", seen, al.LostCalls)
	}
	for _, k := range al.LostCalls {
		if calls[k].Reason != tokenize.ReasonCompacted {
			t.Errorf("call %d: %v, want compacted", k, calls[k].Reason)
		}
	}
}

// The error of a failed sample lists what was tried and how each try ended, down to the line of the
// template.
func TestFailureSaysWhatWasTried(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	template := func(source string) *prompt.Model {
		return &prompt.Model{Template: parseTemplate(t, "model", source, chat.Options{}), Tokenizer: model.Tokenizer}
	}
	rec := recordingOf(t, "tool")
	for _, tt := range []struct {
		name, reason, want string
		model              *prompt.Model
	}{
		{"another template", "count_mismatch", "reason for the first call: stored: the rebuilt prompt has 2 tokens, but the server counted 377; trace: the rebuilt prompt has 2 tokens, but the server counted 377", template("Hi there")},
		{"a template that raises", "no_prompt", "reason for the first call: stored: render: chat: model:2: the template raised an exception: no", template("\n{{ raise_exception('no') }}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := rec.sample(t, lettasim.Config{}, newPrompter(t, prompt.Config{Model: tt.model}))
			if len(s.Rows) != 0 || len(s.Failures) != 1 {
				t.Fatalf("%d rows, %d failures", len(s.Rows), len(s.Failures))
			}
			if f := &s.Failures[0]; f.Call != -1 || f.Reason != tt.reason || f.Stage != "align" || !strings.Contains(f.Error, tt.want) {
				t.Errorf("failure %+v, want %q in its error", f, tt.want)
			}
		})
	}
}

// checkRow detects a row that is wrong by one token.
func TestCheckRowNotices(t *testing.T) {
	t.Parallel()
	truths := []truth{{prompt: []int32{1, 2}, output: []int32{10, 11}}, {prompt: []int32{1, 2, 10, 11, 3}, output: []int32{20}}}
	build := func() *tokenize.Row {
		rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align([]tokenize.Call{
			{Source: tokenize.SourceTurns, PromptIDs: truths[0].prompt, OutputIDs: truths[0].output, Logprobs: []float32{-1, -1}, Version: -1},
			{Source: tokenize.SourceTurns, PromptIDs: truths[1].prompt, OutputIDs: truths[1].output, Logprobs: []float32{-1}, Version: -1, After: tokenize.RoleTool},
		})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return &rows[0]
	}
	for name, plant := range map[string]func(*tokenize.Row){
		"nothing":           func(*tokenize.Row) {},
		"one span too long": func(r *tokenize.Row) { r.TurnOffsets[2]++ },
		"another context":   func(r *tokenize.Row) { r.InputIDs[4] = 4 },
		"another output":    func(r *tokenize.Row) { r.InputIDs[5] = 21 },
		"a call too many":   func(r *tokenize.Row) { r.LastCall++ },
		"a call too few":    func(r *tokenize.Row) { r.LastCall-- },
	} {
		row := build()
		plant(row)
		if err := checkRow(row, truths, make([]bool, 2)); (err == nil) != (name == "nothing") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
