package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// This file contains settings with structured values: objects, headers and client tools.

// structured returns a setting whose value in the configuration file is a YAML node of the given
// kind. In a flag or an environment variable, the value is JSON text.
func structured(key string, node yaml.Kind, object func(json.RawMessage) error, get func() any) *Setting {
	return &Setting{
		Key: key, arg: "JSON", node: node, object: object, get: get,
		set: func(text string) error {
			if err := ambiguous(text); err != nil {
				return err
			}
			return object(json.RawMessage(text))
		},
	}
}

// scalarOf returns the text of a JSON string, number or Boolean. For null, it returns "". The
// result ok is false for a list or an object.
func scalarOf(raw json.RawMessage) (text string, ok bool) {
	switch raw[0] {
	case '[', '{':
		return "", false
	case '"', 'n':
		err := json.Unmarshal(raw, &text)
		return text, err == nil
	}
	return string(raw), true
}

// objectSetting returns a setting whose value is any JSON object.
func objectSetting(key string, to *json.RawMessage) *Setting {
	return structured(key, yaml.MappingNode, func(raw json.RawMessage) error {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil || m == nil {
			return fmt.Errorf("%q is not a JSON object", string(raw))
		}
		*to = format.CompactJSON(raw)
		return nil
	}, func() any { return withoutSecrets(*to) })
}

// withoutSecrets hides the values in the two fields that contain the secrets of an agent's tools.
func withoutSecrets(object json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return object
	}
	found := false
	for _, field := range []string{"secrets", "tool_exec_environment_variables"} {
		var secrets map[string]json.RawMessage
		if json.Unmarshal(fields[field], &secrets) != nil || len(secrets) == 0 {
			continue
		}
		for name := range secrets {
			secrets[name] = json.RawMessage(`"` + Hidden + `"`)
		}
		fields[field], _ = json.Marshal(secrets) // strings can always be encoded
		found = true
	}
	if !found {
		return object
	}
	b, _ := json.Marshal(fields)
	return b
}

// headers are sent with every request. The values can be secrets, so only references to them are
// shown.
type headers map[string]headerValue

type headerValue struct{ text, shown string }

func (h *headers) setting(key string, getenv func(string) string) *Setting {
	s := structured(key, yaml.MappingNode, func(raw json.RawMessage) error {
		if err := unambiguous(raw); err != nil {
			return err
		}
		return h.parse(raw, getenv)
	}, func() any { return h.shown() })
	s.texts = true
	return s
}

func (h headers) shown() map[string]string {
	shown := make(map[string]string, len(h))
	for name, v := range h {
		shown[name] = v.shown
	}
	return shown
}

// parse parses a JSON object of strings. Its errors do not contain values, because a value can be a
// secret.
func (h *headers) parse(raw json.RawMessage, getenv func(string) string) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return errors.New("must be a mapping of names to strings")
	}
	*h = make(headers, len(m))
	spelled := make(map[string]string, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		text, ok := scalarOf(m[name])
		if !ok {
			return errors.New("must be a mapping of names to strings")
		}
		if !headerName.MatchString(name) {
			return fmt.Errorf("%q is not a header name (allowed: letters, digits and any of !#$%%&'*+-.^_`|~)", name)
		}
		if before, twice := spelled[http.CanonicalHeaderKey(name)]; twice {
			return fmt.Errorf("%s and %s are the same header", before, name)
		}
		spelled[http.CanonicalHeaderKey(name)] = name
		v := headerValue{text: text, shown: Hidden}
		if _, _, ok := cutReference(text); ok {
			s, err := ParseSecret(text, getenv)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			v = headerValue{text: s.Reveal(), shown: text}
		}
		if strings.IndexFunc(v.text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0 {
			return fmt.Errorf("%s: a header value must not contain a control character", name)
		}
		(*h)[name] = v
	}
	return nil
}

// headerName matches the name of a header (a token in RFC 9110).
var headerName = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]+$")

// Reveal returns the headers with their values. It must be called only by code that sends the
// headers.
func (h headers) Reveal() http.Header {
	out := make(http.Header, len(h))
	for name, v := range h {
		out.Set(name, v.text)
	}
	return out
}

// ambiguous returns an error for JSON that different parsers interpret differently. For text that
// is not JSON, it returns nil, because the caller's parser reports the syntax error.
func ambiguous(text string) error {
	err, bad := errors.AsType[*strictjson.Error](strictjson.Check(text, strictjson.Options{}))
	if bad && err.Ambiguous {
		return err
	}
	return nil
}

// clientTools are the tools that run in this process.
type clientTools []agent.ClientToolConfig

// A toolText is a client tool as written in the file.
type toolText struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Command     []string        `json:"command"`
	Answer      *string         `json:"answer"`
	Timeout     *string         `json:"timeout"`
}

func toolSchema() map[string]any {
	text := map[string]any{"type": "string"}
	return map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"name"},
		"properties": map[string]any{
			"name": text, "description": text, "parameters": map[string]any{"type": "object"},
			"command": map[string]any{"type": "array", "items": text}, "answer": text, "timeout": text,
		},
	}
}

func (c *clientTools) setting(key string) *Setting {
	var kept json.RawMessage
	s := structured(key, yaml.SequenceNode, func(raw json.RawMessage) error {
		tools, err := parseClientTools(raw)
		if err == nil {
			*c, kept = tools, format.CompactJSON(raw)
		}
		return err
	}, func() any { return kept })
	s.items = toolSchema()
	return s
}

