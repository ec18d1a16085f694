package lettasim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
)

// A script contains the calls of a scripted agent in one send. It is immutable.
type script struct {
	user  []string
	calls []call
	stop  string
}

// A call is one generation by the simulated model.
type call struct {
	prompt, output []int32
	logprobs       []float32
	text           string        // text before the tool call; in the last call, the whole text
	end            string        // the engine's finish reason as JSON; empty means stop
	use            *toolUse      // nil in the last call
	asked          int           // number of messages in the prompt
	messages       [][]byte      // the history in the format of a trace; the prompt contains messages[:asked]
	answer         *engineAnswer // nil if the call is simulated
}

type toolUse struct {
	name, args, id   string
	result, packaged string
}

// text returns the tool call as the model writes it.
func (u *toolUse) text() string {
	return "<tool_call>\n{\"name\": \"" + u.name + "\", \"arguments\": " + u.args + "}\n</tool_call>"
}

// A history is the context of an agent: the ids of the prompt so far, and the messages in the
// format of a trace. Both slices are append-only, so that scripts can share parts of them. Text
// that the server drops is never added.
type history struct {
	ids      []int32
	messages [][]byte
}

type author struct {
	shape     Script
	r         *rng
	system    string
	sigs      []signature
	keepsText bool
	maxSteps  int
	fault     FaultKind // Abort, AbortEarly, LengthCall, or none
	// generate sends a call to the user's engine. If generate is nil, the calls are simulated.
	generate func(prompt []int32) (*engineAnswer, error)
}

// The finish reasons of a call, except stop.
const (
	endLength = `{"type":"length","length":4096}`
	endAbort  = `{"type":"abort","message":"Abort in process"}`

	maxNewTokens = 4096 // the limit in the server's requests to an engine
)

var (
	wantedAnswer = regexp.MustCompile(`\[answer:([^\]]*)\]`)
	wantedSum    = regexp.MustCompile(`(?i)(?:add\s+(-?\d+)\s+(?:and|to)\s+(-?\d+)|(-?\d+)\s*\+\s*(-?\d+))`)
	wantedMul    = regexp.MustCompile(`(?i)(?:multiply\s+(-?\d+)\s+(?:and|by|with)\s+(-?\d+)|(-?\d+)\s*(?:\*|×|times)\s*(-?\d+))`)
)

func numbers(p *regexp.Regexp, text string) (a, b int, found bool) {
	m := p.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	if m[1] == "" {
		m[1], m[2] = m[3], m[4]
	}
	a, errA := strconv.Atoi(m[1])
	b, errB := strconv.Atoi(m[2])
	return a, b, errA == nil && errB == nil
}

// write generates the script of one send and extends the history. If the engine fails, the script
// contains the calls before the failure.
func (w *author) write(h *history, user []string) (*script, error) {
	sc := &script{user: user, stop: "end_turn"}
	if h.messages == nil {
		w.begin(h)
	}
	for _, text := range user {
		w.add(h, "user", text, nil)
	}
	n, last := w.calls(sc), ""
	if len(user) > 0 {
		last = user[len(user)-1]
	}
	for k := range n {
		if w.generate == nil {
			h.ids = appendText(h.ids, startMark+"assistant\n")
		}
		c := call{asked: len(h.messages), messages: h.messages, prompt: slices.Clip(h.ids)}
		callsTool := k < n-1 || sc.stop == "max_steps"
		switch {
		case w.generate != nil:
			if err := w.callEngine(&c, sc, last, callsTool); err != nil {
				return sc, err
			}
		case callsTool:
			w.callTool(&c, last, k == 0 && w.fault == LengthCall)
		default:
			w.conclude(&c, sc, last)
		}
		if c.answer == nil {
			c.logprobs = sglang.Logprobs(0, c.output)
		}
		w.extend(h, &c)
		sc.calls = append(sc.calls, c)
		if sc.stop == "max_tokens_exceeded" {
			break
		}
	}
	return sc, nil
}

func (w *author) callEngine(c *call, sc *script, last string, callsTool bool) error {
	a, err := w.generate(c.prompt)
	if err != nil {
		return err
	}
	c.answer, c.output, c.logprobs, c.text = a, a.ids, a.logprobs, a.said()
	if a.Meta.Finish.Type == "length" {
		sc.stop = "max_tokens_exceeded"
	} else if callsTool {
		c.use = w.use(last)
	}
	return nil
}

