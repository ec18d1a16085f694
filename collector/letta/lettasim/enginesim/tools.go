package enginesim

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A tool is a tool that a request offers.
type tool struct {
	Name        string
	Description string
	Parameters  schema
}

// A schema is the part of a JSON schema that the engine understands. Other members are ignored.
type schema struct {
	Type        json.RawMessage   `json:"type"` // a name, or a list of names
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Default     json.RawMessage   `json:"default"`
	Items       *schema           `json:"items"`
	MinItems    int               `json:"minItems"`
	MinLength   int               `json:"minLength"`
	Minimum     json.RawMessage   `json:"minimum"`
	AnyOf       []schema          `json:"anyOf"`
	OneOf       []schema          `json:"oneOf"`
	AllOf       []schema          `json:"allOf"`
	Ref         string            `json:"$ref"`
	Defs        map[string]schema `json:"$defs"`
	Definitions map[string]schema `json:"definitions"`
}

// parseTools returns the function tools of a request. It ignores tools that it cannot decode.
func parseTools(raw json.RawMessage) []tool {
	var list []struct {
		Function json.RawMessage `json:"function"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var tools []tool
	for _, item := range list {
		var t tool
		if json.Unmarshal(item.Function, &t) == nil && t.Name != "" {
			tools = append(tools, t)
		}
	}
	return tools
}

// The names of tools in the harnesses that were looked at, most specific first. A name is
// compared without its case.
var (
	shellTools = regexp.MustCompile(`^(bash|shell|run_shell_command|execute_bash|execute_command|exec_command|run_command|` +
		`shell_command|terminal|execute|exec|run|command)$`)
	writeTools  = regexp.MustCompile(`^(write|write_file|create_file|file_write)$`)
	agentTools  = regexp.MustCompile(`^(task|agent|subagent|(.+__)?spawn_agent|run_subagent|launch_agent|dispatch_agent|delegate)$`)
	waitTools   = regexp.MustCompile(`^(.+__)?wait_agent$`)
	finishTools = regexp.MustCompile(`^(finish|final_answer|submit|attempt_completion|complete_task)$`)
)

// choose returns the first tool with one of the names, or the first tool that requires one of the
// parameters, or nil.
func choose(tools []tool, names *regexp.Regexp, required ...string) *tool {
	for i := range tools {
		if names.MatchString(strings.ToLower(tools[i].Name)) {
			return &tools[i]
		}
	}
	for i := range tools {
		if slices.ContainsFunc(required, func(name string) bool { return slices.Contains(tools[i].Parameters.Required, name) }) {
			return &tools[i]
		}
	}
	return nil
}

// mainParameters lists the parameters that carry a call's purpose. A call sets them even if they are not
// required.
var mainParameters = []string{"command", "cmd", "prompt", "message", "content", "file_text", "subagent_type"}

// arguments returns arguments that satisfy the tool's schema, printed as a chat template prints
// them. Values contains the texts for commands ("command"), for the tasks of subagents ("prompt")
// for everything else ("note"), and optionally the number for the tool's parameter timeout
// ("timeout") and the id of a subagent ("targets").
func (t *tool) arguments(values map[string]string) string {
	f := filler{tool: t, values: values, left: 1000}
	return f.object(&t.Parameters, 0)
}

// A filler makes values that satisfy a schema.
type filler struct {
	tool   *tool
	values map[string]string
	left   int // how many further values the filler makes, because a schema can be recursive
}

func (f *filler) object(s *schema, depth int) string {
	names := slices.Clone(s.Required)
	for _, name := range mainParameters {
		if _, ok := s.Properties[name]; ok && depth == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if _, ok := s.Properties["timeout"]; ok && f.values["timeout"] != "" {
		names = append(names, "timeout")
	}
	var parts []string
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		p := s.Properties[name]
		parts = append(parts, quoted(name)+": "+f.value(name, &p, depth+1))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// value returns a value for the parameter. In a schema deeper than 20 levels, the value is null.
func (f *filler) value(name string, s *schema, depth int) string {
	if f.left--; depth > 20 || f.left < 0 {
		return "null"
	}
	if r := f.resolved(s); r != nil {
		return f.value(name, r, depth+1)
	}
	switch {
	case s.Const != nil:
		return string(s.Const)
	case len(s.Enum) > 0:
		return string(s.Enum[0])
	}
	switch s.kind() {
	case "object":
		return f.object(s, depth)
	case "array":
		return f.array(name, s, depth)
	case "boolean":
		return "false"
	case "integer", "number":
		switch {
		case name == "timeout" && f.values["timeout"] != "":
			return f.values["timeout"]
		case s.Default != nil && string(s.Default) != "null":
			return string(s.Default)
		case s.Minimum != nil:
			return string(s.Minimum)
		}
		return "30"
	case "null":
		return "null"
	}
	text := f.text(name, s)
	return quoted(text + strings.Repeat(".", max(0, min(s.MinLength, 1000)-len(text))))
}

// resolved returns the schema to which s refers, or one of its alternatives, or nil.
func (f *filler) resolved(s *schema) *schema {
	if path := strings.Split(s.Ref, "/"); len(path) == 3 && path[0] == "#" {
		for _, defs := range []map[string]schema{f.tool.Parameters.Defs, f.tool.Parameters.Definitions} {
			if r, ok := defs[path[2]]; ok {
				return &r
			}
		}
	}
	for _, list := range [][]schema{s.AnyOf, s.OneOf, s.AllOf} {
		for i := range list {
			if list[i].kind() != "null" {
				return &list[i]
			}
		}
	}
	return nil
}

// kind returns the type that the schema names: the first one that is not null.
func (s *schema) kind() string {
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		return one
	}
	var many []string
	_ = json.Unmarshal(s.Type, &many) // a schema without a type accepts a string
	for _, one := range many {
		if one != "null" {
			return one
		}
	}
	if s.Properties != nil {
		return "object"
	}
	return "string"
}

func (f *filler) array(name string, s *schema, depth int) string {
	if name == "command" || name == "cmd" { // the words of a command
		return "[" + quoted("bash") + ", " + quoted("-lc") + ", " + quoted(f.values["command"]) + "]"
	}
	if id := f.values[name]; name == "targets" && id != "" { // the agents to wait for
		return "[" + quoted(id) + "]"
	}
	item := s.Items
	if item == nil {
		item = &schema{}
	}
	var parts []string
	for range min(s.MinItems, f.left) {
		parts = append(parts, f.value(name, item, depth+1))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// kinds lists the kinds of subagents in the harnesses that were looked at. Their schemas name the
// kinds only in descriptions.
var agentKinds = []string{"general-purpose", "general", "worker", "explore", "default"}

// text returns a text for the parameter, judged by its name.
func (f *filler) text(name string, s *schema) string {
	switch lower := strings.ToLower(name); {
	case f.values["command"] != "" && (lower == "command" || lower == "cmd" || lower == "script"):
		return f.values["command"]
	case f.values["prompt"] != "" && slices.Contains([]string{"prompt", "task", "message", "instructions", "query", "answer"}, lower):
		return f.values["prompt"]
	case strings.Contains(lower, "agent") || lower == "type":
		for _, kind := range agentKinds {
			if strings.Contains(s.Description+f.tool.Description, kind) {
				return kind
			}
		}
		return agentKinds[0]
	case strings.Contains(lower, "dir") || lower == "cwd":
		return "."
	case strings.Contains(lower, "path") || strings.Contains(lower, "file") && lower != "file_text":
		return f.values["note"] + ".txt"
	case strings.Contains(lower, "descr") || lower == "title" || lower == "reason" || lower == "explanation":
		return "Handle " + f.values["note"]
	}
	return f.values["note"]
}

// quoted returns text as a JSON string, as Python prints it.
func quoted(text string) string { return string(strictjson.AppendText(nil, text)) }

// compactJSON writes JSON without white space.
func compactJSON(w io.Writer, text string) error {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
