package lettasim

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strconv"
)

const (
	organization = "org-00000000-0000-4000-8000-000000000000"
	user         = "user-00000000-0000-4000-8000-000000000000"
)

type tool struct {
	id, name string
	raw      []byte // the tool as JSON, as the server returns it
}

// The tools in builtinTools always exist on the server. If a client creates a scripted agent
// without tools, the agent has these tools.
var builtinTools = []struct{ name, source string }{
	{"add", "def add(a: int, b: int) -> int:\n    \"\"\"Add two integers.\n\n    Args:\n        a (int): the first number\n        b (int): the second number\n    \"\"\"\n    return a + b\n"},
	{"mul", "def mul(a: int, b: int) -> int:\n    \"\"\"Multiply two integers.\n\n    Args:\n        a (int): the first number\n        b (int): the second number\n    \"\"\"\n    return a * b\n"},
	{"echo", "def echo(text: str) -> str:\n    \"\"\"Say it again.\n\n    Args:\n        text (str): what to say\n    \"\"\"\n    return text\n"},
}

var (
	pythonDef = regexp.MustCompile(`(?m)^def\s+(\w+)\s*\(([^)]*)\)`)
	pythonArg = regexp.MustCompile(`(\w+)\s*:\s*(\w+)`)
	docFirst  = regexp.MustCompile(`"""\s*([^\n"]+)`)
)

// newTool derives a tool from its source: the name, the first line of the docstring, and the
// arguments with their types. If the source does not define a function, newTool returns nil.
func newTool(source string, schema json.RawMessage, approval *bool, r *rng) *tool {
	def := pythonDef.FindStringSubmatch(source)
	if def == nil {
		return nil
	}
	t := &tool{id: "tool-" + r.uuid(), name: def[1]}
	description := t.name
	if m := docFirst.FindStringSubmatch(source); m != nil {
		description = m[1]
	}
	if schema == nil {
		schema = deriveSchema(t.name, description, def[2])
	}
	o := newObject("id", t.id, "tool_type", "custom", "description", description, "source_type", "json", "name", t.name, "tags", []byte("[]"),
		"source_code", source, "json_schema", []byte(schema), "args_json_schema", []byte("{}"), "return_char_limit", 50000,
		"pip_requirements", nil, "npm_requirements", nil, "default_requires_approval", nil)
	if approval != nil {
		o.set("default_requires_approval", strconv.AppendBool(nil, *approval))
	}
	o.set("enable_parallel_execution", []byte("false"))
	o.text("created_by_id", user)
	o.text("last_updated_by_id", user)
	o.set("metadata_", append(quote([]byte(`{"tool_hash":`), fmt.Sprintf("%x", sha256.Sum256([]byte(source)))), '}'))
	o.set("project_id", []byte("null"))
	t.raw = o.append(nil)
	return t
}

func deriveSchema(name, description, args string) json.RawMessage {
	types := map[string]string{"int": "integer", "float": "number", "bool": "boolean", "str": "string"}
	out := quote([]byte(`{"name":`), name)
	out = quote(append(out, `,"description":`...), description)
	out = append(out, `,"parameters":{"type":"object","properties":{`...)
	var required []string
	for i, m := range pythonArg.FindAllStringSubmatch(args, -1) {
		if i > 0 {
			out = append(out, ',')
		}
		kind := cmp.Or(types[m[2]], "string")
		out = append(quote(out, m[1]), `:{"type":"`+kind+`"}`...)
		required = append(required, m[1])
	}
	out = append(out, `},"required":`...)
	return append(quoteAll(out, required), `}}`...)
}

// A signature contains the data that a scripted agent needs to call a tool.
type signature struct {
	name string
	args []argument
}

type argument struct{ name, kind string }

