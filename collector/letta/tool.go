package letta

import "encoding/json"

// A Tool is a tool on the server.
type Tool struct {
	JSON        RawJSON
	ID          string
	ToolType    string
	Description string
	SourceType  string
	Name        string
	Tags        []string
	SourceCode  string
	// JSONSchema reaches the prompt, so its text and the order of its keys are kept.
	JSONSchema              RawJSON
	ArgsJSONSchema          RawJSON
	ReturnCharLimit         *int64
	PipRequirements         RawJSON
	NpmRequirements         RawJSON
	DefaultRequiresApproval bool
	EnableParallelExecution bool
	CreatedByID             string
	LastUpdatedByID         string
	Metadata                RawJSON
	ProjectID               string
}

func (t *Tool) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.orEmpty(&t.ID)
		case "tool_type":
			s.orEmpty(&t.ToolType)
		case "description":
			s.orEmpty(&t.Description)
		case "source_type":
			s.orEmpty(&t.SourceType)
		case "name":
			s.needText(&t.Name)
		case "tags":
			s.strs(&t.Tags)
		case "source_code":
			s.orEmpty(&t.SourceCode)
		case "json_schema":
			t.JSONSchema = s.raw()
		case "args_json_schema":
			t.ArgsJSONSchema = s.raw()
		case "return_char_limit":
			s.orNoInteger(&t.ReturnCharLimit)
		case "pip_requirements":
			t.PipRequirements = s.raw()
		case "npm_requirements":
			t.NpmRequirements = s.raw()
		case "default_requires_approval":
			s.needFalse(&t.DefaultRequiresApproval)
		case "enable_parallel_execution":
			s.orFalse(&t.EnableParallelExecution)
		case "created_by_id":
			s.orEmpty(&t.CreatedByID)
		case "last_updated_by_id":
			s.orEmpty(&t.LastUpdatedByID)
		case "metadata_":
			t.Metadata = s.raw()
		case "project_id":
			s.orEmpty(&t.ProjectID)
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
