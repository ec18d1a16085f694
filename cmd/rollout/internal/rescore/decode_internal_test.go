package rescore

import (
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

type span struct {
	role tokenize.Role
	text string
}

const (
	prompted = tokenize.RolePrompt
	said     = tokenize.RoleAssistant
	tool     = tokenize.RoleTool
	asked    = tokenize.RoleUser
)

// The answer is the last text that the model wrote after the last message of the user, without tool calls and special
// tokens. Other conversations of a sample do not count.
func TestAnswer(t *testing.T) {
	t.Parallel()
	m, err := model.Load("tokenizer", lettasim.ModelName, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{tokens: decode.New(m.Tokenizer), conversation: true}
	row := func(chain int32, spans ...span) sink.StoredRow {
		r := sink.StoredRow{Chain: chain, TurnOffsets: []int32{0}}
		for _, s := range spans {
			ids, err := m.Tokenizer.AppendTokens(r.InputIDs, s.text)
			if err != nil {
				t.Fatal(err)
			}
			r.InputIDs = ids
			r.TurnOffsets, r.TurnRoles = append(r.TurnOffsets, int32(len(ids))), append(r.TurnRoles, int8(s.role))
			if s.role == said {
				r.FinishReasons = append(r.FinishReasons, "stop")
			}
		}
		return r
	}
	const call = `<tool_call>{"name": "add"}</tool_call>`
	begin := span{prompted, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"}
	padded := row(0, begin, span{said, "It is 5.<|im_end|>"})
	padded.InputIDs[len(padded.InputIDs)-1] = 1 << 20
	last := row(0, begin, span{said, "One."}, span{tool, "1"}, span{said, "Two."})
	last.FinishReasons = []string{"stop", "length"}
	forked := []sink.StoredRow{row(0, begin, span{said, "First"}), row(0, span{prompted, begin.text + "first, 5"}, span{said, "Second."})}
	for _, tt := range []struct {
		name   string
		rows   []sink.StoredRow
		text   string
		finish string
		talk   string
	}{
		{"one call", []sink.StoredRow{row(0, begin, span{said, "It is 5.<|im_end|>"})}, "It is 5.", "stop", `[{"role":"user","content":"Add."},{"role":"assistant","content":"It is 5."}]`},
		{"the last call is a tool call", []sink.StoredRow{row(0, begin, span{said, "I add." + call}, span{tool, "5"}, span{said, call})}, "I add.", "stop", ""},
		{"only tool calls", []sink.StoredRow{row(0, begin, span{said, call}, span{tool, "5"}, span{said, call})}, "", "stop", ""},
		{"a tool call that is cut", []sink.StoredRow{row(0, begin, span{said, "Well <tool_call>{\"na"})}, "Well", "stop", ""},
		{"no answer to the last message", []sink.StoredRow{row(0, begin, span{said, "It is 5."}, span{asked, "And?"}, span{said, call})}, "", "stop", ""},
		{"a fork", []sink.StoredRow{row(0, begin, span{said, "First."}), row(0, begin, span{said, call})}, "First.", "stop", ""},
		{"a fork's conversation", forked, "Second.", "stop", `[{"role":"user","content":"Add."},{"role":"assistant","content":"First"},{"role":"assistant","content":"first, 5Second."}]`},
		{"a subagent", []sink.StoredRow{row(0, begin, span{said, "Mine."}), row(1, begin, span{said, "Other."})}, "Mine.", "stop", ""},
		{"an id without a token", []sink.StoredRow{padded}, "It is 5.", "stop", ""},
		{"the finish reason of the last call", []sink.StoredRow{last}, "Two.", "length", ""},
	} {
		r, calls := d.reply(tt.rows)
		if r.Text != tt.text || r.Output != tt.text {
			t.Errorf("%s: text %q, want %q", tt.name, r.Text, tt.text)
		}
		if len(calls) != 1 || calls[0].FinishReason != tt.finish || len(calls[0].PromptIDs) == 0 {
			t.Errorf("%s: calls %+v, want finish reason %q", tt.name, calls, tt.finish)
		}
		if tt.talk != "" && string(r.Messages) != tt.talk {
			t.Errorf("%s: conversation %s, want %s", tt.name, r.Messages, tt.talk)
		}
	}
}

// If the last call of a sample is in no row, the answer is unknown. Earlier calls and calls that were left out on
// purpose do not matter.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	rows := []sink.StoredRow{{FinishReasons: []string{"stop", "stop"}}}
	for _, tt := range []struct {
		failed []failedCall
		lost   bool
	}{
		{nil, false},
		{[]failedCall{{call: 2}}, true},
		{[]failedCall{{call: 1}}, false},
		{[]failedCall{{call: 2, untrained: true}}, false},
		{[]failedCall{{call: 0}, {call: 3}}, true},
	} {
		if got := lostAnswer(rows, tt.failed); got != tt.lost {
			t.Errorf("%+v: %t", tt.failed, got)
		}
	}
}

// reward.min_std applies to the new rewards of whole groups. Decisions of other filters stay.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rewards [2]float64
		minStd  float64
		whole   bool
		had     string
		want    string
		keep    *bool
	}{
		{[2]float64{1, 1}, 0.1, true, "", "reward_std", new(false)},
		{[2]float64{1, 1}, 0.1, false, "", "", nil},
		{[2]float64{1, 1}, 0, true, "", "", nil},
		{[2]float64{0, 1}, 0.1, true, "reward_std", "", nil},
		{[2]float64{0, 1}, 0.1, true, "stale", "stale", new(true)},
		{[2]float64{1, 1}, 0.1, true, "stale", "reward_std", new(false)},
	} {
		g := &scoredGroup{}
		for i, v := range tt.rewards {
			j := &job{index: int32(i), score: sink.StoredScore{SampleKey: string(rune('a' + i)), Reward: new(v)}}
			if tt.had != "" {
				j.score.Keep, j.score.KeepReason = new(tt.had == "stale"), new(tt.had)
			}
			g.add(j)
		}
		g.filter(tt.minStd, tt.whole)
		for _, s := range g.scores {
			reason := ""
			if s.KeepReason != nil {
				reason = *s.KeepReason
			}
			if reason != tt.want || (s.Keep == nil) != (tt.keep == nil) || s.Keep != nil && *s.Keep != *tt.keep {
				t.Errorf("%+v: keep %v, reason %q", tt, s.Keep, reason)
			}
		}
	}
}
