package letta

// A ToolCall is a call as the model wrote it, or a piece of one in a stream.
type ToolCall struct {
	JSON RawJSON
	// Name can be any text that the model wrote.
	Name string
	// Arguments is the JSON text of an object. It is never reencoded: the order of its keys and
	// the form of its numbers reach later prompts.
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

// toolCalls reads the calls of a message: a list, or a single piece of a call.
func (s *scanner) toolCalls(v *[]ToolCall) {
	if s.Kind() != '{' {
		listOf(s, v)
		return
	}
	*v = make([]ToolCall, 1)
	(*v)[0].read(s)
}

// A ToolReturn is the result of one call.
type ToolReturn struct {
	JSON       RawJSON // empty if the message has only the deprecated fields
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

// readField reads a member that the deprecated form of a message also has.
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

// An Approval is the client's answer to a pending call: a decision or a client tool's result.
type Approval struct {
	// ToolReturn is the result. A decision has only JSON, Type and ToolCallID.
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
