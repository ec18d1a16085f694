package sink

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// dataStatuses lists the statuses that a sample with rows can have. A failed sample can also have
// the status cancelled or error.
var dataStatuses = []string{"completed", "truncated", "max_steps"}

// checkSample returns a *SampleError that describes the first rule that s breaks.
func checkSample(s *tokenize.Sample, vocab int, experts tokenize.ExpertShape) error {
	refuse := func(row int, err error) error { return &SampleError{Key: s.Key, Row: row, Err: err} }
	err := checkIdentity(s.Key, s.Index, s.GroupSize, s.Attempt)
	if err == nil {
		err = checkTexts([]string{s.Key, s.TaskID, s.GroupID, s.RolloutID, s.Status, s.StopReason, s.Model, s.AgentID})
	}
	if err == nil {
		err = errors.Join(checkReward(s.Reward), checkJSON(s.RewardDetails, s.Messages, s.Metadata), checkTexts(s.RunIDs))
	}
	if err == nil && len(s.Rows) > 0 {
		err = checkStatus(s.Status)
	}
	if err != nil {
		return refuse(-1, err)
	}
	var sampled int64
	var chain chainCheck
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Experts.IDs != nil && r.Experts.Shape != experts {
			return refuse(i, fmt.Errorf("the routed experts have the shape %q, but the dataset has %q", r.Experts.Shape, experts))
		}
		if err := errors.Join(checkRow(r, i, len(s.Rows), vocab), chain.next(r)); err != nil {
			return refuse(i, err)
		}
		sampled += sampledTokens(r)
		if err := checkSampled(sampled, s.CompletionTokens); err != nil {
			return refuse(i, err)
		}
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		if f.Call < -1 {
			return refuse(-1, fmt.Errorf("failure %d: call is %d, but must be ≥ -1", i, f.Call))
		}
		if err := checkTexts([]string{f.Class, f.Stage, f.Reason}); err != nil {
			return refuse(-1, fmt.Errorf("failure %d: %w", i, err))
		}
	}
	return nil
}

func checkIdentity(key string, index, size, attempt int32) error {
	switch {
	case key == "":
		return errors.New("empty sample key")
	case index < 0 || index >= size:
		return fmt.Errorf("index %d is out of range for a group of %d", index, size)
	case attempt < 1:
		return fmt.Errorf("attempt is %d, but must be ≥ 1", attempt)
	}
	return nil
}

func checkRow(r *tokenize.Row, i, n, vocab int) error {
	if err := r.Check(vocab); err != nil {
		return err
	}
	if int(r.SegmentIndex) != i || int(r.SegmentCount) != n {
		return &SegmentError{int(r.SegmentIndex), int(r.SegmentCount), i, n}
	}
	if err := checkTexts(r.FinishReasons); err != nil {
		return err
	}
	return errors.Join(checkTexts(r.StepIDs), checkTexts(r.WeightVersions))
}

// A chainCheck checks the chains of a sample's rows. The rows of a chain follow each other and have
// the same kind and parent, and the chains are in ascending order. A chain can have no row.
type chainCheck struct {
	chain  int32
	kind   tokenize.ChainKind
	parent tokenize.Parent
}

// next checks the next row of the sample. The zero value is the state before the first row.
func (c *chainCheck) next(r *tokenize.Row) error {
	last := *c
	*c = chainCheck{r.Chain, r.ChainKind, r.Parent}
	switch {
	case r.Chain < last.chain:
		return fmt.Errorf("a row of chain %d follows a row of chain %d, but chains must be in ascending order", r.Chain, last.chain)
	case r.Chain == last.chain && r.ChainKind != last.kind:
		return fmt.Errorf("chain %d has kind %s, but an earlier row of the chain has kind %s", r.Chain, r.ChainKind, last.kind)
	case r.Chain == last.chain && r.Parent != last.parent:
		return fmt.Errorf("chain %d was started by step %d of chain %d, but an earlier row of the chain has step %d of chain %d",
			r.Chain, r.Parent.Step, r.Parent.Chain, last.parent.Step, last.parent.Chain)
	}
	return nil
}

