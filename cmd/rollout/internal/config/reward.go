package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// Reward is the kind of scorer that scores finished samples: one of the constants, or a Python function as
// python:FILE:FUNCTION or python-group:FILE:FUNCTION.
type Reward string

// Values of reward.kind.
const (
	RewardNone       Reward = "none"
	RewardExact      Reward = "exact"
	RewardContains   Reward = "contains"
	RewardRegex      Reward = "regex"
	RewardNumber     Reward = "number"
	RewardJSON       Reward = "json"
	RewardCommand    Reward = "command"
	RewardComponents Reward = "components"
)

// Prefixes of a reward.kind that is a Python function.
const (
	pythonPrefix      = "python:"
	pythonGroupPrefix = "python-group:"
)

// rewardKinds are the kinds of a component. The kind of a reward can also be RewardNone or RewardComponents.
var rewardKinds = []Reward{RewardExact, RewardContains, RewardRegex, RewardNumber, RewardJSON, RewardCommand}

// Python returns the file and the name of a Python function. They are empty if the kind is another one. If
// group is true, the function scores whole groups.
func (r Reward) Python() (file, function string, group bool) {
	text, group := strings.CutPrefix(string(r), pythonGroupPrefix)
	if !group {
		var ok bool
		if text, ok = strings.CutPrefix(string(r), pythonPrefix); !ok {
			return "", "", false
		}
	}
	i := strings.LastIndexByte(text, ':') // a path can contain colons
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], group
}

// Program reports whether the scorer runs programs of the user.
func (r Reward) Program() bool {
	file, _, _ := r.Python()
	return r == RewardCommand || file != ""
}

// Uses reports whether the scores of the kind, or the decision which samples to keep, depend on the setting
// reward.name. The kind itself is not such a setting.
func (r Reward) Uses(name string) bool {
	switch name {
	case "include_reasoning", "min_std":
		return true
	case "ignore_case":
		return r == RewardExact || r == RewardContains
	case "tolerance":
		return r == RewardNumber
	case "pattern":
		return r == RewardRegex
	case "path":
		return r == RewardJSON
	case "command":
		return r == RewardCommand
	case "components":
		return r == RewardComponents
	}
	return false
}

var pythonName = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)

// parseReward parses a kind. It accepts the given words and Python functions.
func parseReward(text string, words []Reward) (Reward, error) {
	if slices.Contains(words, Reward(text)) {
		return Reward(text), nil
	}
	if word, _, ok := strings.Cut(text, ":"); ok && (word+":" == pythonPrefix || word+":" == pythonGroupPrefix) {
		if file, function, _ := Reward(text).Python(); file == "" || !pythonName.MatchString(function) {
			return "", fmt.Errorf("%.60q is not %s:FILE:FUNCTION, such as %[2]s:score.py:score", text, word)
		}
		return Reward(text), nil
	}
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	return "", fmt.Errorf("%.60q is not one of %s, %sFILE:FUNCTION, %sFILE:FUNCTION%s", text, strings.Join(names, ", "), pythonPrefix, pythonGroupPrefix, format.DidYouMean("; ", text, names))
}

func rewardSetting(key string, to *Reward) *Setting {
	*to = RewardNone
	words := slices.Concat([]Reward{RewardNone}, rewardKinds, []Reward{RewardComponents})
	s := scalar(key, "KIND", to, func(text string) (Reward, error) { return parseReward(text, words) }, func(r Reward) any { return string(r) })
	for _, w := range words {
		s.words = append(s.words, string(w))
	}
	s.words = append(s.words, pythonPrefix, pythonGroupPrefix)
	return s
}

// A Scorer selects and configures a scorer.
type Scorer struct {
	Kind          Reward
	Pattern, Path string
	Command       []string
	Tolerance     float64
	IgnoreCase    bool
}

