package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector"
)

// JSON rewards an output if a value in the output's JSON equals the answer. A path selects the
// value. The JSON is the last ``` block of the output, or the whole output if there is no such
// block.
type JSON struct {
	path []string
}

// NewJSON parses a path of keys and indexes, such as result.values[0] or result.values.0. An
// empty path selects the whole value.
func NewJSON(path string) (*JSON, error) {
	if path == "" {
		return &JSON{}, nil
	}
	if strings.Count(path, "[") != strings.Count(path, "]") {
		return nil, fmt.Errorf("reward: path %q: brackets do not match", path)
	}
	keys := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(strings.TrimPrefix(path, "$.")), ".")
	if slices.Contains(keys, "") {
		return nil, fmt.Errorf("reward: path %q: empty key", path)
	}
	return &JSON{keys}, nil
}

// Check returns an error if the task has no answer.
func (*JSON) Check(t *collector.Task) error { return needAnswer(t) }

// Score compares the value with the answer. The answer is parsed as JSON. If the answer is not
// valid JSON, it counts as a plain string. If the output does not contain the value, the reward is
// 0.
func (j *JSON) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if err := j.Check(t); err != nil {
		return collector.Reward{}, err
	}
	root, err := parse(block(r.Output))
	if err != nil {
		return binary(false), nil //nolint:nilerr // an output that is not JSON is a wrong answer
	}
	got, ok := j.find(root)
	if !ok {
		return binary(false), nil
	}
	want, err := parse(*t.Answer)
	if err != nil {
		want = *t.Answer
	}
	if text, ok := got.(string); ok && text == strings.TrimSpace(*t.Answer) {
		return binary(true), nil
	}
	return binary(same(got, want)), nil
}

func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, same)
	}
	return a == b // null, booleans and strings
}

func sameNumber(a, b string) bool {
	aDigits, aExp, aOK := scientific(a)
	bDigits, bExp, bOK := scientific(b)
	return a == b || aOK && bOK && aDigits == bDigits && aExp == bExp
}

// scientific returns the significant digits of a JSON number with its sign, and the exponent of the
// last digit. The result ok is false if the exponent is too large for int64.
func scientific(text string) (digits string, exp int64, ok bool) {
	text, power, _ := strings.Cut(strings.ToLower(text), "e")
	if power != "" {
		var err error
		if exp, err = strconv.ParseInt(power, 10, 64); err != nil || max(exp, -exp) > math.MaxInt64/2 || exp == math.MinInt64 {
			return "", 0, false
		}
	}
	text, negative := strings.TrimPrefix(text, "-"), strings.HasPrefix(text, "-")
	whole, frac, _ := strings.Cut(text, ".")
	digits = strings.TrimLeft(whole+frac, "0")
	significant := strings.TrimRight(digits, "0")
	switch {
	case significant == "":
		return "0", 0, true
	case negative:
		significant = "-" + significant
	}
	return significant, exp - int64(len(frac)) + int64(len(digits)-len(strings.TrimPrefix(significant, "-"))), true
}

func (j *JSON) find(v any) (any, bool) {
	for _, key := range j.path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// block returns the contents of the last ``` block in text. It returns text if there is no block.
func block(text string) string {
	end := strings.LastIndex(text, "```")
	if end < 0 {
		return text
	}
	start := strings.LastIndex(text[:end], "```")
	if start < 0 {
		return text
	}
	inside := text[start+3 : end]
	if _, rest, ok := strings.Cut(inside, "\n"); ok { // skip the rest of the opening line, which can name a language
		return rest
	}
	return inside
}

func parse(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one value")
	}
	return v, nil
}
