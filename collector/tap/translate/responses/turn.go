package responses

import "strings"

// A turn collects the items of one answer, which become one assistant message. All texts are JSON
// strings.
type turn struct {
	open   bool
	rank   int
	answer string // from the ids of the items; empty if unknown

	reasoning, content, refusal []string
	calls                       []byte
}

// The items of an answer have this order.
const (
	rankReasoning = iota
	rankText
	rankCall
)

// begin prepares the turn for an item. It ends the turn if the item belongs to another answer. The ids
// of items contain the answer's id. Without them, the items of one answer are at most one reasoning
// item, at most one message and then tool calls.
func (p *parser) begin(id string, rank int) {
	t := &p.turn
	answer := answerOf(id)
	other := rank < t.rank || rank == t.rank && rank != rankCall
	if answer != "" && t.answer != "" {
		other = answer != t.answer
	}
	if t.open && other {
		p.endTurn()
	}
	t.open, t.rank = true, max(rank, t.rank)
	if answer != "" {
		t.answer = answer
	}
}

// endTurn appends the assistant message. After an error, the texts of the turn can be invalid.
func (p *parser) endTurn() {
	t := &p.turn
	if !t.open || p.s.Err() != nil {
		return
	}
	p.head("assistant")
	p.messages = append(p.messages, `","content":`...)
	if len(t.content) == 0 {
		p.messages = append(p.messages, "null"...)
	} else {
		p.messages = appendJoined(p.messages, t.content)
	}
	if len(t.refusal) > 0 {
		p.messages = appendJoined(append(p.messages, `,"refusal":`...), t.refusal)
	}
	if len(t.reasoning) > 0 {
		p.messages = appendJoined(append(p.messages, `,"reasoning_content":`...), t.reasoning)
	}
	if len(t.calls) > 0 {
		p.messages = append(append(append(p.messages, `,"tool_calls":[`...), t.calls...), ']')
	}
	p.messages = append(p.messages, '}')
	*t = turn{reasoning: t.reasoning[:0], content: t.content[:0], refusal: t.refusal[:0], calls: t.calls[:0]}
}

// appendJoined appends the concatenation of JSON strings as one JSON string.
func appendJoined(dst []byte, texts []string) []byte {
	dst = append(dst, '"')
	for _, text := range texts {
		dst = append(dst, inner(text)...)
	}
	return append(dst, '"')
}

// spoken adds the content of an assistant message to the turn.
func (p *parser) spoken(content string) {
	switch {
	case content == "":
		return
	case content[0] == '"':
		p.turn.content = append(p.turn.content, content)
		return
	}
	parts := p.readParts("content", content)
	if len(parts) == 0 {
		p.turn.content = append(p.turn.content, `""`)
	}
	for _, part := range parts {
		switch part.kind {
		case imagePart:
			p.refuse("content: input_image", "an assistant message cannot contain an image")
		case refusalPart:
			p.turn.refusal = append(p.turn.refusal, part.text)
		default:
			p.turn.content = append(p.turn.content, part.text)
		}
	}
}

// reasoning adds a reasoning item to the turn.
func (p *parser) reasoning(f []field) {
	p.begin(get(f, "id"), rankReasoning)
	before := len(p.turn.reasoning)
	for _, name := range [...]string{"content", "summary"} {
		value := get(f, name)
		if value == "" || len(p.turn.reasoning) > before {
			continue
		}
		for _, part := range p.readParts(name, value) {
			if part.kind != textPart {
				p.refuse(name, "reasoning can contain only text")
			}
			p.turn.reasoning = append(p.turn.reasoning, part.text)
		}
	}
	encrypted := get(f, "encrypted_content")
	if len(p.turn.reasoning) == before && encrypted != "" && encrypted != `""` {
		p.refuse("encrypted_content", "only the vendor can decrypt it, and the item has no text")
	}
}

// call adds a tool call to the turn. It has either arguments, or the input of a custom tool.
func (p *parser) call(f []field, arguments, input string) {
	id, call, name := get(f, "id"), p.required(f, "call_id"), p.required(f, "name")
	namespace := p.text(get(f, "namespace"))
	if p.s.Err() != nil {
		return
	}
	p.begin(id, rankCall)
	c := p.turn.calls
	if len(c) > 0 {
		c = append(c, ',')
	}
	c = append(append(c, `{"id":`...), call...)
	c = append(append(c, `,"type":"function","function":{"name":`...), functionName(namespace, name)...)
	c = append(c, `,"arguments":`...)
	switch {
	case arguments != "":
		c = append(c, arguments...)
	case strings.HasPrefix(word(id), rawPrefix):
		c = append(c, input...)
	default:
		c = appendInput(c, input)
	}
	p.turn.calls = append(c, "}}"...)
}

// The ids of output items are a prefix, the answer's id, and the index of the item. The input of an item
// with rawPrefix is the text of all arguments, because they do not have the form {"input": …}.
const (
	reasoningPrefix = "rs_"
	messagePrefix   = "msg_"
	callPrefix      = "fc_"
	customPrefix    = "ctc_"
	rawPrefix       = "ctraw_"
)

// answerOf returns the answer's id in the id of an item, or "" if the item has none. The id of an item is
// a JSON string.
func answerOf(id string) string {
	id = word(id)
	for _, prefix := range [...]string{reasoningPrefix, messagePrefix, callPrefix, customPrefix, rawPrefix} {
		rest, has := strings.CutPrefix(id, prefix)
		end := strings.LastIndexByte(rest, '_')
		if has && end > 0 && strings.Trim(rest[end+1:], "0123456789") == "" {
			return rest[:end]
		}
	}
	return ""
}

// appendInput appends the arguments of a custom tool's function: the JSON string of {"input": input}.
// The white space is the same as in Python, because the engines parse and write arguments with
// Python.
func appendInput(dst []byte, input string) []byte {
	dst = append(dst, `"{\"input\": `...)
	for i := range len(input) {
		if input[i] == '"' || input[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, input[i])
	}
	return append(dst, `}"`...)
}