// parseClientTools parses a JSON list of client tools. It rejects unknown fields.
func parseClientTools(b []byte) (clientTools, error) {
	var texts []toolText
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&texts); err != nil {
		return nil, fmt.Errorf("not a list of tools: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	var tools clientTools
	seen := map[string]bool{}
	for i, t := range texts {
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("tool %d: the name is empty", i)
		case seen[t.Name]:
			return nil, fmt.Errorf("tool %d: the name %q is already used", i, t.Name)
		}
		seen[t.Name] = true
		if len(t.Command) > 0 && t.Answer != nil {
			return nil, fmt.Errorf("tool %s: set either a command or an answer, not both", t.Name)
		}
		tool := agent.ClientToolConfig{
			Tool:    letta.ClientTool{Name: t.Name, Description: t.Description, Parameters: t.Parameters},
			Command: t.Command, Answer: t.Answer,
		}
		if t.Timeout != nil {
			d, err := time.ParseDuration(*t.Timeout)
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("tool %s: timeout: %q is not a duration (want 90s or 5m)", t.Name, *t.Timeout)
			}
			tool.Timeout = d
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// maxNesting is the maximum nesting depth that jsonOf accepts. Without this limit, the conversion
// of an alias that contains itself would never end.
const maxNesting = 100

// jsonOf converts a YAML node to JSON. It keeps the order of keys, because a prompt can depend on
// the order of a tool's fields. If texts is set, it converts every scalar except null to a string
// that contains the text from the file. For example, 007 becomes "007".
func jsonOf(n *yaml.Node, texts bool) (json.RawMessage, error) {
	w := jsonWriter{texts: texts}
	if err := w.value(n, maxNesting); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// unambiguous is like [ambiguous], but for JSON that was converted from the file. Its error omits
// the position, because the position in the JSON is not a position in the file.
func unambiguous(raw json.RawMessage) error {
	if err, bad := errors.AsType[*strictjson.Error](ambiguous(string(raw))); bad {
		return errors.New(err.Path + err.Problem)
	}
	return nil
}

// A jsonWriter writes YAML nodes as JSON. Its errors do not contain values, because a value can be
// a secret.
type jsonWriter struct {
	out   bytes.Buffer
	texts bool
}

func (w *jsonWriter) value(n *yaml.Node, depth int) error {
	if depth == 0 {
		return fmt.Errorf("nested deeper than %d levels", maxNesting)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth-1)
	case yaml.MappingNode:
		members, err := membersOf(n, depth)
		if err != nil {
			return err
		}
		w.out.WriteByte('{')
		for i, m := range members {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.text(m.key)
			w.out.WriteByte(':')
			if err := w.value(m.value, depth-1); err != nil {
				return err
			}
		}
		w.out.WriteByte('}')
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(e, depth-1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
	default:
		return w.scalar(n)
	}
	return nil
}

func (w *jsonWriter) scalar(n *yaml.Node) error {
	switch {
	case n.Tag == "!!timestamp": // JSON has no timestamps; use the text from the file
		w.text(n.Value)
		return nil
	case !w.texts && (n.Tag == "!!int" || n.Tag == "!!float") && json.Valid([]byte(n.Value)):
		w.out.WriteString(n.Value) // chat templates distinguish 1.0 from 1
		return nil
	}
	var v any
	if n.Decode(&v) != nil {
		return fmt.Errorf("line %d: the value is not a %s", n.Line, n.Tag)
	}
	if _, binary := v.(string); w.texts && v != nil && !binary {
		v = n.Value
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		return fmt.Errorf("line %d: the number is not finite, so JSON cannot represent it", n.Line)
	}
	w.text(v)
	return nil
}

// text writes a scalar as JSON, without HTML escaping.
func (w *jsonWriter) text(v any) {
	_ = format.NewJSONEncoder(&w.out).Encode(v) // cannot fail: the value is finite, and out is in memory
	w.out.Truncate(w.out.Len() - 1)             // remove the line break that Encode adds
}

type yamlMember struct {
	key   string
	value *yaml.Node
}

// membersOf returns the members of a mapping: first its own members, then the members that its
// merge keys (<<) add. If two members have the same name, the earlier one wins.
func membersOf(n *yaml.Node, depth int) (members []yamlMember, err error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case depth == 0:
		return nil, fmt.Errorf("nested deeper than %d levels", maxNesting)
	case n.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("line %d: << needs a mapping or a list of mappings", n.Line)
	}
	var merged []*yaml.Node
	names := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		from := value
		if from.Kind == yaml.AliasNode {
			from = from.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: a key must be a string", key.Line)
		case key.Tag != "!!merge":
			members = append(members, yamlMember{key.Value, value})
			names[key.Value] = true
		case from.Kind == yaml.SequenceNode:
			merged = append(merged, from.Content...)
		default:
			merged = append(merged, from)
		}
	}
	for _, from := range merged {
		more, err := membersOf(from, depth-1)
		if err != nil {
			return nil, err
		}
		for _, m := range more {
			if !names[m.key] {
				members = append(members, m)
				names[m.key] = true
			}
		}
	}
	return members, nil
}
