package prompt_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// The tokens between two outputs are never assembled from parts. The model's template renders whole
// prompts, and what the next prompt adds is context. Each test covers one rule about these tokens.

// counted rebuilds and aligns a generated life. The server's counts come from a first run.
func (known *knownLife) counted(t *testing.T, model *prompt.Model, cfg tokenize.AlignConfig) ([]tokenize.Call, []tokenize.Row, tokenize.Alignment) {
	t.Helper()
	known.countAll(t, model)
	calls := known.rebuilt(t, prompt.NewRebuilder(model, true, false).Unverified()) // it has no traces
	rows, al := aligned(t, cfg, calls)
	return calls, rows, al
}

func sampled(t *testing.T, model *prompt.Model, id, output, content string) (tokenize.Turn, letta.Step) {
	t.Helper()
	ids := encode(t, model, output)
	logprobs := slices.Repeat([]float32{-0.25}, len(ids))
	return tokenize.Turn{Role: tokenize.RoleAssistant, OutputIDs: ids, Logprobs: logprobs, Content: content, IDMismatch: -1},
		letta.Step{ID: id, CompletionTokens: new(int64(len(ids)))}
}

func encode(tb testing.TB, model *prompt.Model, text string) []int32 {
	tb.Helper()
	return must(model.Tokenizer.AppendTokens(nil, text))(tb)
}

func decode(tb testing.TB, model *prompt.Model, ids []int32) string {
	tb.Helper()
	return string(must(model.Tokenizer.AppendText(nil, ids, bpe.DecodeOptions{}))(tb))
}

func aligned(tb testing.TB, cfg tokenize.AlignConfig, calls []tokenize.Call) ([]tokenize.Row, tokenize.Alignment) {
	tb.Helper()
	rows, al, err := tokenize.NewAligner(cfg).Align(calls)
	if err != nil {
		tb.Fatal(err)
	}
	return rows, al
}

// marked prints a row with its trained tokens in brackets.
func marked(t *testing.T, model *prompt.Model, row *tokenize.Row) string {
	t.Helper()
	var s strings.Builder
	for i, role := range row.TurnRoles {
		lo, hi := row.TurnOffsets[i], row.TurnOffsets[i+1]
		text := decode(t, model, row.InputIDs[lo:hi])
		want := int8(0)
		if tokenize.Role(role) == tokenize.RoleAssistant {
			want = 1
			text = "[" + text + "]"
		}
		if slices.ContainsFunc(row.LossMask[lo:hi], func(m int8) bool { return m != want }) {
			t.Errorf("span %d (%v) is not all masked %d", i, tokenize.Role(role), want)
		}
		s.WriteString(text)
	}
	return s.String()
}

// R10: the newline that Qwen's template writes after a turn is context. No model samples it.
func TestMissingNewline(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool")[0]
	calls := known.rebuilt(t, prompt.NewRebuilder(model, true, false))
	rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(calls)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	row := &rows[0]
	end, _ := model.Tokenizer.ID("<|im_end|>")
	newline := encode(t, model, "\n")
	at := row.TurnOffsets[2] // the first token after the first output
	if row.InputIDs[at-1] != end || row.LossMask[at-1] != 1 || row.InputIDs[at] != newline[0] || row.LossMask[at] != 0 {
		t.Errorf("ids %v mask %v around the end of the output, want a sampled %d and an unsampled %d", row.InputIDs[at-1:at+1], row.LossMask[at-1:at+1], end, newline[0])
	}
}

// R7: parallel results stay one message, as the server joined them.
func TestParallelResultsAreOneGroup(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool-parallel")[0]
	calls := known.rebuilt(t, prompt.NewRebuilder(model, true, false))
	text := decode(t, model, calls[1].PromptIDs)
	if n := strings.Count(text, "<tool_response>"); n != 1 || strings.Count(text, `"status": "OK"`) != 2 {
		t.Errorf("%d tool messages in the prompt, want one with both results:\n%s", n, text)
	}
}

