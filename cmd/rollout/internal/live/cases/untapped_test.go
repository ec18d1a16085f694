//go:build linux

package cases_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// untapped collects through a tap with continuity without reading from it. No row can claim a
// prompt that the engine did not receive, even if a spliced prompt has the same length.
func (w *world) untapped(t *testing.T) {
	p := w.newTap(t, "sglang-untapped", "--continuity", "--tokenizer", w.l.Model)
	tasks := []task{
		play("spaces-kept", "space-tool").with("keep_reasoning", true), play("spaces", "space-tool"), play("sixteen", "sixteen"), play("text-tool", "text-tool"),
		play("compact", "compact"), play("many", "many"), play("multi", "space-tool", "space-tool", "single").with("keep_reasoning", true), play("one-tool", "think-tool").uses("add"),
	}
	for i := range tasks {
		tasks[i] = tasks[i].with("model", p.handle)
	}
	c := collection{name: "continuity without its tap", tasks: tasks, samples: 2, allow: map[string]bool{"continuity": true}, called: true, lost: 1}
	c.args = []string{"--model", p.handle}
	from := len(w.engine.calls())
	res := w.collect(t, c)
	kept, same := p.kept(t, len(w.engine.calls())-from), 0
	spliced := 0
	for _, k := range kept {
		if k.Asked != nil {
			spliced++
		}
		if k.Asked != nil && len(k.Asked) == len(k.Prompt) {
			same++
		}
	}
	t.Logf("%d of %d calls were spliced, %d of them with as many tokens", spliced, len(kept), same)
	if same == 0 || res.Reasons["no_prompt/continuity"] == 0 {
		t.Errorf("%d spliced calls had as many tokens, reasons are %v: this case shows nothing", same, res.Reasons)
	}
}

// foreign has a client copy the output of one imported agent to another. The engine must receive
// the client's text.
func (w *world) foreign(t *testing.T) {
	p := w.newTap(t, "sglang-foreign", "--continuity", "--tokenizer", w.l.Model)
	c := w.l.Client(t, 0)
	file := must(os.ReadFile(w.agentFile(t, p.handle)))(t)
	var agents []string
	for range 2 {
		agents = append(agents, must(c.ImportAgent(t.Context(), file, nil))(t)...)
	}
	send := func(agent string, messages ...letta.InputMessage) {
		t.Helper()
		must(c.Send(t.Context(), agent, &letta.LettaRequest{Messages: messages, ReturnTokenIDs: new(true), ReturnLogprobs: new(true)}, "", &tokenize.Reply{}))(t)
	}
	hello := letta.UserText("Say hello. [script:spaces]")
	send(agents[0], hello)
	send(agents[1], hello, &letta.MessageCreate{Role: "assistant", Content: letta.TextOf("Hello there, friend.")}, letta.UserText("Go on. [script:single]"))
	calls := w.engine.calls()
	last := &calls[len(calls)-1]
	text := w.text(t, last.InputIDs)
	if !strings.Contains(text, "assistant\nHello there, friend.<|im_end|>") || strings.Contains(text, " Hello") {
		t.Errorf("the engine was given\n%s", text)
	}
	for _, id := range agents {
		if err := c.DeleteAgent(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
