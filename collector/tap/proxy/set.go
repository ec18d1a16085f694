package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// These sampling settings are recorded in calls, and a Set can override them. All of them except
// seed have SGLang's names.
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

// SettingNames returns the names that ParseSet accepts.
func SettingNames() []string { return settingNames[:] }

// A Set overrides sampling parameters. The zero Set overrides nothing.
type Set struct {
	values [settings]string // JSON, or empty
}

func (s *Set) names() string {
	var out []string
	for i, value := range s.values {
		if value != "" {
			out = append(out, settingNames[i])
		}
	}
	return strings.Join(out, ", ")
}

// ParseSet parses settings of the form name=value. The value of stop is a plain string or a JSON
// list of strings. The value of stop_token_ids is a JSON list of ids. The values of all other
// settings are numbers.
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
		hint := ""
		if name == "max_tokens" || name == "max_completion_tokens" { // in OpenAI's API
			hint = "; did you mean " + settingNames[maxNewTokens] + "?"
		}
		return fmt.Errorf("unknown setting %q (want one of %s)%s", name, strings.Join(settingNames[:], ", "), hint)
	}
	if s.values[i] != "" {
		return errors.New("duplicate setting")
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

// wants contains the error message for an invalid value of each setting.
var wants = [settings]string{
	"want a number ≥ 0", "want a number in (0, 1]", "want a number in [0, 1]", "want an integer; -1 means all tokens", "want an integer > 0",
	"want an integer", "want a string, or a JSON list of strings", "want a JSON list of token ids",
}

func quoted(text string) []byte { return strictjson.AppendText(nil, text) }

// sensible reports whether the values in c are in the ranges that engines accept.
func sensible(c *tap.Sampling) bool {
	within := func(v *float64, least, most float64) bool { return v == nil || *v >= least && *v <= most }
	return within(c.Temperature, 0, math.MaxFloat64) && within(c.TopP, math.SmallestNonzeroFloat64, 1) && within(c.MinP, 0, 1) &&
		!slices.ContainsFunc(c.StopIDs, func(id int32) bool { return id < 0 }) && (c.TopK == nil || *c.TopK >= -1) && (c.MaxNewTokens == nil || *c.MaxNewTokens > 0)
}

// read parses the JSON value of a setting into c. It returns false if the value has the wrong type.
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

// names contains the names that a dialect uses for the settings. If the dialect lacks a setting,
// the name is "".
type names [settings]string

func (n *names) has(key []byte) bool {
	return len(key) > 0 && slices.Contains(n[:], string(key))
}