// R11: the template writes the missing end of a truncated turn in the next prompt, and it is
// context. The first send is the recorded length stop. The second is generated, because no
// recording continues after a length stop without a compaction. The recorded text ends with a
// space, which the server strips: the next prompt forks.
func TestTruncatedTurnIsClosed(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "length")[0]
	for _, tt := range []struct {
		name string
		less int // tokens removed from the end of the recorded output
		rows int
	}{{"as recorded", 0, 2}, {"without its last space", 1, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			of := known.clone()
			e, m := of.reply.Evidence, of.memory
			clear(m.traces) // the recorded trace has the whole output
			cut := &of.reply.Sends[0].Turns[0]
			n := len(cut.OutputIDs) - tt.less
			cut.OutputIDs, cut.Logprobs = cut.OutputIDs[:n], cut.Logprobs[:n]
			m.steps[0][0].CompletionTokens = new(int64(n))
			turn, step := sampled(t, model, "step-2", "Done.<|im_end|>", "Done.")
			of.reply.Sends = append(of.reply.Sends, collector.Send{Turns: []tokenize.Turn{turn}, RunID: "run-2"})
			e.Sends = append(e.Sends, record.Send{
				Request: &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("Go on.")}}, Response: &letta.LettaResponse{}, RunID: "run-2",
			})
			m.steps = append(m.steps, []letta.Step{step})
			m.messages = append(m.messages, letta.Messages{{Type: letta.TypeUser, Content: letta.Content{Text: "Go on."}}})
			calls, rows, _ := of.counted(t, model, tokenize.AlignConfig{})
			if !slices.Equal(calls[0].PromptIDs, known.truths[0].prompt) {
				t.Error("the first prompt is not the recorded one")
			}
			if end, _ := model.Tokenizer.ID("<|im_end|>"); slices.Contains(calls[0].OutputIDs, end) {
				t.Fatal("the recorded output is not truncated")
			}
			if len(rows) != tt.rows {
				t.Fatalf("%d rows, want %d", len(rows), tt.rows)
			}
			last := marked(t, model, &rows[len(rows)-1])
			if !strings.HasSuffix(last, "<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n[Done.<|im_end|>]") {
				t.Errorf("row %q", last)
			}
			if tt.rows == 1 && !strings.Contains(last, " word]<|im_end|>\n<|im_start|>user") {
				t.Errorf("row %q: the end of the truncated output is not context", last)
			}
		})
	}
}

// In the recording, a compaction separates the length stop from the next call. So the first row
// ends truncated and the second call begins a row, with the prompts that the engine received.
func TestRecordedLengthStopThenCall(t *testing.T) {
	t.Parallel()
	known := remembered(t, "compaction")[0]
	var calls []tokenize.Call
	for _, truth := range known.truths {
		c := tokenize.Call{PromptIDs: truth.prompt, OutputIDs: truth.output, Logprobs: make([]float32, len(truth.output)), Source: tokenize.SourceTap, Version: -1}
		for i := range c.Logprobs {
			c.Logprobs[i] = -1
		}
		if len(truth.output) == 4096 {
			c.FinishReason = "length"
		}
		calls = append(calls, c)
	}
	if calls[1].FinishReason != "length" || len(calls[2].PromptIDs) <= len(calls[1].PromptIDs)+len(calls[1].OutputIDs) {
		t.Fatal("the recording has no length stop that a longer prompt follows")
	}
	rows, _ := aligned(t, tokenize.AlignConfig{}, calls)
	seen := make([]bool, len(calls))
	for i := range rows {
		if err := checkRow(&rows[i], known.truths, seen); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
		d := rows[i].Divergence
		if i > 0 && rows[i].FirstCall == 2 && (d == nil || d.Kind != tokenize.DivergedInPrompt || d.Offset != 81) {
			t.Errorf("row %d: divergence %+v, want one in the system message", i, d)
		}
		if rows[i].Truncated != (rows[i].LastCall == 2) {
			t.Errorf("row %d of calls %d to %d: truncated %v", i, rows[i].FirstCall, rows[i].LastCall, rows[i].Truncated)
		}
	}
}

// chatTemplates returns the templates of many models, by name.
func chatTemplates(t *testing.T) (sources map[string]string) {
	t.Helper()
	raw := must(tokenizetest.Gunzip(filepath.Join(testdata, "chat-templates/templates.json.gz")))(t)
	if err := json.Unmarshal(raw, &sources); err != nil {
		t.Fatal(err)
	}
	return sources
}

// glm returns GLM-4.5's template with a tokenizer that has its markers. GLM's own vocabulary is not
// stored, and the ids of words do not matter here.
func glm(t *testing.T) *prompt.Model {
	t.Helper()
	tmpl := parseTemplate(t, "glm-4.5", chatTemplates(t)["zai-GLM-4.5.jinja"], chat.Options{})
	file := bpetest.Read(t, "qwen3", "tokenizer.json")
	for was, is := range map[string]string{
		"<|im_start|>": "<|system|>", "<|im_end|>": "<|user|>", "<|box_start|>": "<|assistant|>", "<|box_end|>": "<|observation|>",
		"<|quad_start|>": "[gMASK]", "<|quad_end|>": "<sop>",
	} {
		file = bytes.ReplaceAll(file, []byte(was), []byte(is))
	}
	tok := must(bpe.Parse(file, bpe.Options{Experimental: true}))(t)
	return &prompt.Model{Template: tmpl, Tokenizer: tok}
}

