// Package tokenizetest generates synthetic replies with the same shape as recorded replies, for
// tests and benchmarks of code that reads replies. The same seed and options always produce the
// same bytes.
//
// The distributions are modeled on recordings. The ids come from a vocabulary of 150,000 ids and
// follow Zipf's law. As in byte-pair vocabularies, frequent ids tend to be low. One log-probability
// in sixteen is exactly 0, and some are so close to 0 that they are printed with an exponent. Text
// has an escape about every forty words.
package tokenizetest

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Options configure a reply. The zero value is the smallest reply, without turns.
type Options struct {
	// Tokens is the number of sampled tokens, divided among the assistant turns.
	Tokens int
	// Turns is the number of turns. Assistant and tool turns alternate, assistant first.
	Turns int
	// InputIDs adds the prompt of each call, as newer servers send it. Each prompt after the first
	// consists of the previous call's prompt and output, followed by ContextTokens more ids.
	InputIDs bool
	// PromptTokens is the length of the first prompt. Default 400.
	PromptTokens int
	// Logprobs adds the member `logprobs`. In real replies, this member repeats the data of the
	// last call.
	Logprobs bool
	// Text adds messages before the turns, as in real replies from runs with tools. For each tool
	// call, the messages contain the arguments (a few KB) and the result, each twice. The messages
	// make up about a fifth of the bytes.
	Text bool
	// TokenStrings makes the third element of each triple a string instead of null.
	TokenStrings bool
	// Spaces puts a space after each comma and colon.
	Spaces bool
}

// ContextTokens is the number of ids that follow an output in the next prompt.
const ContextTokens = 48

// Reply returns the body of a synthetic reply.
func Reply(seed uint64, o Options) []byte {
	w := newWriter(seed, o)
	w.reply()
	return w.b
}

// Corpus returns distinct replies with at least size bytes in total. Each reply has 1,000 to 32,000
// sampled tokens (log-uniform) in 2 to 20 turns; o sets the other options. Benchmarks need a large
// corpus, because caches and branch predictors adapt to a body that is read repeatedly.
func Corpus(seed uint64, size int, o Options) [][]byte {
	r := rand.New(rand.NewPCG(seed, 1))
	var bodies [][]byte
	for total := 0; total < size; {
		o.Tokens = int(1000 * math.Exp(r.Float64()*math.Log(32)))
		o.Turns = 2 + r.IntN(19)
		b := Reply(r.Uint64(), o)
		bodies = append(bodies, b)
		total += len(b)
	}
	return bodies
}

type writer struct {
	Options
	r          *rand.Rand
	zipf       *rand.Zipf
	b          []byte
	comma, col string
	prompt     []int32
}

const vocabulary = 150_000

func newWriter(seed uint64, o Options) *writer {
	if o.PromptTokens <= 0 {
		o.PromptTokens = 400
	}
	r := rand.New(rand.NewPCG(seed, 77))
	w := &writer{Options: o, r: r, zipf: rand.NewZipf(r, 1.15, 8, vocabulary-1), comma: ",", col: ":"}
	if o.Spaces {
		w.comma, w.col = ", ", ": "
	}
	return w
}

// id draws a token id. Within each block of 512 ranks, neighboring ranks get ids that are at least
// 167 apart.
func (w *writer) id() int32 {
	rank := w.zipf.Uint64()
	near := rank - rank%512
	return int32(min(near+(rank*167+near)%512, vocabulary-1))
}

func (w *writer) logprob() float32 {
	switch u := w.r.Float64(); {
	case u < 0.06:
		return 0
	case u < 0.30:
		return -float32(math.Pow(10, -7+3*w.r.Float64()))
	case u < 0.62:
		return -float32(math.Pow(10, -4+3*w.r.Float64()))
	default:
		return -float32(w.r.ExpFloat64() * 1.1)
	}
}

