package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector"
)

// Number rewards an output whose last number is the last number of the answer.
// Commas between groups of three digits are left out: 1,234.5 is 1234.5. A percent
// or currency sign has no meaning.
type Number struct {
	// Tolerance is the greatest difference that still counts as equal, absolute or
	// relative to the answer, whichever allows more. Default 0: equal.
	Tolerance float64
}

var (
	number  = regexp.MustCompile(`[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?`)
	grouped = strings.NewReplacer(",", "")
)

// lastNumber finds the last number of text.
func lastNumber(text string) (float64, bool) {
	v, found := 0.0, false
	for _, at := range number.FindAllStringIndex(text, -1) {
		s := text[at[0]:at[1]]
		if !strings.ContainsAny(s, "0123456789") {
			continue
		}
		// A sign right after a digit or a letter is a hyphen: "10-20" ends with 20.
		if (s[0] == '-' || s[0] == '+') && at[0] > 0 && isWord(text[at[0]-1]) {
			s = s[1:]
		}
		if f, err := strconv.ParseFloat(grouped.Replace(s), 64); err == nil {
			v, found = f, true
		}
	}
	return v, found
}

func isWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || b >= 0x80
}

// Check wants an answer with a number.
func (Number) Check(t *collector.Task) error {
	if err := needAnswer(t); err != nil {
		return err
	}
	if _, ok := lastNumber(*t.Answer); !ok {
		return fmt.Errorf("reward: the answer %.40q holds no number: %w", *t.Answer, collector.ErrNoAnswer)
	}
	return nil
}

// Score compares; an answer without a number is an error, an output without one
// gets 0.
func (n Number) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if err := n.Check(t); err != nil {
		return collector.Reward{}, err
	}
	want, _ := lastNumber(*t.Answer)
	got, ok := lastNumber(r.Output)
	if !ok {
		return binary(false), nil
	}
	reward := binary(math.Abs(got-want) <= n.Tolerance*max(1, math.Abs(want)))
	details, err := json.Marshal(struct {
		Number float64 `json:"number"`
	}{got})
	if err == nil { // an infinite number has no JSON
		reward.Details = details
	}
	return reward, nil
}