// R12: a model like GLM ends its turn by sampling the marker of the next role. The marker is kept
// and trained with its log-probability, and is not written twice. If the next role is another one,
// the row ends with the marker and the next prompt is the real one.
func TestRoleMarkerStop(t *testing.T) {
	t.Parallel()
	model := glm(t)
	const called = "\n<think></think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
	const result = "{\n  \"status\": \"OK\",\n  \"message\": \"5\"\n}"
	const head = "[gMASK]<sop><|system|>\nBe brief.<|user|>\nAdd.<|assistant|>"
	tests := []struct {
		name, marker string
		cfg          tokenize.AlignConfig
		want         []string
		trimmed      int
	}{
		{
			name: "the next role", marker: "<|observation|>",
			want: []string{head + "[" + called + "<|observation|>]\n<tool_response>\n" + result + "\n</tool_response><|assistant|>[\n<think></think>\n5<|user|>]"},
		},
		{
			name: "another role", marker: "<|user|>",
			want: []string{
				head + "[" + called + "<|user|>]",
				head + called + "<|observation|>\n<tool_response>\n" + result + "\n</tool_response><|assistant|>[\n<think></think>\n5<|user|>]",
			},
		},
		{
			name: "another role, realigned", marker: "<|user|>", cfg: tokenize.AlignConfig{Drift: tokenize.DriftRealign, RealignMax: 1}, trimmed: 1,
			want: []string{head + "[" + called + "]<|observation|>\n<tool_response>\n" + result + "\n</tool_response><|assistant|>[\n<think></think>\n5<|user|>]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first, step1 := sampled(t, model, "step-1", called+tt.marker, "<think></think>")
			second, step2 := sampled(t, model, "step-2", "\n<think></think>\n5<|user|>", "<think></think>\n5")
			id, args := "step-1", `{"a": 2}`
			of := &knownLife{reply: new(prompt.Answered), memory: &memory{
				agent: new(letta.AgentState), system: "Be brief.", steps: [][]letta.Step{{step1, step2}},
				messages: []letta.Messages{{
					{Type: letta.TypeToolCall, StepID: id, ToolCalls: []letta.ToolCall{{Name: "add", Arguments: args, ToolCallID: "c1"}}},
					{Type: letta.TypeToolReturn, StepID: id, ToolReturns: []letta.ToolReturn{{ToolCallID: "c1"}}},
				}},
			}}
			of.reply.Evidence = &record.Rollout{Agent: of.memory.agent, SystemText: of.memory.system, Sends: []record.Send{{
				Request: &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("Add.")}}, Response: &letta.LettaResponse{}, RunID: "run-1",
			}}}
			tool := tokenize.Turn{Role: tokenize.RoleTool, Content: result, ToolName: "add", IDMismatch: -1}
			of.reply.Sends = []collector.Send{{Turns: []tokenize.Turn{first, tool, second}, RunID: "run-1"}}
			_, rows, al := of.counted(t, model, tt.cfg)
			var got []string
			for i := range rows {
				got = append(got, marked(t, model, &rows[i]))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("rows\n%q\nwant\n%q", got, tt.want)
			}
			if al.Trimmed != tt.trimmed || al.Sampled != al.Trained+al.Trimmed {
				t.Errorf("%+v, want %d trimmed", al, tt.trimmed)
			}
		})
	}
}

// A fetched trace provides finish reason and policy version. Without it, both are unknown.
func TestTraceTellsTheEnd(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "length")[0]
	versioned, untraced := known.clone(), known.clone()
	for id, trace := range known.memory.traces {
		response := strings.Replace(string(trace.Response.JSON), `"default"`, `"17"`, 1)
		versioned.memory.traces[id] = traceOf(t, string(trace.Request.JSON), response)
	}
	clear(untraced.memory.traces)
	for _, tt := range []struct {
		name    string
		trace   bool
		life    *knownLife
		finish  string
		version int32
		grade   tokenize.Grade
	}{
		{"no trace", false, untraced, "", -1, tokenize.Unverified},
		{"a trace for the order of the tools", false, known, "length", -1, tokenize.CountVerified},
		{"a trace", true, known, "length", -1, tokenize.CountVerified},
		{"an engine that is updated", true, versioned, "length", 17, tokenize.CountVerified},
	} {
		calls := tt.life.rebuilt(t, prompt.NewRebuilder(model, !tt.trace, tt.trace).Unverified())
		if c := &calls[0]; c.FinishReason != tt.finish || c.Version != tt.version || c.Grade != tt.grade {
			t.Errorf("%s: finish %q, version %d, %v", tt.name, c.FinishReason, c.Version, c.Grade)
		}
	}
}