func signatures(tools []byte) []signature {
	var list []struct {
		Name       string `json:"name"`
		JSONSchema struct {
			Parameters struct {
				Properties map[string]struct {
					Type any `json:"type"`
				} `json:"properties"`
			} `json:"parameters"`
		} `json:"json_schema"`
	}
	if json.Unmarshal(tools, &list) != nil {
		return nil
	}
	var out []signature
	for _, t := range list {
		sig := signature{name: t.Name}
		for name, p := range t.JSONSchema.Parameters.Properties {
			kind, _ := p.Type.(string)
			sig.args = append(sig.args, argument{name, kind})
		}
		sort.Slice(sig.args, func(i, j int) bool { return sig.args[i].name < sig.args[j].name })
		out = append(out, sig)
	}
	return out
}

func (s *Server) listTools(q *request) answer {
	name := q.URL.Query().Get("name")
	var out [][]byte
	for _, t := range s.tools {
		if name == "" || name == t.name {
			out = append(out, t.raw)
		}
	}
	return ok(array(out))
}

// makeTool creates a tool or replaces the tool with the same name.
func (s *Server) makeTool(q *request) answer {
	var body struct {
		SourceCode *string         `json:"source_code"`
		JSONSchema json.RawMessage `json:"json_schema"`
		Approval   *bool           `json:"default_requires_approval"`
	}
	if a := q.decode(&body); a != nil {
		return *a
	}
	s.order++
	if body.SourceCode == nil {
		return unprocessable("missing", "'body', 'source_code'", "Field required")
	}
	t := newTool(*body.SourceCode, body.JSONSchema, body.Approval, draw(s.cfg.Seed, "tool", *body.SourceCode))
	if t == nil {
		return detail(http.StatusBadRequest, "Failed to derive json schema: Schema generation failed: No functions found in source code")
	}
	for i, old := range s.tools {
		if old.name != t.name {
			continue
		}
		o, err := parseObject(t.raw)
		if err != nil {
			return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
		}
		o.text("id", old.id)
		s.tools[i] = &tool{id: old.id, name: t.name, raw: o.append(nil)}
		return ok(s.tools[i].raw)
	}
	s.tools = append(s.tools, t)
	return ok(t.raw)
}

func (s *Server) getTool(q *request) answer {
	for _, t := range s.tools {
		if t.id == q.args[0] {
			return ok(t.raw)
		}
	}
	if !isID(q.args[0], "tool") {
		return badID("tool")
	}
	return notFound("Tool", q.args[0])
}

func (s *Server) deleteTool(q *request) answer {
	for i, t := range s.tools {
		if t.id == q.args[0] {
			s.tools = append(s.tools[:i], s.tools[i+1:]...)
			return ok([]byte("null"))
		}
	}
	if !isID(q.args[0], "tool") {
		return badID("tool")
	}
	return detail(http.StatusBadRequest, "Tool with id %s not found.", q.args[0])
}

func (s *Server) runTool(q *request) answer {
	var body struct {
		Name       string          `json:"name"`
		SourceCode *string         `json:"source_code"`
		Args       json.RawMessage `json:"args"`
		JSONSchema json.RawMessage `json:"json_schema"`
	}
	if an := q.decode(&body); an != nil {
		return *an
	}
	if body.SourceCode == nil {
		return unprocessable("missing", "'body', 'source_code'", "Field required")
	}
	if body.Args == nil {
		return unprocessable("missing", "'body', 'args'", "Field required")
	}
	returned, status := "Error executing function "+body.Name+": lettasim runs no code", "error"
	switch {
	case len(body.JSONSchema) == 0 || string(body.JSONSchema) == "null":
		returned = "Error executing function " + body.Name + ": TypeError: 'NoneType' object is not subscriptable"
	case s.cfg.RunTool != nil:
		returned, status = s.cfg.RunTool(body.Name, *body.SourceCode, body.Args)
	}
	out, _ := json.Marshal(map[string]any{ // encoding strings cannot fail
		"id": "null", "date": s.cfg.Now().UTC().Format("2006-01-02T15:04:05+00:00"), "name": body.Name, "message_type": "tool_return_message",
		"tool_return": returned, "status": status, "tool_call_id": "null", "stdout": nil, "stderr": nil,
		"tool_returns": []any{map[string]any{"type": "tool", "tool_return": returned, "status": status, "tool_call_id": "null", "stdout": nil, "stderr": nil}},
	})
	return ok(out)
}