// extend adds a call and the result of its tool to the history. For a share of the tool calls,
// which Script.Drift sets, extend omits the text before the call.
func (w *author) extend(h *history, c *call) {
	text, output := c.text, c.output
	if w.generate == nil && c.use != nil {
		if drift := w.r.float() < w.shape.Drift; drift && !w.keepsText && text != "" {
			text, output = "", appendText(nil, c.use.text()+endMark)
		}
	}
	h.ids = append(h.ids, output...)
	if w.generate == nil {
		h.ids = append(h.ids, idNewline)
	}
	h.messages = append(h.messages, openAI("assistant", text, c.use))
	if c.use != nil {
		w.add(h, "tool", c.use.packaged, c.use)
	}
}

// calls returns the number of calls in the send. If the step limit will end the send, the method
// calls also sets sc.stop.
func (w *author) calls(sc *script) int {
	n := w.r.in(w.shape.Calls)
	if len(w.sigs) == 0 {
		n = 1
	}
	if w.maxSteps > 0 && n > w.maxSteps {
		n, sc.stop = w.maxSteps, "max_steps"
	}
	return n
}

func (w *author) begin(h *history) {
	h.messages = append(h.messages, openAI("system", w.system, nil))
	if w.generate != nil {
		return // prompts for the user's engine have no system text
	}
	text := startMark + "system\n" + w.system
	if len(w.sigs) > 0 { // the template adds the tools, which the message does not contain
		names := make([]string, len(w.sigs))
		for i, s := range w.sigs {
			names[i] = s.name
		}
		text += "\n\n# Tools\n\n" + strings.Join(names, " ")
	}
	h.ids = appendText(h.ids, text+endMark+"\n")
}

// add adds a user message or a tool result to the history. In a prompt for the user's engine, the
// text consists of its bytes and a newline, without a template.
func (w *author) add(h *history, role, text string, use *toolUse) {
	h.messages = append(h.messages, openAI(role, text, use))
	if w.generate != nil {
		for i := range len(text) {
			h.ids = append(h.ids, int32(text[i]))
		}
		h.ids = append(h.ids, '\n')
		return
	}
	if role == "tool" {
		text = "<tool_response>\n" + text + "\n</tool_response>"
	}
	h.ids = appendText(h.ids, startMark+"user\n"+text+endMark+"\n")
}

// think returns text with n tokens.
func (w *author) think(n int) string {
	var text strings.Builder
	for range n {
		text.WriteByte(' ')
		text.WriteString(words[w.r.n(len(words))])
	}
	return text.String()
}

// callTool generates some text and a tool call. If full is set, the output reaches the engine's
// token limit.
func (w *author) callTool(c *call, asked string, full bool) {
	c.text = w.think(w.r.in(w.shape.ThinkTokens))
	c.use = w.use(asked)
	end := endMark
	if full {
		c.text += w.think(max(0, maxNewTokens-len(appendText(nil, c.text+c.use.text()))))
		c.end, end = endLength, ""
	}
	c.output = appendText(nil, c.text+c.use.text()+end)
}

func (w *author) use(asked string) *toolUse {
	sig := w.sigs[w.r.n(len(w.sigs))]
	a, b, given := numbers(wantedSum, asked)
	if !given {
		a, b, given = numbers(wantedMul, asked)
	}
	u := &toolUse{name: sig.name, id: fmt.Sprintf("call_%08x", uint32(w.r.next()))}
	args := []byte{'{'}
	var numbersUsed []int
	said := ""
	for i, arg := range sig.args {
		if i > 0 {
			args = append(args, ", "...)
		}
		args = append(quote(args, arg.name), ": "...)
		switch arg.kind {
		case "integer", "number":
			n := w.r.n(100)
			if given && i < 2 {
				n = [2]int{a, b}[i]
			}
			numbersUsed = append(numbersUsed, n)
			args = strconv.AppendInt(args, int64(n), 10)
		case "boolean":
			args = append(args, "true"...)
		case "array":
			args = append(args, "[]"...)
		case "object":
			args = append(args, "{}"...)
		default:
			said = words[w.r.n(len(words))]
			args = quote(args, said)
		}
	}
	u.args = string(append(args, '}'))
	switch {
	case sig.name == "add" && len(numbersUsed) == 2:
		u.result = strconv.Itoa(numbersUsed[0] + numbersUsed[1])
	case sig.name == "mul" && len(numbersUsed) == 2:
		u.result = strconv.Itoa(numbersUsed[0] * numbersUsed[1])
	case said != "":
		u.result = said
	default:
		u.result = "done"
	}
	packaged := quote([]byte("{\n  \"status\": \"OK\",\n  \"message\": "), u.result)
	u.packaged = string(append(packaged, ",\n  \"time\": \"2026-01-05 10:00:00 AM UTC+0000\"\n}"...))
	return u
}

