package letta

import "encoding/json"

// A Tool is a tool that the server knows.
type Tool struct {
	ID          string   `json:"id"`
	ToolType    string   `json:"tool_type"`
	Description *string  `json:"description"`
	SourceType  *string  `json:"source_type"`
	Name        *string  `json:"name"`
	Tags        []string `json:"tags"`
	SourceCode  *string  `json:"source_code"`
	// JSONSchema reaches the prompt: its text, the order of its keys included, is
	// kept.
	JSONSchema              json.RawMessage `json:"json_schema"`
	ArgsJSONSchema          json.RawMessage `json:"args_json_schema"`
	ReturnCharLimit         *int            `json:"return_char_limit"`
	PipRequirements         json.RawMessage `json:"pip_requirements"`
	NpmRequirements         json.RawMessage `json:"npm_requirements"`
	DefaultRequiresApproval *bool           `json:"default_requires_approval"`
	EnableParallelExecution *bool           `json:"enable_parallel_execution"`
	CreatedByID             *string         `json:"created_by_id"`
	LastUpdatedByID         *string         `json:"last_updated_by_id"`
	Metadata                json.RawMessage `json:"metadata_"`
	ProjectID               *string         `json:"project_id"`
	Extra                   Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *Tool) UnmarshalJSON(b []byte) error {
	type plain Tool
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t Tool) MarshalJSON() ([]byte, error) {
	type plain Tool
	return marshalKeeping(plain(t), t.Extra)
}

// A ToolCreate makes a tool from Python source. The server derives the schema
// from the docstring, whose Args section it needs.
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
	Extra                   Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *ToolCreate) UnmarshalJSON(b []byte) error {
	type plain ToolCreate
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t ToolCreate) MarshalJSON() ([]byte, error) {
	type plain ToolCreate
	return marshalKeeping(plain(t), t.Extra)
}
