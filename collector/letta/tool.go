package letta

import "encoding/json"

// A Tool is a tool on the server.
type Tool struct {
	JSON RawJSON
	ID   string
	Name string
	// JSONSchema reaches the prompt, so its text and the order of its keys are kept.
	JSONSchema RawJSON
}

func (t *Tool) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.orEmpty(&t.ID)
		case "name":
			s.needText(&t.Name)
		case "json_schema":
			t.JSONSchema = s.raw()
		}
	}
	t.JSON = s.since(from)
}

// A ToolRun is a single run of a function.
//
// Source: the published Tools API; ToolRunFromSource of the server's schemas/tool.py.
type ToolRun struct {
	Name       string         `json:"name"` // of the function
	SourceCode string         `json:"source_code"`
	Args       map[string]any `json:"args"`
	// JSONSchema describes the function, as in a Tool. 0.16.7 needs it if there are arguments.
	JSONSchema json.RawMessage `json:"json_schema"`
}

// A ToolRan is the result of a ToolRun.
type ToolRan struct {
	Return string `json:"tool_return"` // the function's result as text, or the error
	Status string `json:"status"`      // success or error
}