// check passes the conflicts of a scorer to complain. The parameter section is what the keys begin with.
func (s *Scorer) check(section string, complain func(when bool, key, format string, args ...any)) {
	_, err := regexp.Compile(s.Pattern)
	need := func(kind Reward, missing bool, name string) {
		complain(s.Kind == kind && missing, section+name, "required if %skind is %s", section, kind)
	}
	need(RewardRegex, s.Pattern == "", "pattern")
	complain(s.Kind == RewardRegex && err != nil, section+"pattern", "%v", err)
	need(RewardJSON, s.Path == "", "path")
	need(RewardCommand, len(s.Command) == 0, "command")
}

// A Component is a part of a reward. The reward is the sum of weight × reward over the components.
type Component struct {
	Scorer
	Name   string
	Weight float64 // 0: the component is only recorded
}

// Scorers returns the scorers of a reward: its components, or the only scorer. It is empty if there is none.
func (r *RewardConfig) Scorers() []Component {
	if r.Kind == RewardNone {
		return nil
	}
	if r.Kind == RewardComponents {
		return r.Components
	}
	return []Component{{Scorer: r.Scorer, Weight: 1}}
}

// Programs returns the number of scorers that run programs of the user.
func (r *RewardConfig) Programs() (n int) {
	for _, s := range r.Scorers() {
		if s.Kind.Program() {
			n++
		}
	}
	return n
}

// A componentText is a component as written in the file.
type componentText struct {
	Kind       string   `json:"kind"`
	Weight     *float64 `json:"weight"`
	Pattern    string   `json:"pattern"`
	Path       string   `json:"path"`
	Command    []string `json:"command"`
	Tolerance  float64  `json:"tolerance"`
	IgnoreCase bool     `json:"ignore_case"`
}

func componentSchema() map[string]any {
	text, number := map[string]any{"type": "string"}, map[string]any{"type": "number"}
	return map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"kind"},
		"properties": map[string]any{
			"kind": text, "weight": number, "pattern": text, "path": text, "command": map[string]any{"type": "array", "items": text},
			"tolerance": number, "ignore_case": map[string]any{"type": "boolean"},
		},
	}
}

func componentsSetting(key string, to *[]Component) *Setting {
	var kept json.RawMessage
	s := structured(key, yaml.MappingNode, func(raw json.RawMessage) error {
		if err := unambiguous(raw); err != nil {
			return err
		}
		list, err := parseComponents(raw)
		if err == nil {
			*to, kept = list, format.CompactJSON(raw)
		}
		return err
	}, func() any { return kept })
	s.items = componentSchema()
	return s
}

// parseComponents parses a JSON object of components. The result is in the order of the names.
func parseComponents(raw json.RawMessage) (list []Component, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return nil, errors.New("must be a mapping of names to components")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, err := parseComponent(all[name])
		if err == nil && (name == "" || name == "error") {
			err = errors.New("this name is not allowed")
		}
		if err == nil {
			c.Name = name
			c.check("", func(when bool, key, format string, args ...any) {
				if when && err == nil {
					err = fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
				}
			})
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		list = append(list, c)
	}
	return list, nil
}

func parseComponent(raw json.RawMessage) (c Component, err error) {
	var text componentText
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err = dec.Decode(&text)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kinds := map[reflect.Kind]string{reflect.Struct: "a mapping with the key kind", reflect.Float64: "a number", reflect.Bool: "true or false", reflect.Slice: "a list of strings"}
		return c, fmt.Errorf("%smust be %s, got a %s", strings.TrimPrefix(wrong.Field+": ", ": "), cmp.Or(kinds[wrong.Type.Kind()], "a string"), wrong.Value)
	}
	if err != nil {
		return c, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	c = Component{Weight: 1, Scorer: Scorer{
		Pattern: text.Pattern, Path: text.Path, Command: text.Command, Tolerance: text.Tolerance, IgnoreCase: text.IgnoreCase,
	}}
	if c.Kind, err = parseReward(text.Kind, rewardKinds); err != nil {
		return c, fmt.Errorf("kind: %w", err)
	}
	if text.Weight != nil {
		c.Weight = *text.Weight
	}
	if c.Tolerance < 0 || math.IsInf(c.Tolerance, 0) {
		return c, fmt.Errorf("tolerance: %v is not a number ≥ 0", c.Tolerance)
	}
	return c, nil
}
