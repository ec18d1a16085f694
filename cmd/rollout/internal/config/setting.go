package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// A Setting binds one key of the configuration to its field and records the origin of its value.
type Setting struct {
	Key  string // with its section: server.max_in_flight
	flag string // without dashes; empty: no flag
	doc  string
	arg  string   // name of the value in help texts: "N", "DIR", …
	enum []string // allowed values; nil: not a closed list

	// set parses one text. For a list, it adds one element per call after reset.
	set   func(text string) error
	reset func() // clears a list; nil for a scalar
	// object sets the value from a YAML node of kind node. It is nil for settings that are plain
	// text.
	object func(*yaml.Node) error
	node   yaml.Kind
	items  map[string]any // JSON Schema of an element; nil for a list of plain text
	// get returns the value in its JSON type: string, int64, float64, bool, []string,
	// map[string]string, json.RawMessage, Secret, servers.
	get func() any

	Origin string // "default", "run.yaml:7", "$ROLLOUT_TASKS_LIMIT", "--limit"
}

func (s *Setting) env() string {
	return "ROLLOUT_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Text formats the value for people.
func (s *Setting) Text() string {
	switch v := s.get().(type) {
	case nil:
		return ""
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case json.RawMessage:
		return string(v)
	case map[string]string:
		b, _ := json.Marshal(v) // strings can always be encoded
		return string(b)
	default:
		return fmt.Sprint(v)
	}
}

// Constructors of settings, one per kind of value.

func stringSetting(key string, to *string) *Setting {
	return &Setting{
		Key: key, arg: "TEXT",
		set: func(s string) error { *to = s; return nil },
		get: func() any { return *to },
	}
}

// enumSetting accepts one of values, by the text of each.
func enumSetting[T comparable](key string, to *T, values ...T) *Setting {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return &Setting{
		Key: key, arg: strings.Join(words, "|"), enum: words,
		set: func(text string) error {
			i := slices.Index(words, text)
			if i < 0 {
				near := ""
				if n := format.Nearest(text, words); n != "" {
					near = "; did you mean " + n + "?"
				}
				return fmt.Errorf("%q is not one of %s%s", text, strings.Join(words, ", "), near)
			}
			*to = values[i]
			return nil
		},
		get: func() any { return fmt.Sprint(*to) },
	}
}

func listSetting(key string, to *[]string) *Setting {
	return &Setting{
		Key: key, arg: "TEXT",
		reset: func() { *to = nil },
		set:   func(s string) error { *to = append(*to, s); return nil },
		get:   func() any { return append([]string{}, *to...) },
	}
}

func boolSetting(key string, to *bool) *Setting {
	return &Setting{
		Key: key,
		set: func(s string) (err error) {
			if *to, err = strconv.ParseBool(s); err != nil {
				return fmt.Errorf("%q is neither true nor false", s)
			}
			return nil
		},
		get: func() any { return *to },
	}
}

func intSetting(key string, to *int, least int) *Setting {
	return &Setting{
		Key: key, arg: "N",
		set: func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return fmt.Errorf("%q is not a whole number", s)
			}
			if n < least || n > math.MaxInt32 {
				return fmt.Errorf("%d: must be ≥ %d and ≤ %d", n, least, math.MaxInt32)
			}
			*to = n
			return nil
		},
		get: func() any { return int64(*to) },
	}
}

func durationSetting(key string, to *time.Duration, least time.Duration) *Setting {
	return &Setting{
		Key: key, arg: "TIME",
		set: func(s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return fmt.Errorf("%q is not a duration (want 90s, 5m or 1h30m)", s)
			}
			if d < least {
				return fmt.Errorf("%s: must be ≥ %s", d, least)
			}
			*to = d
			return nil
		},
		get: func() any { return to.String() },
	}
}

func bytesSetting(key string, to *int64, least int64) *Setting {
	return &Setting{
		Key: key, arg: "SIZE",
		set: func(s string) error {
			n, err := format.ParseSize(s)
			if err != nil {
				return err
			}
			if n < least {
				return fmt.Errorf("%s: must be ≥ %s", s, format.Size(least))
			}
			*to = n
			return nil
		},
		get: func() any { return format.Size(*to) },
	}
}

// parsedSetting is for types with their own text form.
func parsedSetting[T fmt.Stringer](key string, to *T, parse func(string) (T, error)) *Setting {
	return &Setting{
		Key: key, arg: "VALUE",
		set: func(s string) error {
			v, err := parse(s)
			if err == nil {
				*to = v
			}
			return err
		},
		get: func() any { return (*to).String() },
	}
}

func secretSetting(key string, to *Secret, getenv func(string) string) *Setting {
	return &Setting{
		Key: key, arg: "REFERENCE",
		set: func(s string) (err error) { *to, err = ParseSecret(s, getenv); return err },
		get: func() any { return *to },
	}
}

// objectSetting is any JSON object. In the file it is a mapping.
func objectSetting(key string, to *json.RawMessage) *Setting {
	return &Setting{
		Key: key, arg: "JSON",
		set: func(s string) error {
			if err := ambiguous(s); err != nil {
				return err
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal([]byte(s), &m); err != nil || m == nil {
				return fmt.Errorf("%q is not a JSON object", s)
			}
			var out bytes.Buffer
			if err := json.Compact(&out, []byte(s)); err != nil {
				return err
			}
			*to = out.Bytes()
			return nil
		},
		node: yaml.MappingNode,
		object: func(n *yaml.Node) (err error) {
			*to, err = jsonOf(n)
			return err
		},
		get: func() any {
			if *to == nil {
				return nil
			}
			return withoutSecrets(*to)
		},
	}
}

// withoutSecrets hides the two fields in which the server receives the secrets of an agent's tools.
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

func floatSetting(key string, to *float64) *Setting {
	return &Setting{
		Key: key, arg: "X",
		set: func(s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
				return fmt.Errorf("%q is not a number ≥ 0", s)
			}
			*to = f
			return nil
		},
		get: func() any { return *to },
	}
}

// optional wraps the setting of a value so that the value can be null.
func optional[T any](to **T, setting func(*T) *Setting) *Setting {
	value := new(T)
	s := setting(value)
	set, get := s.set, s.get
	s.reset = func() { *to = nil }
	s.set = func(text string) error {
		err := set(text)
		if err == nil {
			*to = value
		}
		return err
	}
	s.get = func() any {
		if *to == nil {
			return nil
		}
		return get()
	}
	return s
}

// with sets the flag, the name of its value and the help text.
func (s *Setting) with(flag, arg, doc string) *Setting {
	s.flag, s.doc = flag, doc
	if arg != "" {
		s.arg = arg
	}
	return s
}
