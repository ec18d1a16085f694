package config

import (
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

// A Setting binds one key of the configuration to its field. It records the origin of the value.
type Setting struct {
	Key  string // key with its section, such as server.max_in_flight
	flag string // without dashes; empty if there is no flag
	doc  string
	arg  string   // name of the value in help text: "N", "DIR", …
	enum []string // allowed values; nil if any value is allowed
	// words are values, or their beginnings, for a shell's completion. Other values are allowed.
	words []string

	// set parses one string. For a list, each call after reset adds one element.
	set   func(text string) error
	reset func() // clears a list; nil for a scalar
	// object sets the value from JSON. In the configuration file, the value must be a YAML node of
	// kind node. The function is nil if the setting is plain text.
	object func(json.RawMessage) error
	node   yaml.Kind
	texts  bool           // true: convert scalars to strings before object is called
	items  map[string]any // JSON Schema of an element or of a member; nil if it is plain text or any value
	// get returns the value as its JSON type: string, int64, float64, bool, []string,
	// map[string]string, json.RawMessage, Secret or servers.
	get func() any

	Origin string // "default", "run.yaml:7", "$ROLLOUT_TASKS_LIMIT", "--limit"
}

func (s *Setting) env() string {
	return "ROLLOUT_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Text formats the value for people to read.
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

// The following functions construct settings, one function per kind of value. Each sets the field
// to its default value.

// scalar returns a setting with a single value. The function show converts the value to its JSON
// type.
func scalar[T any](key, arg string, to *T, parse func(string) (T, error), show func(T) any) *Setting {
	return &Setting{
		Key: key, arg: arg,
		set: func(text string) error {
			v, err := parse(text)
			if err == nil {
				*to = v
			}
			return err
		},
		get: func() any { return show(*to) },
	}
}

func itself[T any](v T) any { return v }

func asText[T fmt.Stringer](v T) any { return v.String() }

func stringSetting(key string, to *string) *Setting {
	return scalar(key, "TEXT", to, func(s string) (string, error) { return s, nil }, itself)
}

// enumSetting returns a setting that accepts the name of any of values. The first value is the
// default.
func enumSetting[T comparable](key string, to *T, values ...T) *Setting {
	*to = values[0]
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	s := scalar(key, strings.Join(words, "|"), to, func(text string) (T, error) {
		if i := slices.Index(words, text); i >= 0 {
			return values[i], nil
		}
		return *to, fmt.Errorf("%q is not one of %s%s", text, strings.Join(words, ", "), format.DidYouMean("; ", text, words))
	}, func(v T) any { return fmt.Sprint(v) })
	s.enum = words
	return s
}

// choice returns a Boolean setting. The parameters no and yes are the words for false and true. The
// default is false.
func choice(key string, to *bool, no, yes string) *Setting {
	word := new(string)
	s := enumSetting(key, word, no, yes)
	set := s.set
	s.set = func(text string) error {
		err := set(text)
		*to = *word == yes
		return err
	}
	return s
}

func listSetting(key string, to *[]string) *Setting {
	return &Setting{
		Key: key, arg: "TEXT",
		reset: func() { *to = nil },
		set:   func(s string) error { *to = append(*to, s); return nil },
		get:   func() any { return append([]string{}, *to...) },
	}
}

func boolSetting(key string, to *bool, value bool) *Setting {
	*to = value
	return scalar(key, "", to, func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return b, fmt.Errorf("%q is neither true nor false", s)
		}
		return b, nil
	}, itself)
}

func intSetting(key string, to *int, value, least int) *Setting {
	*to = value
	return scalar(key, "N", to, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		switch {
		case err != nil:
			return n, fmt.Errorf("%q is not a whole number", s)
		case n < least || n > math.MaxInt32:
			return n, fmt.Errorf("must be from %d to %d, got %d", least, math.MaxInt32, n)
		}
		return n, nil
	}, func(n int) any { return int64(n) })
}

func durationSetting(key string, to *time.Duration, value, least time.Duration) *Setting {
	*to = value
	return scalar(key, "TIME", to, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			return d, fmt.Errorf("%q is not a duration (want 90s, 5m or 1h30m)", s)
		case d < least:
			return d, fmt.Errorf("must be ≥ %s, got %s", least, d)
		}
		return d, nil
	}, asText)
}

func bytesSetting(key string, to *int64, value, least int64) *Setting {
	*to = value
	return scalar(key, "SIZE", to, func(s string) (int64, error) {
		n, err := format.ParseSize(s)
		if err == nil && n < least {
			err = fmt.Errorf("must be ≥ %s, got %s", format.Size(least), s)
		}
		return n, err
	}, func(n int64) any { return format.Size(n) })
}

func floatSetting(key string, to *float64) *Setting {
	return scalar(key, "X", to, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return f, fmt.Errorf("%q is not a number ≥ 0", s)
		}
		return f, nil
	}, itself)
}

func secretSetting(key string, to *Secret, getenv func(string) string) *Setting {
	return scalar(key, "REFERENCE", to, func(s string) (Secret, error) { return ParseSecret(s, getenv) }, itself)
}

// optional converts a setting into a setting whose value can also be nil.
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

// with sets the setting's flag, the name of its value, and its help text.
func (s *Setting) with(flag, arg, doc string) *Setting {
	s.flag, s.doc = flag, doc
	if arg != "" {
		s.arg = arg
	}
	return s
}
