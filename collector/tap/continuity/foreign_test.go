package continuity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/continuity"
)

// Agents that were imported from one file have the same prompts, and the same agent's id in
// their system message. A client that writes the words of one of them into another one gets no
// sampled tokens for its text.
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
		foreign string // what the client makes of the file's prompt
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

	// What a conversation was given is not given to an import of it.
	s := newScript(t, qwen3(t))
	s.tell(file, thought+call)
	answered(s.table, s.ids(file+call+result), s.ids(file+thought+call+result), s.ids("Five.<|im_end|>"))
	s.want(file+call+result+"Five.<|im_end|>"+more, "", continuity.ReasonClient)
	// Two agents that sampled the same have one prompt each.
	s.tell(file, thought+call)
	s.want(file+call+copied, file+thought+call+copied, continuity.ReasonDeleted)
	s.want(file+call+copied, file+thought+call+copied, continuity.ReasonDeleted) // sent again
	s.want(file+call+strings.Replace(copied, "6", "7", 1), "", continuity.ReasonTaken)
}

// TestWrittenWords lets a client write what one agent said into another one with the same
// beginning, at any moment: with the words of a user behind it, with another turn, and with the
// copy of a result once the agent itself has gone on. Nothing of it is spliced.
func TestWrittenWords(t *testing.T) {
	t.Parallel()
	written, spliced := 0, 0
	for seed := range uint64(150) {
		w := newWorld(t, draws(seed, 300), seed%2 == 0)
		w.agents = w.agents[:1]
		a := w.agents[0]
		for len(w.draw) > 0 {
			if a.waits {
				w.answer(a)
				continue
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
				// A turn follows at once.
			case 2:
				if at+1 >= len(a.messages) || sampledTwice(a) {
					continue // the agent has not gone on, or another prompt can follow
				}
				b.messages = append(b.messages[:at+1], message{role: "user", content: "<tool_response>\n" + w.text() + " written\n</tool_response>"})
			}
			w.ask(b) // it fails if anything is spliced: b has no call of its own
			written++
		}
	}
	t.Logf("%d prompts with words of a client, %d splices of the agents", written, spliced)
	if written < 500 || spliced < 300 {
		t.Errorf("%d prompts with words of a client and %d splices show too little", written, spliced)
	}
}

// sampledTwice reports whether two calls of an agent are the same, as calls of two agents can be.
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

// turns are the indexes of the agent's own turns that it has asked behind.
func (w *world) turns(a *agent) (at []int) {
	for i, m := range a.messages {
		if m.role == "assistant" && i > 1 {
			at = append(at, i)
		}
	}
	return at
}

// printed is a turn as the template prints it, as a text that a client can send.
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
