package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
)

// The values of the status column.
const (
	StatusCompleted = "completed"
	StatusMaxSteps  = "max_steps"
	StatusTruncated = "truncated"
	StatusCancelled = "cancelled" // failures only
	StatusError     = "error"     // failures only
)

// StatusOf is the status of a rollout whose last send ended with the stop reason.
// Completed, max_steps and truncated rollouts are data, the others failures.
//
//	end_turn, tool_rule     completed
//	max_steps               max_steps
//	max_tokens_exceeded     truncated: length ended the last call
//	cancelled               cancelled
//	error, invalid_tool_call, an open requires_approval, all others   error
func StatusOf(stopReason string) string {
	switch stopReason {
	case "end_turn", "tool_rule":
		return StatusCompleted
	case "max_steps":
		return StatusMaxSteps
	case "max_tokens_exceeded":
		return StatusTruncated
	case "cancelled":
		return StatusCancelled
	}
	return StatusError
}

// checkEnd refuses a reply that ended badly or holds no token data. One send
// without turns is enough: its tokens would be missing in the middle.
func checkEnd(s *tokenize.Sample, r *Reply) error {
	if len(r.Sends) == 0 {
		return fmt.Errorf("%w: nothing was answered", ErrNoTurns)
	}
	if s.Status == StatusCancelled || s.Status == StatusError {
		return fmt.Errorf("%w: stop reason %q", ErrAgent, s.StopReason)
	}
	for i := range r.Sends {
		if r.Sends[i].Turns == nil {
			return fmt.Errorf("%w: send %d of %d", ErrNoTurns, i+1, len(r.Sends))
		}
	}
	return nil
}

// checkEnds refuses a call that the engine gave up in the middle: the server takes what
// there is for the end of a turn, and the policy did not end it. It completes what is
// known of the last call by what the server says of the whole rollout.
func checkEnds(s *tokenize.Sample, calls []tokenize.Call) error {
	for k := range calls {
		if calls[k].FinishReason == tokenize.FinishAbort {
			return fmt.Errorf("%w: call %d of %d, after %d tokens", ErrAborted, k+1, len(calls), len(calls[k].OutputIDs))
		}
	}
	if n := len(calls); n > 0 && s.Status == StatusTruncated && calls[n-1].FinishReason == "" {
		calls[n-1].FinishReason = tokenize.FinishLength
	}
	return nil
}

// counts sums the server's own counts over the sends.
func (r *Reply) counts() tokenize.Counts {
	var sum tokenize.Counts
	for i := range r.Sends {
		u := &r.Sends[i].Usage
		sum.PromptTokens += u.PromptTokens
		sum.CompletionTokens += u.CompletionTokens
		sum.Steps += u.Steps
	}
	return sum
}

// facts makes a sample with all that is known besides rows and reward. r may be
// nil. The sample shares no memory with r.
func (t *try) facts(r *Reply) *tokenize.Sample {
	a := &t.a
	s := &tokenize.Sample{
		Key:       a.Key,
		TaskID:    a.Task.ID,
		GroupID:   t.cl.group,
		RolloutID: RolloutID(a.Key, a.N),
		Index:     int32(a.Index),
		GroupSize: int32(a.GroupSize),
		Attempt:   int32(a.N),
		Status:    StatusError,
		StartedAt: t.cl.started,
	}
	if len(a.Task.Metadata) > 0 {
		s.Metadata = text(a.Task.Metadata)
	}
	if r == nil {
		return s
	}
	s.AgentID, s.Model = strings.Clone(r.AgentID), strings.Clone(r.Model)
	s.Sampling = tokenize.Sampling{
		Temperature: copied(r.Sampling.Temperature), TopP: copied(r.Sampling.TopP),
		TopK: copied(r.Sampling.TopK), MaxNewTokens: copied(r.Sampling.MaxNewTokens),
	}
	if len(r.Messages) > 0 {
		s.Messages = text(r.Messages)
	}
	for i := range r.Sends {
		if id := r.Sends[i].RunID; id != "" {
			s.RunIDs = append(s.RunIDs, strings.Clone(id))
		}
	}
	if n := len(r.Sends); n > 0 {
		s.StopReason = strings.Clone(r.Sends[n-1].StopReason)
		s.Status = StatusOf(s.StopReason)
	}
	counts := r.counts()
	s.PromptTokens, s.CompletionTokens, s.Steps = counts.PromptTokens, counts.CompletionTokens, counts.Steps
	return s
}