// sampledTokens returns the number of sampled tokens of a valid row: the tokens in assistant spans
// plus the trimmed tokens.
func sampledTokens(r *tokenize.Row) int64 {
	n := int64(r.Trimmed)
	for k, role := range r.TurnRoles {
		if tokenize.Role(role) == tokenize.RoleAssistant {
			n += int64(r.TurnOffsets[k+1] - r.TurnOffsets[k])
		}
	}
	return n
}

// checkSampled returns an error if the rows of a sample so far have more sampled tokens than the
// server counted. A counted number of 0 means that the number is unknown. The rows can have fewer
// sampled tokens, because failed calls and rows without a trainable token are dropped.
func checkSampled(sampled, counted int64) error {
	if counted > 0 && sampled > counted {
		return fmt.Errorf("the sample has %d sampled tokens so far, but the server counted %d", sampled, counted)
	}
	return nil
}

// checkReward refuses a reward that is not finite, because it would make every advantage in its
// group NaN.
func checkReward(v *float64) error {
	if v == nil || !math.IsNaN(*v) && !math.IsInf(*v, 0) {
		return nil
	}
	return fmt.Errorf("reward %v is not finite; use null if there is no reward", *v)
}

func checkScore(s *StoredScore) error {
	if s.Failed && s.Reward != nil {
		return errors.New("the scorer failed, but there is a reward")
	}
	return checkReward(s.Reward)
}

func checkJSON(details, messages, metadata *string) error {
	return errors.Join(isJSON("reward_details", details), isJSON("messages", messages), isJSON("metadata", metadata))
}

func isJSON(column string, text *string) error {
	switch {
	case text == nil || strictjson.Check(*text, strictjson.GoOptions()) == nil:
		return nil
	case !utf8.ValidString(*text):
		return fmt.Errorf("%s is not UTF-8: %.40q", column, *text)
	}
	return fmt.Errorf("%s is not JSON: %.40q", column, *text)
}

func checkTexts(list []string) error {
	for _, text := range list {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%.40q is not UTF-8", text)
		}
	}
	return nil
}

func checkStatus(status string) error {
	if slices.Contains(dataStatuses, status) {
		return nil
	}
	return fmt.Errorf("status %q is not one of %q", status, dataStatuses)
}

// failed is like CommittedSample.Failed, but for a sample that has not yet been committed.
func failed(s *tokenize.Sample) bool { return len(s.Rows) == 0 && len(s.Failures) > 0 }

// class returns the CommittedSample.Class of a sample that has not yet been committed.
func class(s *tokenize.Sample) string {
	if !failed(s) {
		return ""
	}
	return s.Failures[0].Class
}

// storedBytes returns an upper bound for the size of the sample in a shard, because each row repeats
// the texts of the sample.
func storedBytes(s *tokenize.Sample) int64 {
	return sampleBytes(s) + int64(len(s.Rows)+len(s.Failures))*textLen(s)
}

func textLen(s *tokenize.Sample) (n int64) {
	for _, text := range []*string{s.RewardDetails, s.Messages, s.Metadata} {
		if text != nil {
			n += int64(len(*text))
		}
	}
	return n
}

// insideBytes returns the size of the values from inside the calls.
func insideBytes(r *tokenize.Row) int {
	n := len(r.Experts.IDs) + 4*(len(r.SamplingMask)+len(r.MaskLengths)+len(r.WeightVersionEnds))
	for _, name := range r.WeightVersions {
		n += 16 + len(name)
	}
	return n
}

func sampleBytes(s *tokenize.Sample) int64 {
	n := 512 + int(textLen(s))
	for i := range s.Rows {
		r := &s.Rows[i]
		n += 256 + 4*len(r.InputIDs) + len(r.LossMask) + 4*len(r.Logprobs) + 4*len(r.Versions) + insideBytes(r) +
			5*len(r.TurnOffsets) + 64*(len(r.FinishReasons)+len(r.StepIDs)) + 256*len(r.Realigned)
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		n += 256 + 4*len(f.OutputIDs) + 4*len(f.Logprobs) + len(f.Text) + len(f.Error)
	}
	return int64(n)
}
