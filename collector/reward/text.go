package reward

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/collector"
)

var errNoAnswer = fmt.Errorf("reward: the task has no answer: %w", collector.ErrNoAnswer)

// A Checker is a Scorer that can check a task before a run.
type Checker interface {
	// Check returns nil if the Scorer can score samples of the task. Otherwise the error wraps
	// collector.ErrNoAnswer. The error is an *AnswerError if the Scorer cannot compare outputs with
	// the task's answer.
	Check(t *collector.Task) error
}

// An AnswerError means that the scorer cannot compare outputs with the answer of a task. The
// mistake is in the task. The error wraps collector.ErrNoAnswer.
type AnswerError struct {
	Err error // why the answer is invalid
}

func (e *AnswerError) Error() string { return "answer: " + e.Err.Error() }

// Unwrap returns the cause and collector.ErrNoAnswer.
func (e *AnswerError) Unwrap() []error { return []error{e.Err, collector.ErrNoAnswer} }

func needAnswer(t *collector.Task) error {
	if t.Answer == nil {
		return errNoAnswer
	}
	return nil
}

func binary(right bool) collector.Reward {
	v := 0.0
	if right {
		v = 1
	}
	return collector.Reward{Value: &v}
}

// Exact rewards an output that equals the answer, ignoring leading and trailing space.
type Exact struct {
	// IgnoreCase makes the comparison ignore case.
	IgnoreCase bool
}

// Check returns an error if the task has no answer.
func (Exact) Check(t *collector.Task) error { return needAnswer(t) }

// Score compares the output with the answer. It returns an error if the task has no answer.
func (e Exact) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if err := e.Check(t); err != nil {
		return collector.Reward{}, err
	}
	got, want := strings.TrimSpace(r.Output), strings.TrimSpace(*t.Answer)
	if e.IgnoreCase {
		return binary(strings.EqualFold(got, want)), nil
	}
	return binary(got == want), nil
}

// Contains rewards an output that contains the answer.
type Contains struct {
	// IgnoreCase makes the comparison ignore case.
	IgnoreCase bool
}

// Check returns an error if the answer is missing or empty.
func (Contains) Check(t *collector.Task) error {
	if err := needAnswer(t); err != nil {
		return err
	}
	if strings.TrimSpace(*t.Answer) == "" {
		return fmt.Errorf("reward: the task's answer is empty, so every output would contain it: %w", collector.ErrNoAnswer)
	}
	return nil
}

// Score searches the output for the answer. It returns an error if the answer is missing or empty.
func (c Contains) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if err := c.Check(t); err != nil {
		return collector.Reward{}, err
	}
	got, want := r.Output, strings.TrimSpace(*t.Answer)
	if c.IgnoreCase {
		got, want = strings.ToLower(got), strings.ToLower(want)
	}
	return binary(strings.Contains(got, want)), nil
}

// Regex rewards an output that matches a pattern. If the pattern has a group and the task has an
// answer, the first group of the last match must equal the answer, ignoring leading and trailing
// space.
type Regex struct {
	pattern *regexp.Regexp
}

// NewRegex compiles the pattern, in the syntax of package regexp.
func NewRegex(pattern string) (*Regex, error) {
	p, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	return &Regex{p}, nil
}

// Score matches the output against the pattern.
func (x *Regex) Score(_ context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	if x.pattern.NumSubexp() == 0 || t.Answer == nil {
		return binary(x.pattern.MatchString(r.Output)), nil
	}
	all := x.pattern.FindAllStringSubmatch(r.Output, -1)
	if len(all) == 0 {
		return binary(false), nil
	}
	got := all[len(all)-1][1]
	return binary(strings.TrimSpace(got) == strings.TrimSpace(*t.Answer)), nil
}
