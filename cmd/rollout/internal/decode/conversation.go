package decode

import (
	"strings"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Message is one message of a conversation.
type Message struct {
	Role      string // System, User, Assistant, Tool or Unknown
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

	texts []argumentText // the arguments, if the model wrote them as text
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
	span tokenize.Role // of the token
}

// Messages returns the messages of the row. Every assistant span becomes one message, even if it has no
// tokens. Tool calls and results get the IDs call_1, call_2, and so on, because their tokens have none.
func (d *Decoder) Messages(r *sink.StoredRow) []Message {
	p := &parser{Decoder: d}
	for k, role := range r.TurnRoles {
		ids := r.InputIDs[r.TurnOffsets[k]:r.TurnOffsets[k+1]]
		if p.span = tokenize.Role(role); p.span == tokenize.RoleAssistant {
			p.sampled(k, ids)
		} else {
			p.context(ids)
		}
	}
	p.close()
	return p.finish()
}

// sampled adds the tokens of an assistant span. Their marks begin no message, but a mark at the end
// ends the message. Some models stop at the mark that begins the next message; the span after it determines
// the role of that message.
func (p *parser) sampled(span int, ids []int32) {
	p.endHead("")
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
func (p *parser) context(ids []int32) {
	for _, id := range ids {
		m, ok := p.marks[id]
		switch {
		case ok && m == (mark{}):
			p.close()
		case ok:
			p.close()
			p.open, p.head, p.mark = &Message{Role: m.role, Span: -1}, m.head != "", m
		case p.head && (p.heads[id] || p.mark.head == "\n" && p.lineEnds(id)):
			p.endHead("<|message|>")
		case (p.open == nil || p.open.Span >= 0) && strings.TrimSpace(p.Decoder.text([]int32{id})) == "":
			// the white space between two messages
		default:
			if p.open != nil && p.open.Span >= 0 {
				p.close() // the template adds no text to an answer
			}
			if p.open == nil {
				p.open, p.mark = &Message{Role: p.outside(), Span: -1}, mark{}
			}
			p.text = append(p.text, id)
		}
	}
}

// outside returns the role of text that no mark begins.
func (p *parser) outside() string {
	switch p.span {
	case tokenize.RoleTool:
		return Tool
	case tokenize.RoleUser:
		return User
	case tokenize.RoleAssistant, tokenize.RolePrompt:
	}
	return Unknown
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

// names maps the names of roles in templates and in APIs to roles.
var names = map[string]string{
	"system": System, "developer": System, "user": User, "assistant": Assistant, "model": Assistant,
	"tool": Tool, "ipython": Tool, "observation": Tool, "function": Tool, "tool_response": Tool,
	"available_tools": System, "tool_declare": System,
}

// endHead sets the role of the open message from the tokens of its head. In the harmony form, an answer keeps its
// head, with the mark that ended it; see Message.harmony.
func (p *parser) endHead(mark string) {
	if !p.head {
		return
	}
	head := p.Decoder.text(p.text)
	p.text, p.head = p.text[:0], false
	if p.form.harmony {
		p.open.Role = p.named(harmonyRole(head))
		if p.open.Role == Assistant {
			p.open.Content = head + mark
		}
		return
	}
	name, rest, _ := strings.Cut(head, "\n")
	p.open.Role, p.open.Content = p.named(name), rest
}

// named returns the role with a name. Kimi K2 begins the result of a tool with the mark of the system and the name of
// the tool.
func (p *parser) named(name string) string {
	if role := names[strings.TrimSpace(name)]; role != "" {
		return role
	}
	if p.mark.role != "" {
		return p.mark.role
	}
	return p.outside()
}

// close ends the open message.
func (p *parser) close() {
	p.endHead("")
	if p.open == nil {
		return
	}
	p.open.Content += p.Decoder.text(p.text)
	p.text = p.text[:0]
	if !p.mark.maybe || p.open.Span >= 0 || strings.TrimSpace(p.open.Content) != "" {
		p.all = append(p.all, *p.open)
	}
	p.open = nil
}
