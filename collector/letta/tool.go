package letta

import "encoding/json"

// A Tool is a tool on the server.
type Tool struct {
	JSON RawJSON
	ID   string `letta:"id,loose"`
	Name string `letta:"name"`
	// JSONSchema appears in the prompt, so its text and the order of its keys are kept.
	JSONSchema RawJSON `letta:"json_schema"`
}

// A ToolRun describes one run of a function.
//
// Source: the published Tools API; ToolRunFromSource of the server's schemas/tool.py.
type ToolRun struct {
	Name       string         `json:"name"` // the name of the function
	SourceCode string         `json:"source_code"`
	Args       map[string]any `json:"args"`
	// JSONSchema describes the function, as in a Tool. Server 0.16.7 requires it if the function
	// has arguments.
	JSONSchema json.RawMessage `json:"json_schema"`
}

// A ToolRan is the result of a ToolRun.
type ToolRan struct {
	Return string `json:"tool_return"` // the function's result as text, or its error
	Status string `json:"status"`      // success or error
}
