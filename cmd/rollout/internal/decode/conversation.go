package decode

import (
	"strings"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Message is one message of a conversation.
type Message struct {
	Role      string // System, User, Assistant or Tool
	Content   string
	Reasoning string // of an assistant; empty if there is none
	Calls     []Call // of an assistant
	// CallID is the ID of the call whose result the message contains. It is empty if the call is unknown.
	CallID string
	// Span is the span whose tokens the policy sampled for this message. It is -1 if the whole message
	// is context.
	Span int
}

// A Call is a call of a tool.
type Call struct {
	ID        string
	Name      string
	Arguments string // a JSON object
}

// A parser builds the messages of one row.
type parser struct {
	*Decoder
	all  []Message
	open *Message // the message that the last mark began; nil after its end
	text []int32  // tokens of the open message that are not decoded yet
	// head is true while the name of a role is expected. The end of the name is the mark's head.
	head bool
	mark mark
}

// Messages returns the messages of the row. Every assistant span becomes one message, even if it has no
// tokens. Tool calls and results get the IDs call_1, call_2, and so on, because their tokens have none.
func (d *Decoder) Messages(r *sink.StoredRow) []Message {
	p := &parser{Decoder: d}
	for k, role := range r.TurnRoles {
		ids := r.InputIDs[r.TurnOffsets[k]:r.TurnOffsets[k+1]]
		if tokenize.Role(role) == tokenize.RoleAssistant {
			p.sampled(k, ids)
		} else {
			p.context(tokenize.Role(role), ids)
		}
	}
	p.close()
	return p.finish()
}

// sampled adds the tokens of an assistant span. Their marks begin no message, but a mark at the end
// ends the message. Some models stop at the mark that begins the next message; the span after it determines
// the role of that message.
func (p *parser) sampled(span int, ids []int32) {
	p.endHead()
	if p.open == nil || p.open.Role != Assistant || p.open.Span >= 0 {
		p.close()
		p.open = &Message{Role: Assistant, Span: -1}
	}
	p.open.Span = span
	p.text = append(p.text, ids...)
	if n := len(ids); n > 0 {
		if m, ok := p.marks[ids[n-1]]; ok && m.head == "" {
			p.close()
		}
	}
}

// context adds the tokens of another span.
func (p *parser) context(role tokenize.Role, ids []int32) {
	for _, id := range ids {
		m, ok := p.marks[id]
		switch {
		case ok && m == (mark{}):
			p.close()
		case ok:
			p.close()
			p.open, p.head, p.mark = &Message{Role: m.role, Span: -1}, m.head != "", m
		case p.head && (p.heads[id] || p.mark.head == "\n" && p.lineEnds(id)):
			p.endHead()
		case p.open == nil && strings.TrimSpace(Text(p.tok, []int32{id})) == "":
			// the white space between two messages
		default:
			if p.open == nil {
				p.open = &Message{Role: outside(role), Span: -1}
			}
			p.text = append(p.text, id)
		}
	}
}

// outside returns the role of text that no mark begins.
func outside(role tokenize.Role) string {
	switch role {
	case tokenize.RoleTool:
		return Tool
	case tokenize.RoleUser, tokenize.RoleAssistant, tokenize.RolePrompt:
	}
	return User
}

// lineEnds reports whether a token in the name of a role contains a line break. The text after the break
// belongs to the message.
func (p *parser) lineEnds(id int32) bool {
	before, after, ok := strings.Cut(Text(p.tok, []int32{id}), "\n")
	if !ok {
		return false
	}
	if before+after != "" {
		p.text = append(p.text, id) // endHead cuts the name
	}
	return true
}

// endHead sets the role of the open message from the tokens of its head.
func (p *parser) endHead() {
	if !p.head {
		return
	}
	name, rest, _ := strings.Cut(Text(p.tok, p.text), "\n")
	p.text, p.head = p.text[:0], false
	p.open.Content = rest
	if p.open.Role = names[strings.TrimSpace(name)]; p.open.Role == "" {
		p.open.Role = Tool
	}
}

// close ends the open message.
func (p *parser) close() {
	p.endHead()
	if p.open == nil {
		return
	}
	p.open.Content += Text(p.tok, p.text)
	p.text = p.text[:0]
	p.all = append(p.all, *p.open)
	p.open = nil
}