// conclude generates the last call: some text and the answer.
func (w *author) conclude(c *call, sc *script, asked string) {
	c.text = w.think(w.r.in(w.shape.Tokens))
	cut, answer, end := w.r.float() < w.shape.Length, w.answer(asked), ""
	switch {
	case w.fault == Abort:
		c.end = endAbort
	case w.fault == AbortEarly:
		c.text, c.end = "", endAbort
	case cut:
		sc.stop, c.end = "max_tokens_exceeded", endLength
	default:
		c.text += "\n\nThe answer is " + answer + "."
		end = endMark
	}
	c.output = appendText(nil, c.text+end)
}

// answer returns the answer to the user message in the parameter asked. With probability
// Script.Wrong, the answer is wrong.
func (w *author) answer(asked string) string {
	wrong := w.r.float() < w.shape.Wrong
	off := 1 + w.r.n(9)
	if m := wantedAnswer.FindStringSubmatch(asked); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && wrong {
			return strconv.Itoa(n + off)
		}
		if wrong {
			return "unknown"
		}
		return m[1]
	}
	n := off * 7
	if a, b, ok := numbers(wantedSum, asked); ok {
		n = a + b
	} else if a, b, ok := numbers(wantedMul, asked); ok {
		n = a * b
	}
	if wrong {
		n += off
	}
	return strconv.Itoa(n)
}

func openAI(role, text string, use *toolUse) []byte {
	var out []byte
	switch {
	case role == "tool":
		out = quote(append(quote([]byte(`{"content":`), text), `,"role":"tool","tool_call_id":`...), use.id)
	case use != nil:
		out = []byte(`{"content":`)
		if text == "" {
			out = append(out, "null"...)
		} else {
			out = quote(out, strings.TrimSpace(text))
		}
		out = quote(append(out, `,"role":"assistant","tool_calls":[{"id":`...), use.id)
		out = quote(append(out, `,"function":{"arguments":`...), use.args)
		out = append(quote(append(out, `,"name":`...), use.name), `},"type":"function"}]`...)
	default:
		out = quote(append(quote([]byte(`{"content":`), text), `,"role":`...), role)
	}
	return append(out, '}')
}

type scriptCache struct{ entries []cachedScript }

// A cachedScript is a script and the part of its answer that is the same for all agents.
type cachedScript struct {
	once    sync.Once
	script  *script
	tail    []byte
	sampled int
	digest  string
}

// cached returns the n-th script. It generates the script on first use.
func (s *Server) cached(n int) *cachedScript {
	e := &s.scripts.entries[n]
	e.once.Do(func() {
		w := author{
			shape: s.cfg.Script, r: draw(s.cfg.Seed, "cached", strconv.Itoa(n)),
			system: "You are a careful assistant." + systemTail, sigs: []signature{{"add", []argument{{"a", "integer"}, {"b", "integer"}}}},
		}
		var h history
		e.script, _ = w.write(&h, []string{fmt.Sprintf("Add %d and %d.", n, n+1)}) // only an engine can cause an error
		e.tail = e.script.appendTail(nil, s.cfg.InputIDs, true, mangle{})
		e.sampled, e.digest = e.script.digest()
	})
	return e
}

func (sc *script) digest() (int, string) {
	var d Digest
	n := 0
	for i := range sc.calls {
		d.Append(sc.calls[i].output, sc.calls[i].logprobs)
		n += len(sc.calls[i].output)
	}
	return n, d.String()
}

// upTo returns a script with the first n calls and the given stop reason.
func (sc *script) upTo(n int, stop string) *script {
	return &script{user: sc.user, calls: sc.calls[:min(n, len(sc.calls))], stop: stop}
}