func (w *writer) reply() {
	answer := w.text(nil, 200)
	w.str(`{`).key("messages").str(`[`)
	if w.Text {
		w.toolMessages()
	}
	w.str(`{`).key("id").str(`"message-`).int(w.r.IntN(1 << 30)).str(`"`).str(w.comma)
	w.key("message_type").str(`"assistant_message"`).str(w.comma).key("content").str(`"`).bytes(answer).str(`"}]`).str(w.comma)
	w.key("stop_reason").str(`{`).key("message_type").str(`"stop_reason"`).str(w.comma).key("stop_reason").str(`"end_turn"}`).str(w.comma)

	calls := (w.Turns + 1) / 2
	outputs := make([][]int32, calls)
	logprobs := make([][]float32, calls)
	left := w.Tokens
	for k := range outputs {
		n := left / (calls - k)
		left -= n
		outputs[k] = make([]int32, n)
		logprobs[k] = make([]float32, n)
		for i := range n {
			outputs[k][i], logprobs[k][i] = w.id(), w.logprob()
		}
	}
	prompts := w.prompts(outputs)
	promptTokens := 0
	for _, n := range prompts {
		promptTokens += n
	}
	w.key("usage").str(`{`).key("completion_tokens").int(w.Tokens).str(w.comma).key("prompt_tokens").int(promptTokens).str(w.comma)
	w.key("step_count").int(calls).str(w.comma).key("run_ids").str(`null}`)
	if w.Logprobs && calls > 0 {
		w.str(w.comma).key("logprobs")
		w.choices(outputs[calls-1], logprobs[calls-1])
	}
	w.str(w.comma).key("turns").str(`[`)
	for t := range w.Turns {
		if t > 0 {
			w.str(w.comma)
		}
		if t%2 == 1 {
			w.toolTurn()
			continue
		}
		var prompt []int32
		if w.InputIDs {
			prompt = w.prompt[:prompts[t/2]]
		}
		w.assistantTurn(prompt, outputs[t/2], logprobs[t/2])
	}
	w.str(`]}`)
}