func text(raw json.RawMessage) *string {
	s := string(raw)
	return &s
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// failure makes the sample of an attempt that failed with err: no rows, and one
// failure with what is left of the tokens and of the text. r may be nil.
func (t *try) failure(r *Reply, err error) *tokenize.Sample {
	s := t.facts(r)
	if s.Status != StatusCancelled {
		s.Status = StatusError
	}
	f := tokenize.Failure{Class: Classify(err).String(), Stage: t.stage.String(), Error: line(err), Call: -1}
	f.Reason = reasonOf(err).String()
	if r != nil {
		var text []string
		for i := range r.Sends {
			for j := range r.Sends[i].Turns {
				turn := &r.Sends[i].Turns[j]
				if turn.Role != tokenize.RoleAssistant {
					continue
				}
				f.OutputIDs = append(f.OutputIDs, turn.OutputIDs...)
				f.Logprobs = appendLogprobs(f.Logprobs, turn.Logprobs, len(turn.OutputIDs))
				if turn.Content != "" {
					text = append(text, turn.Content)
				}
			}
		}
		f.Text = strings.Clone(cutText(strings.Join(text, "\n"), maxFailureText))
	}
	s.Failures = []tokenize.Failure{f}
	s.Duration = time.Since(t.cl.started)
	s.Working = s.Duration - t.cl.waited
	return s
}

// maxFailureText bounds Failure.Text: the ids hold all that was sampled, and a text of
// megabytes is a server's, not a model's.
const maxFailureText = 1 << 20

// cutText is text up to so many bytes, at the end of a character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// refused reports whether the sink does not take this one sample, because of what is
// in it, and takes others.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// lostCall is the failure of a quarantined call whose sample keeps other rows.
func lostCall(k int32, call *tokenize.Call) tokenize.Failure {
	return tokenize.Failure{
		Class:     ClassOf(call.Reason).String(),
		Stage:     StagePrompt.String(),
		Reason:    call.Reason.String(),
		Error:     shortened(noteOf(call)),
		Call:      k,
		OutputIDs: append([]int32(nil), call.OutputIDs...),
		Logprobs:  appendLogprobs(nil, call.Logprobs, len(call.OutputIDs)),
	}
}

// noteOf is what is known about why the call is quarantined.
func noteOf(call *tokenize.Call) string {
	if call.Note != "" {
		return call.Note
	}
	return "the context of this call cannot be trusted"
}

// appendLogprobs appends n log-probabilities: those of src, NaN where it has none.
func appendLogprobs(dst, src []float32, n int) []float32 {
	dst = append(dst, src[:min(n, len(src))]...)
	for range n - min(n, len(src)) {
		dst = append(dst, float32(math.NaN()))
	}
	return dst
}

// maxErrorText bounds Failure.Error: enough for a person, small beside a row.
const maxErrorText = 400

// line is the error as one short line.
func line(err error) string {
	if e, ok := errors.AsType[*AttemptError](err); ok { // task and attempt have columns of their own
		err = e.Err
	}
	return shortened(err.Error())
}

// shortened is text as one short line.
func shortened(text string) string {
	s := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	cut := maxErrorText - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func errorDetails(err error) json.RawMessage {
	raw, merr := json.Marshal(struct {
		Error string `json:"error"`
	}{line(err)})
	if merr != nil {
		return nil
	}
	return raw
}
