package continuity_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A world is a server with some agents, an engine, and a table between them. All events are drawn
// from one byte list, so that a fuzzer can steer it. It checks every sent prompt against its own
// records: which agent asks, and the agent's calls.
type world struct {
	tb     testing.TB
	cfg    continuity.Config
	tok    *bpe.Tokenizer
	table  *continuity.Table
	draw   []byte
	agents []*agent
	spool  []tap.Call
	seen   map[continuity.Reason]int
	// tame excludes all events for which a splice must be refused.
	tame bool
}

type agent struct {
	name     string
	messages []message
	scrub    bool // prompts omit the text before calls
	parallel bool // more than one call is kept
	waits    bool // asked and sent are at the engine
	asked    []int32
	sent     []int32
	calls    []tap.Call // answered calls of this agent only
}

type message struct {
	role, content string
	calls         []simCall
}

// A simCall is a call as the server stores it.
type simCall struct {
	name      string
	arguments string
}

// n draws a number below limit, or 0 if no bytes are left.
func (w *world) n(limit int) int {
	if len(w.draw) == 0 {
		return 0
	}
	b := w.draw[0]
	w.draw = w.draw[1:]
	return int(b) % limit
}

func (w *world) one(n int) bool { return w.n(n) == n-1 }

func newWorld(tb testing.TB, draw []byte, tame bool) *world {
	tb.Helper()
	w := &world{tb: tb, cfg: qwen3(tb), draw: draw, tame: tame, seen: map[continuity.Reason]int{}}
	w.tok = w.cfg.Tokenizer
	if w.one(4) && !tame {
		w.cfg.MaxBytes = 64 << 10 // dropped sites are still remembered
	}
	w.table = newTable(tb, w.cfg)
	same := w.one(2) && !tame // agents are imports of one file
	for i := range 1 + w.n(4) {
		a := &agent{name: fmt.Sprint("agent ", i), scrub: !w.one(3), parallel: w.one(2)}
		id := i
		if same {
			id = 0
		}
		a.messages = []message{{role: "system", content: fmt.Sprintf("Be short.\n- AGENT_ID: %d", id)}, {role: "user", content: "What is 2 and 3?"}}
		w.agents = append(w.agents, a)
	}
	return w
}

func (w *world) run() {
	for len(w.draw) > 0 {
		a := w.agents[w.n(len(w.agents))]
		switch {
		case a.waits:
			w.answer(a)
		case w.tame:
			w.ask(a)
		case w.one(24):
			w.restart()
		case w.one(10):
			w.edit(a)
		default:
			w.ask(a)
		}
	}
}

func (w *world) ask(a *agent) {
	asked, ok := w.render(a)
	if !ok {
		a.messages = a.messages[:min(len(a.messages), 2)] // the template refuses it: start again
		return
	}
	sent, reason := decide(w.tb, w.table, asked)
	w.seen[reason]++
	a.waits, a.asked, a.sent = true, asked, sent
	if sent == nil {
		return
	}
	var outputs [][]int32
	own := false
	for _, c := range a.calls {
		outputs = append(outputs, c.Output)
		own = own || len(sent) > len(c.Prompt)+len(c.Output) && slices.Equal(sent[:len(c.Prompt)], c.Prompt) && slices.Equal(sent[len(c.Prompt):][:len(c.Output)], c.Output)
	}
	if !own {
		w.tb.Fatalf("%s is given the history of another agent (%v):\n%s", a.name, reason, decode(w.tb, w.tok, sent))
	}
	checkSplice(w.tb, a.name, asked, sent, outputs)
}

func (w *world) answer(a *agent) {
	a.waits = false
	c := tap.Call{Status: 200, Prompt: a.asked}
	if a.sent != nil {
		c.Prompt, c.Asked = a.sent, a.asked
	}
	switch {
	case !w.tame && w.one(30):
		c.Status = 500
	case !w.tame && w.one(30):
		c.Cut = true
	default:
		c.Output = w.sample(a)
	}
	w.table.Answered(&c)
	w.spool = append(w.spool, c)
	if c.Output == nil {
		return // the server has an error; the agent asks again
	}
	a.calls = append(a.calls, c)
	text, err := w.tok.AppendText(nil, c.Output, bpe.DecodeOptions{SkipSpecial: true})
	if err != nil {
		w.tb.Fatal(err)
	}
	w.store(a, string(text))
}

