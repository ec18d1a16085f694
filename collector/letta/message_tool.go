package letta

// A ToolCall is a call as the model wrote it, or, in a stream, a piece of one.
type ToolCall struct {
	JSON RawJSON
	// Name may be any junk text that the model wrote.
	Name string
	// Arguments is the JSON text of an object. The order of its keys and the form
	// of its numbers reach later prompts, so it is never parsed here.
	Arguments  string
	ToolCallID string
}

func (c *ToolCall) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "name":
			s.needText(&c.Name)
		case "arguments":
			s.needText(&c.Arguments)
		case "tool_call_id":
			s.needText(&c.ToolCallID)
		}
	}
	c.JSON = s.since(from)
}

// toolCalls reads the list of calls of a message. The schema also allows a single piece of
// a call in its place.
func (s *scanner) toolCalls(v *[]ToolCall) {
	if s.space() != '{' {
		listOf(s, v)
		return
	}
	*v = make([]ToolCall, 1)
	(*v)[0].read(s)
}

// A ToolReturn is the result of one call.
type ToolReturn struct {
	JSON       RawJSON // empty where the message has the deprecated fields only
	Type       string  // tool
	Content    Content
	Status     string // success, error
	ToolCallID string
	Stdout     []string
	Stderr     []string
}

func (r *ToolReturn) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "type":
			s.orEmpty(&r.Type)
		case "tool_return":
			r.Content.read(s)
		default:
			r.readField(s, name)
		}
	}
	r.JSON = s.since(from)
}

// readField reads what the deprecated fields of a message have as well.
func (r *ToolReturn) readField(s *scanner, name string) {
	switch name {
	case "status":
		s.str(&r.Status)
	case "tool_call_id":
		s.str(&r.ToolCallID)
	case "stdout":
		s.strs(&r.Stdout)
	case "stderr":
		s.strs(&r.Stderr)
	}
}

// An Approval is the client's answer to one call that waited for it: a decision, of type
// approval, or the result of a tool of its own, of type tool.
type Approval struct {
	// ToolReturn is the result. Of a decision it has JSON, Type and ToolCallID.
	ToolReturn
	Approve bool
	Reason  string
}

func (a *Approval) read(s *scanner) {
	from := s.start()
	kind := s.union("type", func() { *a = Approval{} }, func(kind, name string) {
		switch kind {
		case "approval":
			switch name {
			case "tool_call_id":
				s.str(&a.ToolCallID)
			case "approve":
				s.boolean(&a.Approve)
			case "reason":
				s.orEmpty(&a.Reason)
			}
		case "tool":
			if name == "tool_return" {
				a.Content.read(s)
			} else {
				a.readField(s, name)
			}
		}
	})
	a.Type, a.JSON = kind, s.since(from)
}
