package decode

import (
	"regexp"
	"strconv"
	"strings"
)

// thinking lists the texts around the reasoning of an answer.
var thinking = [][2]string{
	{"<think>", "</think>"},
	{"[THINK]", "[/THINK]"},
	{"<seed:think>", "</seed:think>"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<|channel>thought", "<channel|>"},
}

// finish splits the text of the messages into reasoning, calls and results, and links results to calls.
func (p *parser) finish() []Message {
	all := make([]Message, 0, len(p.all))
	calls := 0
	for _, m := range p.all {
		switch m.Role {
		case Assistant:
			m.split(p.Decoder, &calls)
			if n := len(all); n > 0 && p.form != nil && p.form.harmony && m.continues(&all[n-1]) {
				m.Reasoning = all[n-1].Reasoning
				all = all[:n-1]
			}
			all = append(all, m)
		case User, Tool, System:
			all = append(all, m.results()...)
		default:
			all = append(all, m)
		}
	}
	link(all)
	return all
}

// continues reports whether the message before is the reasoning of this one. In the harmony form, an answer in a
// prompt is one message per channel.
func (m *Message) continues(before *Message) bool {
	return before.Role == Assistant && before.Span < 0 && m.Span < 0 && m.Reasoning == "" && before.Reasoning != "" && before.Content == "" && len(before.Calls) == 0
}

// split moves the reasoning and the tool calls out of the content. A call that cannot be parsed stays.
func (m *Message) split(d *Decoder, calls *int) {
	f := d.form
	if f != nil && f.harmony {
		m.harmony(calls, true)
		return
	}
	text := m.think(d.thinking)
	for _, s := range d.calls {
		text = s.pattern.ReplaceAllStringFunc(text, func(block string) string {
			found := s.parse(s.pattern.FindStringSubmatch(block)[1])
			if len(found) == 0 {
				return block
			}
			m.add(found, calls)
			return ""
		})
	}
	if f != nil && f.bareCalls && len(m.Calls) == 0 {
		if call := bareCall(text); call != nil {
			m.add(call, calls)
			text = ""
		}
	}
	m.Content = strings.TrimSpace(text)
}

// think sets the reasoning and returns the content without it.
func (m *Message) think(thinking [][2]string) string {
	text := m.Content
	for _, mark := range thinking {
		if think, after, ok := strings.Cut(text, mark[1]); ok {
			m.Reasoning = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(think), mark[0]))
			return after
		}
		if think, ok := strings.CutPrefix(strings.TrimSpace(text), mark[0]); ok { // cut off
			m.Reasoning = strings.TrimSpace(think)
			return ""
		}
	}
	return text
}

// add adds calls, and gives them their IDs. If calls is nil, they keep the IDs that the model wrote.
func (m *Message) add(found []Call, calls *int) {
	for _, c := range found {
		if calls != nil {
			*calls++
			c.ID, c.texts = "call_"+strconv.Itoa(*calls), nil
		}
		m.Calls = append(m.Calls, c)
	}
}

// The text around the results of tools.
var (
	toolResponse  = regexp.MustCompile(`(?s)<tool_response>(.*?)</tool_response>`)
	mistralResult = regexp.MustCompile(`(?s)^(?:\s*\{"content": (.*), "call_id": "[^"]*"\}|[0-9A-Za-z]*\[TOOL_CONTENT\](.*))$`)
	commandResult = regexp.MustCompile(`(?s)^<\|START_TOOL_RESULT\|>(.*)<\|END_TOOL_RESULT\|>$`)
	kimiResult    = regexp.MustCompile(`^## Return of [^\n]*\n`)
)

// results splits a message that contains only results of tools into one message per result.
func (m *Message) results() []Message {
	m.Content = strings.TrimLeft(m.Content, "\n")
	if kimi := kimiResult.FindString(m.Content); kimi != "" && m.Role != User {
		m.Role, m.Content = Tool, m.Content[len(kimi):]
	}
	if found := commandResult.FindStringSubmatch(m.Content); found != nil && m.Role == System {
		m.Role, m.Content = Tool, found[1]
	}
	if m.Role == Tool {
		if found := mistralResult.FindStringSubmatch(m.Content); found != nil {
			m.Content = found[1] + found[2]
		}
	}
	found := toolResponse.FindAllStringSubmatch(m.Content, -1)
	if m.Role == System || len(found) == 0 || strings.TrimSpace(toolResponse.ReplaceAllString(m.Content, "")) != "" {
		return []Message{*m}
	}
	var all []Message
	for _, f := range found {
		all = append(all, Message{Role: Tool, Content: strings.Trim(f[1], "\n"), Span: -1})
	}
	return all
}

// link sets CallID in the results that follow the calls of an assistant, if their number is the number of
// the calls. Templates write the results in the order of the calls.
func link(all []Message) {
	for i := range all {
		n := 0
		for i+1+n < len(all) && all[i+1+n].Role == Tool {
			n++
		}
		if calls := all[i].Calls; n > 0 && n == len(calls) {
			for k := range calls {
				all[i+1+k].CallID = calls[k].ID
			}
		}
	}
}