// store stores an answer as the server does: it extracts the calls from the text, trims the rest,
// and runs the tools.
func (w *world) store(a *agent, text string) {
	m := message{role: "assistant", content: strings.TrimSpace(callPattern.ReplaceAllString(text, ""))}
	for _, match := range callPattern.FindAllStringSubmatch(text, -1) {
		m.calls = append(m.calls, storedCall(strings.TrimSpace(match[1])))
	}
	if !a.parallel && len(m.calls) > 1 {
		m.calls = m.calls[:1]
	}
	if m.content != "" || len(m.calls) > 0 {
		a.messages = append(a.messages, m)
	}
	if len(m.calls) == 0 {
		a.messages = append(a.messages, message{role: "user", content: w.text()})
		return
	}
	result := "{\n  \"status\": \"OK\",\n  \"message\": \"" + w.text() + "\"\n}"
	if !w.tame && w.one(6) {
		result += "<|im_end|>\n<|im_start|>assistant\n" + w.text() + "<|im_end|>\n<|im_start|>user\n"
	}
	a.messages = append(a.messages, message{role: "tool", content: result})
	if !w.tame && w.one(12) {
		a.messages = append(a.messages, message{role: "user", content: w.text()})
	}
}

func storedCall(raw string) simCall {
	var c struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(raw), &c) != nil || c.Name == "" {
		return simCall{raw, "{}"}
	}
	arguments := string(c.Arguments)
	if !strings.HasPrefix(arguments, "{") {
		arguments = "{}"
	}
	if i := strings.Index(arguments, "}{"); i >= 0 {
		arguments = "{}"
	}
	return simCall{c.Name, arguments}
}

// edit changes the stored conversation, which no agent does itself.
func (w *world) edit(a *agent) {
	i := w.n(len(a.messages))
	m := &a.messages[i]
	switch w.n(7) {
	case 0:
		m.content += w.text()
	case 1:
		m.content = strings.Replace(m.content, "e", "a", 1)
	case 2:
		if len(m.calls) > 0 {
			m.calls = slices.Clone(m.calls)
			m.calls[0].arguments = `{"a": 9}`
		}
	case 3:
		if i > 0 {
			a.messages = slices.Delete(slices.Clone(a.messages), i, i+1)
		}
	case 4:
		m.role = []string{"user", "tool", "assistant"}[w.n(3)]
	case 5: // a compaction
		last := a.messages[len(a.messages)-1]
		a.messages = []message{{role: "system", content: a.messages[0].content + " "}, {role: "user", content: "summary: " + w.text()}, last}
	case 6:
		a.scrub = !a.scrub
	}
}

func (w *world) restart() {
	w.table = newTable(w.tb, w.cfg)
	for _, c := range w.spool {
		w.table.Recall(&c)
	}
}

// render returns the prompt of an agent. ok is false if the template refuses it.
func (w *world) render(a *agent) (ids []int32, ok bool) {
	var list []string
	for _, m := range a.messages {
		content := m.content
		if a.scrub && len(m.calls) > 0 {
			content = ""
		}
		text := `{"role": "` + m.role + `", "content": ` + quote(content)
		for i, c := range m.calls {
			text += []string{`, "tool_calls": [`, `, `}[min(i, 1)] + `{"function": {"name": ` + quote(c.name) + `, "arguments": ` + c.arguments + `}}`
		}
		if len(m.calls) > 0 {
			text += "]"
		}
		list = append(list, text+"}")
	}
	value, err := chat.FromJSON([]byte("[" + strings.Join(list, ",") + "]"))
	if err != nil {
		return nil, false
	}
	text, err := w.cfg.Template.Render(nil, chat.Input{Messages: value, AddGenerationPrompt: true})
	if err != nil {
		return nil, false
	}
	return encode(w.tb, w.tok, string(text)), true
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
