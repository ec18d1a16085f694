package collector

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
)

// sample makes a sample from a reply: it builds and checks the rows, and scores the rollout. The
// sample shares no memory with r.
func (a *attempt) sample(ctx context.Context, r *Reply, prompts func(context.Context, *Reply) ([]tokenize.Call, error)) (*tokenize.Sample, error) {
	cfg := &a.w.c.cfg
	s := a.facts(r)
	if err := checkEnd(s, r); err != nil {
		return nil, err
	}

	a.setStage(StagePrompt)
	calls, err := prompts(ctx, r)
	if err != nil {
		if ctx.Err() == nil {
			err = a.promptGap(r, err)
		}
		return nil, err
	}
	a.w.c.answerPrompts.note(r, calls)
	s.Sampling, s.Unshown = samplingOf(calls), r.Unshown

	a.setStage(StageAlign)
	if err := tokenize.CheckCounts(calls, r.counts()); err != nil {
		return nil, err
	}
	r.flagCalls(calls)
	if err := checkEnds(s, calls); err != nil {
		return nil, err
	}
	rows, al, err := a.w.aligner.Align(calls)
	if err != nil {
		return nil, err
	}
	a.alignerYield = Yield{CutCalls: len(al.CutCalls), Cut: int64(al.Cut), EmptyRows: al.EmptyRows}
	a.alignerYield.countVersions(calls)
	if e := a.recordGap(r, calls); e != nil && (!e.partial || a.canRetry(e)) {
		return nil, e
	}
	if n := len(al.LostCalls); n > 0 && n == len(calls) {
		return nil, allQuarantined(r, calls)
	}
	for i := range rows {
		if worst := cfg.Require; worst != nil && rows[i].Grade > *worst { // a higher Grade value is a worse grade
			return nil, &tokenize.AlignError{
				Turn: -1, Token: -1, Reason: tokenize.ReasonGrade,
				Err: fmt.Errorf("row %d: grade is %s, want at least %s", i, rows[i].Grade, *worst),
			}
		}
		if err := rows[i].Check(cfg.Align.VocabSize); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	s.Rows = rows
	for _, k := range al.LostCalls {
		s.Failures = append(s.Failures, lostCall(r.number(k), &calls[k]))
	}
	for i := range r.Missing {
		s.Failures = append(s.Failures, missingCall(i, &r.Missing[i]))
	}

	if err := a.score(ctx, s, r, calls); err != nil {
		return nil, err
	}
	a.setTimes(s, r)
	return s, nil
}

// setTimes sets the start time and the durations of the sample. The reply r can be nil.
func (a *attempt) setTimes(s *tokenize.Sample, r *Reply) {
	if r != nil && !r.Started.IsZero() {
		s.StartedAt, s.Duration, s.Working = r.Started, r.took(), r.took()
		return
	}
	s.Duration = time.Since(a.cl.retry.started)
	s.Working = s.Duration - a.cl.retry.backoff
}

// allQuarantined returns the error of a sample without a trained call. The main conversation decides
// about the reason: its first call that failed a check, otherwise its last call.
func allQuarantined(r *Reply, calls []tokenize.Call) error {
	which := 0
	for k := range calls {
		if calls[k].Chain != 0 {
			continue
		}
		which = k
		if reasonClass(calls[k].Reason) != ClassUntrained {
			break
		}
	}
	c, name := &calls[which], "the first call"
	if which > 0 {
		name = fmt.Sprint("call ", r.number(int32(which)))
	}
	return &tokenize.AlignError{
		Turn: -1, Token: -1, Reason: c.Reason,
		Err: fmt.Errorf("all calls are quarantined; reason for %s: %s", name, noteOf(c)),
	}
}

// facts returns a sample with all data except rows, failures and the reward. The sample shares no
// memory with r, which can be nil.
func (a *attempt) facts(r *Reply) *tokenize.Sample {
	s := &tokenize.Sample{
		Key:       a.Key,
		TaskID:    a.Task.ID,
		GroupID:   a.cl.group,
		RolloutID: RolloutID(a.Key, a.N),
		Index:     int32(a.Index),
		GroupSize: int32(a.GroupSize),
		Attempt:   int32(a.N),
		Status:    StatusError,
		StartedAt: a.cl.retry.started,
	}
	if rec := a.Task.Recorded; rec != nil && rec.TaskID != "" {
		s.TaskID = rec.TaskID
	}
	if len(a.Task.Metadata) > 0 {
		s.Metadata = text(a.Task.Metadata)
	}
	if r == nil {
		return s
	}
	s.AgentID, s.Model, s.Unshown = strings.Clone(r.AgentID), strings.Clone(r.Model), r.Unshown
	if a.w.c.cfg.Messages && len(r.Messages) > 0 {
		s.Messages = new(r.redacted(r.Messages))
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

// samplingOf returns the sampling parameters that the engine received. A parameter is nil unless a
// tap recorded it for every call with the same value. The request that the server stores proves
// nothing, because a tap can change the request.
func samplingOf(calls []tokenize.Call) tokenize.Sampling {
	var all tokenize.Sampling
	for i := range calls {
		one := calls[i].Sampling
		if one == nil {
			return tokenize.Sampling{} // unknown for this call
		}
		if i == 0 {
			all = copiedSampling(one)
		}
		keepEqual(&all.Temperature, one.Temperature)
		keepEqual(&all.TopP, one.TopP)
		keepEqual(&all.TopK, one.TopK)
		keepEqual(&all.MaxNewTokens, one.MaxNewTokens)
	}
	return all
}

// keepEqual sets *p to nil if the values of *p and one differ, or if one is nil.
func keepEqual[T comparable](p **T, one *T) {
	if *p != nil && (one == nil || *one != **p) {
		*p = nil
	}
}

func copiedSampling(s *tokenize.Sampling) tokenize.Sampling {
	return tokenize.Sampling{Temperature: copied(s.Temperature), TopP: copied(s.TopP), TopK: copied(s.TopK), MaxNewTokens: copied(s.MaxNewTokens)}
}

func text(raw json.RawMessage) *string {
	return new(string(raw))
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// failure returns the sample for a failed attempt. The sample has no rows. Its one failure contains
// the tokens and text that the attempt sampled. The reply r can be nil.
func (a *attempt) failure(r *Reply, err error) *tokenize.Sample {
	s := a.facts(r)
	if s.Status != StatusCancelled {
		s.Status = StatusError
	}
	f := tokenize.Failure{Class: Classify(err).String(), Stage: a.stage.String(), Error: line(err), Call: -1}
	f.Reason = ReasonOf(err).String()
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
	a.setTimes(s, r)
	return s
}

// maxFailureText bounds the size of Failure.Text in bytes. The bound loses no tokens, because
// OutputIDs contains all sampled tokens.
const maxFailureText = 1 << 20

// cutText shortens text to the given number of bytes or slightly fewer, without splitting a
// character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func lostCall(k int32, call *tokenize.Call) tokenize.Failure {
	return tokenize.Failure{
		Class:     reasonClass(call.Reason).String(),
		Stage:     StagePrompt.String(),
		Reason:    call.Reason.String(),
		Error:     shortened(noteOf(call)),
		Call:      k,
		OutputIDs: append([]int32(nil), call.OutputIDs...),
		Logprobs:  appendLogprobs(nil, call.Logprobs, len(call.OutputIDs)),
	}
}

func missingCall(i int, m *MissingCall) tokenize.Failure {
	return tokenize.Failure{
		Class: reasonClass(m.Reason).String(), Stage: StageRun.String(), Reason: m.Reason.String(),
		Error: shortened(m.Note), Call: int32(m.Before + i),
	}
}

func noteOf(call *tokenize.Call) string {
	if call.Note != "" {
		return call.Note
	}
	return "the prompt of this call is not proven"
}

// appendLogprobs appends n log-probabilities to dst: the values of src, then NaN for the missing
// values.
func appendLogprobs(dst, src []float32, n int) []float32 {
	dst = append(dst, src[:min(n, len(src))]...)
	for range n - min(n, len(src)) {
		dst = append(dst, float32(math.NaN()))
	}
	return dst
}

// CheckReply checks whether a reply to the task would become data. It makes rows as an attempt
// does, with cfg.Align and cfg.Require, but does not score or store them. The prompts parameter is
// Agent.Prompts. CheckReply returns the error with which such an attempt would fail.
func CheckReply(ctx context.Context, cfg Config, task *Task, r *Reply, prompts func(context.Context, *Reply) ([]tokenize.Call, error)) error {
	cfg = cfg.withDefaults()
	cfg.Scorer = nil
	c := &Collector{cfg: cfg}
	c.counters.slots = make([]slot, 1)
	a := &attempt{
		Attempt: Attempt{Task: task, GroupSize: 1, N: 1},
		w:       &worker{c: c, aligner: tokenize.NewAligner(cfg.Align)},
		cl:      &claim{retry: retryState{started: time.Now()}},
	}
	_, err := a.sample(ctx, r, prompts)
	return err
}
