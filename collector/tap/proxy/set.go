package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap"
)

// The settings of sampling that calls keep, and that can be overridden. They are named as
// SGLang names them, but for the seed.
const (
	temperature = iota
	topP
	minP
	topK
	maxNewTokens
	seed
	stop
	stopIDs
	settings
)

var settingNames = [settings]string{"temperature", "top_p", "min_p", "top_k", "max_new_tokens", "seed", "stop", "stop_token_ids"}

// SettingNames returns the names that ParseSet knows.
func SettingNames() []string { return settingNames[:] }

// A Set overrides how engines sample. The zero Set overrides nothing.
type Set struct {
	values [settings]string // JSON, or empty
}

// Empty reports whether s overrides nothing.
func (s *Set) Empty() bool { return *s == Set{} }

// names returns the names of what s overrides.
func (s *Set) names() string {
	var out []string
	for i, value := range s.values {
		if value != "" {
			out = append(out, settingNames[i])
		}
	}
	return strings.Join(out, ", ")
}

// ErrSetting is wrapped by errors of ParseSet whose name is unknown.
var ErrSetting = errors.New("unknown setting")

// ParseSet reads settings of the form name=value. The value of stop is a text, or a JSON list
// of texts, and that of stop_token_ids a JSON list of ids; others are numbers.
func ParseSet(given []string) (Set, error) {
	var s Set
	var bad []error
	for _, text := range given {
		if err := s.parse(text); err != nil {
			bad = append(bad, fmt.Errorf("%q: %w", text, err))
		}
	}
	return s, errors.Join(bad...)
}

func (s *Set) parse(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("want name=value")
	}
	i := slices.Index(settingNames[:], name)
	if i < 0 {
		return fmt.Errorf("%w %q: it is one of %s", ErrSetting, name, strings.Join(settingNames[:], ", "))
	}
	if s.values[i] != "" {
		return errors.New("given twice")
	}
	if i == stop && !strings.HasPrefix(value, "[") {
		value = string(quoted(value))
	}
	var c tap.Sampling
	if !read(&c, i, []byte(value)) || !sensible(&c) {
		return errors.New(wants[i])
	}
	s.values[i] = value
	return nil
}

// wants say what values the settings have.
var wants = [settings]string{
	"want a number ≥ 0", "want a number in (0, 1]", "want a number in [0, 1]", "want a whole number, -1 for all tokens", "want a whole number > 0",
	"want a whole number", "want a text, or a JSON list of texts", "want a JSON list of token ids",
}

// quoted returns text as JSON.
func quoted(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string has no error
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// sensible reports whether engines accept what c says.
func sensible(c *tap.Sampling) bool {
	within := func(v *float64, least, most float64) bool { return v == nil || *v >= least && *v <= most }
	return within(c.Temperature, 0, math.MaxFloat64) && within(c.TopP, math.SmallestNonzeroFloat64, 1) && within(c.MinP, 0, 1) &&
		!slices.ContainsFunc(c.StopIDs, func(id int32) bool { return id < 0 }) && (c.TopK == nil || *c.TopK >= -1) && (c.MaxNewTokens == nil || *c.MaxNewTokens > 0)
}

// read reads the JSON value of a setting into c. It reports false, and leaves c as it is, if
// the value has another type.
func read(c *tap.Sampling, setting int, value []byte) bool {
	if !json.Valid(value) {
		return false
	}
	switch setting {
	case temperature, topP, minP:
		v, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return false
		}
		*[]**float64{&c.Temperature, &c.TopP, &c.MinP}[setting-temperature] = &v
	case topK, maxNewTokens, seed:
		v, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			f, err := strconv.ParseFloat(string(value), 64)
			if v = int64(f); err != nil || float64(v) != f || math.Abs(f) > 1<<53 {
				return false
			}
		}
		*[]**int64{&c.TopK, &c.MaxNewTokens, &c.Seed}[setting-topK] = &v
	case stop:
		if value[0] == '"' {
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		texts, ok := list[string](value)
		if !ok {
			return false
		}
		c.Stop = texts
	case stopIDs:
		ids, ok := list[int32](value)
		if !ok {
			return false
		}
		c.StopIDs = ids
	}
	return true
}

// list reads a JSON list without nulls.
func list[T any](value []byte) ([]T, bool) {
	var read []*T
	if json.Unmarshal(value, &read) != nil || read == nil {
		return nil, false
	}
	out := make([]T, len(read))
	for i, v := range read {
		if v == nil {
			return nil, false
		}
		out[i] = *v
	}
	return out, true
}

// names are the names of the settings in the bodies of a dialect; "" for one that it lacks.
type names [settings]string

// has reports whether key is one of the names.
func (n *names) has(key []byte) bool {
	return len(key) > 0 && slices.Contains(n[:], string(key))
}