// toolMessages writes a tool call message and a tool return message for every tool turn, each
// followed by a comma.
func (w *writer) toolMessages() {
	tools := w.Turns / 2
	for k := range tools {
		head := func(kind string) *writer {
			w.str(`{`).key("id").str(`"message-`).int(w.r.IntN(1 << 30)).str(`"`).str(w.comma)
			w.key("date").str(`"2026-11-21T09:41:20+00:00"`).str(w.comma).key("message_type").str(`"`).str(kind).str(`"`).str(w.comma)
			return w.key("step_id").str(`"step-`).int(k).str(`"`).str(w.comma).key("run_id").str(`"run-1"`).str(w.comma).key("is_err").str(`null`).str(w.comma)
		}
		twice := func(name, list string, body []byte) {
			w.key(name).bytes(body).str(w.comma).key(list).str(`[`).bytes(body).str(`]}`).str(w.comma)
		}
		part := &writer{Options: w.Options, r: w.r, comma: w.comma, col: w.col}
		part.str(`{`).key("name").str(`"write_file"`).str(w.comma).key("arguments").str(`"{\"path\": \"a.py\", \"text\": \"`)
		inner := w.text(nil, 9*w.Tokens/(tools+1))
		part.str(strings.NewReplacer(`\"`, `\\\"`, `\`, `\\`).Replace(string(inner)))
		part.str(`\"}"`).str(w.comma).key("tool_call_id").str(`"call_`).int(k).str(`"}`)
		head("tool_call_message")
		twice("tool_call", "tool_calls", part.b)
		part.b = nil
		part.str(`{`).key("tool_return").str(`"`)
		part.b = w.text(part.b, 600+w.r.IntN(1200))
		part.str(`"`).str(w.comma).key("status").str(`"success"`).str(w.comma).key("tool_call_id").str(`"call_`).int(k).str(`"}`)
		head("tool_return_message")
		twice("tool_return", "tool_returns", part.b)
	}
}

// prompts fills w.prompt with the last prompt and returns the lengths of all prompts. Each earlier
// prompt is a prefix of the last prompt.
func (w *writer) prompts(outputs [][]int32) []int {
	lengths := make([]int, len(outputs))
	more := func(n int) {
		for range n {
			w.prompt = append(w.prompt, w.id())
		}
	}
	more(w.PromptTokens)
	for k := range outputs {
		if k > 0 {
			w.prompt = append(w.prompt, outputs[k-1]...)
			more(ContextTokens)
		}
		lengths[k] = len(w.prompt)
	}
	return lengths
}

func (w *writer) assistantTurn(prompt, ids []int32, logprobs []float32) {
	w.str(`{`).key("role").str(`"assistant"`).str(w.comma)
	if prompt != nil {
		w.key("input_ids").ids(prompt).str(w.comma)
	}
	w.key("output_ids").ids(ids).str(w.comma).key("output_token_logprobs").str(`[`)
	for i, id := range ids {
		if i > 0 {
			w.str(w.comma)
		}
		w.str(`[`).float(logprobs[i]).str(w.comma).int(int(id)).str(w.comma)
		if w.TokenStrings {
			w.str(`" `).str(words[w.r.IntN(len(words))]).str(`"]`)
		} else {
			w.str(`null]`)
		}
	}
	w.str(`]`).str(w.comma).key("content").str(`"`)
	w.b = w.text(w.b, 4*len(ids))
	w.str(`"`).str(w.comma).key("tool_name").str(`null}`)
}

func (w *writer) toolTurn() {
	w.str(`{`).key("role").str(`"tool"`).str(w.comma).key("output_ids").str(`null`).str(w.comma)
	w.key("output_token_logprobs").str(`null`).str(w.comma).key("content").str(`"`)
	w.b = w.text(w.b, 600+w.r.IntN(1200))
	w.str(`"`).str(w.comma).key("tool_name").str(`"web_search"}`)
}

func (w *writer) choices(ids []int32, logprobs []float32) {
	w.str(`{`).key("content").str(`[`)
	for i, id := range ids {
		if i > 0 {
			w.str(w.comma)
		}
		w.str(`{`).key("token").str(`"`).int(int(id)).str(`"`).str(w.comma).key("bytes").str(`null`).str(w.comma)
		w.key("logprob").float(logprobs[i]).str(w.comma).key("top_logprobs").str(`[]}`)
	}
	w.str(`]`).str(w.comma).key("refusal").str(`null}`)
}

func (w *writer) str(s string) *writer { w.b = append(w.b, s...); return w }

func (w *writer) bytes(s []byte) *writer { w.b = append(w.b, s...); return w }

func (w *writer) int(v int) *writer { w.b = strconv.AppendInt(w.b, int64(v), 10); return w }

func (w *writer) key(s string) *writer { return w.str(`"`).str(s).str(`"`).str(w.col) }

func (w *writer) ids(ids []int32) *writer {
	w.str(`[`)
	for i, id := range ids {
		if i > 0 {
			w.str(w.comma)
		}
		w.int(int(id))
	}
	return w.str(`]`)
}

// float formats v as the server formats the same double: 0.000029, but 2.9e-6.
func (w *writer) float(v float32) *writer {
	f := float64(v)
	if a := math.Abs(f); a != 0 && a < 1e-5 {
		w.b = strconv.AppendFloat(w.b, f, 'e', -1, 64)
		if n := len(w.b); w.b[n-2] == '0' { // e-06
			w.b = append(w.b[:n-2], w.b[n-1])
		}
		return w
	}
	n := len(w.b)
	w.b = strconv.AppendFloat(w.b, f, 'f', -1, 64)
	if !strings.Contains(string(w.b[n:]), ".") {
		w.str(".0")
	}
	return w
}

var words = strings.Fields(`the of function return value if else for error result model tool call search import
	numpy data list string int self def class none true false open read write file path test assert expected answer
	therefore because step compute sum max min array index user assistant please find city weather document page query`)

// text appends words to b, escaped for JSON, until it has appended at least n bytes.
func (w *writer) text(b []byte, n int) []byte {
	for end := len(b) + n; len(b) < end; {
		switch w.r.IntN(40) {
		case 0:
			b = append(b, `\n`...)
		case 1:
			b = append(b, `\"`...)
		case 2:
			b = append(b, `\u00e9`...)
		case 3:
			b = append(b, "é—"...)
		}
		b = append(b, words[w.r.IntN(len(words))]...)
		b = append(b, ' ')
	}
	return b
}
