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

// A ToolCreate creates a tool from Python source. The server derives the schema from the
// docstring, which needs an Args section.
type ToolCreate struct {
	SourceCode              string          `json:"source_code"`
	SourceType              string          `json:"source_type,omitempty"`
	Description             string          `json:"description,omitempty"`
	Tags                    []string        `json:"tags,omitempty"`
	JSONSchema              json.RawMessage `json:"json_schema,omitempty"`
	ArgsJSONSchema          json.RawMessage `json:"args_json_schema,omitempty"`
	ReturnCharLimit         *int            `json:"return_char_limit,omitempty"`
	PipRequirements         json.RawMessage `json:"pip_requirements,omitempty"`
	NpmRequirements         json.RawMessage `json:"npm_requirements,omitempty"`
	DefaultRequiresApproval *bool           `json:"default_requires_approval,omitempty"`
	EnableParallelExecution *bool           `json:"enable_parallel_execution,omitempty"`
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
