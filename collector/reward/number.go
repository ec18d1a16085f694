package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"github.com/rollout-rl/rollout/collector"
)

// Number rewards an output whose last number equals the answer. Numbers of any size are compared
// exactly. If the last number has no exact value, the reward is 0. The package comment lists the
// forms of numbers.
//
// The answer of a task must be one plain number. It can have a currency or percent sign, be inside
// $…$, \(…\), \[…\], ** or \boxed{…}, and end with a period. If the answer contains ####, like the
// answers in GSM8K, only the text after the last #### counts.
type Number struct {
	// Tolerance is the largest allowed difference from the answer. If the absolute value of the
	// answer is greater than 1, Tolerance is multiplied by that value. Tolerance is read as its
	// shortest decimal form, so 0.1 is exactly a tenth. Default 0.
	Tolerance float64
}

// lastNumber returns the exact value of the last number in a text. The result found reports whether
// there is a number. The result v is nil if the number has no exact value.
func lastNumber(text string) (v *big.Rat, found bool) {
	n, start, _ := lastNumeral(plainSpelling(text))
	if start < 0 {
		return nil, false
	}
	v, _ = n.value()
	return v, true
}

func plainNumber(text string) (*big.Rat, error) {
	if at := strings.LastIndex(text, "####"); at >= 0 {
		text = text[at+len("####"):]
	}
	bare := unwrap(plainSpelling(text))
	n, start, end := lastNumeral(bare)
	if rest := strings.TrimRightFunc(bare[max(end, 0):], isUnit); start != 0 || rest != "" {
		return nil, fmt.Errorf("reward.kind number requires a plain number, got %.40q", text)
	}
	v, ok := n.value()
	if !ok {
		return nil, fmt.Errorf("%.40q has no exact value", text)
	}
	return v, nil
}

// isUnit reports whether a character after a number can be ignored.
func isUnit(r rune) bool {
	return r == ' ' || r == '\u00A0' || r == '%' || unicode.Is(unicode.Sc, r)
}

var wraps = [][2]string{{`\boxed{`, "}"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}, {"**", "**"}}

func unwrap(text string) string {
	for {
		was := text
		text = strings.TrimSuffix(strings.TrimSpace(text), ".")
		for _, w := range wraps {
			if len(text) >= len(w[0])+len(w[1]) && strings.HasPrefix(text, w[0]) && strings.HasSuffix(text, w[1]) {
				text = text[len(w[0]) : len(text)-len(w[1])]
			}
		}
		if text == was {
			return text
		}
	}
}

// Check returns an *AnswerError if the answer is not a plain number.
func (Number) Check(t *collector.Task) error {
	if err := needAnswer(t); err != nil {
		return err
	}
	if _, err := plainNumber(*t.Answer); err != nil {
		return &AnswerError{err}
	}
	return nil
}

// Score compares the last number of the output with the answer. It returns an error if the task's
// answer is not a plain number, and the reward 0 if the output has no number.
func (n Number) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if err := n.Check(t); err != nil {
		return collector.Reward{}, err
	}
	want, _ := plainNumber(*t.Answer) // no error, because Check has parsed the answer
	got, _ := lastNumber(r.Output)
	if got == nil {
		return binary(false), nil
	}
	reward := binary(n.equal(got, want))
	details, err := json.Marshal(struct {
		Number json.RawMessage `json:"number"`
	}{spelled(got)})
	if err == nil {
		reward.Details = details
	}
	return reward, nil
}

func (n Number) equal(got, want *big.Rat) bool {
	if n.Tolerance == 0 {
		return got.Cmp(want) == 0
	}
	allowed, ok := new(big.Rat).SetString(strconv.FormatFloat(n.Tolerance, 'g', -1, 64))
	if !ok {
		return false
	}
	if size := new(big.Rat).Abs(want); size.Cmp(big.NewRat(1, 1)) > 0 {
		allowed.Mul(allowed, size)
	}
	diff := new(big.Rat).Sub(got, want)
	return diff.Abs(diff).Cmp(allowed) <= 0
}

// maxSpelled bounds the length of the number in the details of a reward.
const maxSpelled = 100

// spelled returns a number as JSON: as a decimal number if possible, and otherwise as a string with
// a fraction.
func spelled(v *big.Rat) json.RawMessage {
	if digits, exact := v.FloatPrec(); exact && digits < maxSpelled && v.Num().BitLen() < 3*maxSpelled {
		return json.RawMessage(v.FloatString(digits))
	}
	text := v.RatString()
	if len(text) > maxSpelled {
		text = text[:maxSpelled] + "…"
	}
	return json.RawMessage(strconv.Quote(text))
}
