package continuity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
)

// TestForeign proves that a client gets no sampled tokens for text that it copies from another
// agent, even if both agents come from one file and have the same prompts.
func TestForeign(t *testing.T) {
	t.Parallel()
	const (
		file    = "<|im_start|>system\nBe short.\n- AGENT_ID: agent-00000000-0000-4000-8000-000000000000<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n"
		thought = "<think>\nx\n</think>\n\n"
		more    = "\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
		copied  = "\n<|im_start|>user\n<tool_response>\n6\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	)
	for _, tt := range []struct {
		name    string
		sampled string // by the other agent, for the file's prompt
		asked   string // by the other agent, after that; empty: nothing
		foreign string // the prompt that the client makes
		want    continuity.Reason
	}{
		{"an answer", " Hello there, friend. \n\n<|im_end|>", "", "Hello there, friend.<|im_end|>" + more, continuity.ReasonClient},
		{"an answer in other tokens", "Hello<|im_end|>", "", "Hello<|im_end|>" + more, continuity.ReasonSame},
		{"a call without a result", thought + call, "", call + more, continuity.ReasonClient},
		{"a result without a call", " Hello there, friend. \n\n<|im_end|>", "", "Hello there, friend.<|im_end|>" + copied, continuity.ReasonClient},
		{"a call before another turn", thought + call, "", call + "\n<|im_start|>assistant\n", continuity.ReasonClient},
		{"a call and its result, later", thought + call, call + result, call + copied, continuity.ReasonTaken},
		{"a result and words", thought + call, "", call + strings.TrimSuffix(copied, "<|im_start|>assistant\n") + more[1:], continuity.ReasonClient},
	} {
		s := newScript(t, qwen3(t))
		s.tell(file, tt.sampled)
		if tt.asked != "" {
			s.want(file+tt.asked, file+thought+tt.asked, continuity.ReasonDeleted)
		}
		t.Log(tt.name)
		s.want(file+tt.foreign, "", tt.want)
	}

	// An import of a conversation does not get its tokens.
	s := newScript(t, qwen3(t))
	s.tell(file, thought+call)
	answered(s.table, s.ids(file+call+result), s.ids(file+thought+call+result), s.ids("Five.<|im_end|>"))
	s.want(file+call+result+"Five.<|im_end|>"+more, "", continuity.ReasonClient)
	// Two agents that sampled the same output can each continue it once.
	s.tell(file, thought+call)
	s.want(file+call+copied, file+thought+call+copied, continuity.ReasonDeleted)
	s.want(file+call+copied, file+thought+call+copied, continuity.ReasonDeleted)
	s.want(file+call+copied, "", continuity.ReasonTaken)
	s.want(file+call+strings.Replace(copied, "6", "7", 1), "", continuity.ReasonTaken)
}

// TestForeignSameResult proves that a prompt that continued a call is spliced again only if it got
// no answer. After an answer, or while the engine works on it, another agent is asking.
func TestForeignSameResult(t *testing.T) {
	t.Parallel()
	const x = "<think>\nx\n</think>\n\n"
	asked, sent := head+call+result, head+x+call+result
	for _, tt := range []struct {
		name   string
		answer tap.Call
		want   continuity.Reason
	}{
		{"answered", tap.Call{Status: 200, Output: []int32{imEnd}}, continuity.ReasonTaken},
		{"answered and not read", tap.Call{Status: 200}, continuity.ReasonTaken},
		{"an error", tap.Call{Status: 500}, continuity.ReasonDeleted},
		{"cut", tap.Call{Status: 200, Cut: true}, continuity.ReasonDeleted},
		{"no engine", tap.Call{Cut: true}, continuity.ReasonDeleted},
	} {
		t.Log(tt.name)
		s := newScript(t, qwen3(t))
		s.tell(head, x+call)
		s.want(asked, sent, continuity.ReasonDeleted)
		s.want(asked, "", continuity.ReasonTaken) // another agent, at the same time
		s.table.Answered(&tap.Call{Status: 500, Prompt: s.ids(asked)})
		s.want(asked, "", continuity.ReasonTaken) // the failure was the other agent's
		tt.answer.Prompt, tt.answer.Asked = s.ids(sent), s.ids(asked)
		s.table.Answered(&tt.answer)
		want := ""
		if tt.want.Spliced() {
			want = sent
			s.want(head+call+strings.Replace(result, "5", "6", 1), "", continuity.ReasonTaken)
		}
		s.want(asked, want, tt.want)
		s.want(asked, "", continuity.ReasonTaken)
	}
}

// TestForeignAfterRestart proves that a new table knows which calls were continued.
func TestForeignAfterRestart(t *testing.T) {
	t.Parallel()
	const x = "<think>\nx\n</think>\n\n"
	asked, sent := head+call+result, head+x+call+result
	written := head + call + strings.Replace(result, "5", "6", 1)
	for _, tt := range []struct {
		name string
		next tap.Call // the spool's next record
		same continuity.Reason
		new  continuity.Reason // for another result
	}{
		{"nothing", tap.Call{}, continuity.ReasonDeleted, continuity.ReasonTaken},
		{"spliced", tap.Call{Status: 200, Asked: []int32{}, Output: []int32{imEnd}}, continuity.ReasonTaken, continuity.ReasonTaken},
		{"not spliced", tap.Call{Status: 200, Output: []int32{imEnd}}, continuity.ReasonTaken, continuity.ReasonTaken},
		{"failed", tap.Call{Status: 500, Asked: []int32{}}, continuity.ReasonDeleted, continuity.ReasonTaken},
	} {
		t.Log(tt.name)
		s := newScript(t, qwen3(t))
		s.table.Recall(&tap.Call{Status: 200, Prompt: s.ids(head), Output: s.ids(x + call)})
		if tt.next.Prompt = s.ids(asked); tt.next.Asked != nil {
			tt.next.Prompt, tt.next.Asked = s.ids(sent), s.ids(asked)
		}
		if tt.next.Status != 0 {
			s.table.Recall(&tt.next)
		}
		if got := s.table.Stats().Prompts; got[continuity.ReasonNew] != 0 {
			t.Errorf("recalled text counts as prompts: %v", got)
		}
		want := ""
		if tt.same.Spliced() {
			want = sent
		}
		s.want(asked, want, tt.same)
		s.want(written, "", tt.new)
	}
}

// TestWrittenWords lets a client copy an agent's turn into another agent with the same beginning,
// at any time: followed by user text, by another turn, or, once the agent itself has continued, by
// a tool result. None of it is spliced, also after a restart.
func TestWrittenWords(t *testing.T) {
	t.Parallel()
	written, same, spliced := 0, 0, 0
	for seed := range uint64(150) {
		w := newWorld(t, draws(seed, 300), seed%2 == 0)
		w.agents = w.agents[:1]
		a := w.agents[0]
		for len(w.draw) > 0 {
			if a.waits {
				w.answer(a)
				continue
			}
			if w.one(8) {
				w.restart()
			}
			w.ask(a)
			if a.sent != nil {
				spliced++
			}
			turns := w.turns(a)
			if len(turns) == 0 {
				continue
			}
			at := turns[w.n(len(turns))]
			b := &agent{name: "the client's", scrub: a.scrub, messages: slices.Clone(a.messages[:at])}
			for _, m := range a.messages[at : at+1+w.n(len(a.messages)-at)] {
				if m.role != "assistant" {
					continue
				}
				if w.one(2) && !a.scrub {
					m.content += "\n"
				}
				b.messages = append(b.messages, message{role: "assistant", content: printed(&m, a.scrub)})
			}
			switch w.n(3) {
			case 0:
				b.messages = append(b.messages, message{role: "user", content: w.text()})
			case 1:
				// Another turn follows.
			case 2:
				if at+1 >= len(a.messages) || sampledTwice(a) {
					continue // the agent has not continued, or another prompt can follow
				}
				text := w.text() + " written"
				if result := a.messages[at+1]; result.role == "tool" && w.one(2) {
					text = result.content
					same++
				}
				b.messages = append(b.messages[:at+1], message{role: "user", content: "<tool_response>\n" + text + "\n</tool_response>"})
			}
			w.ask(b) // fails if anything is spliced, because b has no call of its own
			written++
		}
	}
	t.Logf("%d prompts with words of a client, %d of them with the same result, %d splices of the agents", written, same, spliced)
	if written < 500 || same < 100 || spliced < 300 {
		t.Errorf("%d prompts with words of a client, %d with the same result, and %d splices show too little", written, same, spliced)
	}
}

// sampledTwice reports whether two calls of an agent are equal, as calls of two agents can be.
func sampledTwice(a *agent) bool {
	for i := range a.calls {
		for j := range i {
			if slices.Equal(a.calls[i].Prompt, a.calls[j].Prompt) && slices.Equal(a.calls[i].Output, a.calls[j].Output) {
				return true
			}
		}
	}
	return false
}

// turns returns the indexes of the agent's own turns that later prompts contain.
func (w *world) turns(a *agent) (at []int) {
	for i, m := range a.messages {
		if m.role == "assistant" && i > 1 {
			at = append(at, i)
		}
	}
	return at
}

// printed returns a turn as the template prints it, as a client can send it.
func printed(m *message, scrub bool) string {
	text := m.content
	if scrub && len(m.calls) > 0 {
		text = ""
	}
	for i, c := range m.calls {
		if i > 0 || text != "" {
			text += "\n"
		}
		text += fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", c.name, c.arguments)
	}
	return text
}
