package prompt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// An Examined contains everything that is known about the prompt of one call. It is used to explain
// why a count is wrong.
type Examined struct {
	tokenize.Call       // PromptIDs are the ids in the turn, if any
	Counted       int64 // the step's prompt_tokens, or -1 if it has none
	// Gap explains why Stored is not proven, even if its length matches the count. If Gap is set,
	// Reason is the quarantine reason of the call. Otherwise, a matching length proves Stored.
	Gap string
	// Unlike explains how a tool in the trace differs from the agent's tools. If Unlike is not
	// empty, Trace is not proven either.
	Unlike string
	// Stored and Trace are the prompts rebuilt from the sources stored and trace, even if their
	// lengths do not match the count.
	Stored, Trace Rebuilt
	// Spliced is the number of prompt turns that a tap with continuity replaced, or -1 if unknown.
	// If Spliced is positive, the engine received a prompt that is neither Stored nor Trace.
	Spliced int32
	// Response is the engine's output text in the trace, without a final stop token. It is empty if
	// unknown.
	Response string
}

// A Rebuilt is a rebuilt prompt: the text that the template printed and the text's ids, or an
// error.
type Rebuilt struct {
	Text string
	IDs  []int32
	Err  error // ErrNotRebuilt if the server kept no records to rebuild the prompt from
	// Clock explains why the time in the text makes the text uncertain. It is empty if the text is
	// certain.
	Clock string

	in       input
	window   window
	readings []reading // the renderings at all possible times
	doubt    error     // the reason why the field readings is incomplete
}

// A reading is the prompt as rendered for one possible time.
type reading struct {
	text string
	ids  []int32
}

// rebuilt returns the prompts that could be rebuilt.
func (x *Examined) rebuilt() []*Rebuilt {
	return slices.DeleteFunc([]*Rebuilt{&x.Stored, &x.Trace}, func(r *Rebuilt) bool { return r.Err != nil })
}

// fits reports whether ids equal the prompt in the turn. If the turn has no prompt, fits compares
// the number of ids with the server's count.
func (x *Examined) fits(ids []int32) bool {
	if len(x.PromptIDs) > 0 {
		return slices.Equal(ids, x.PromptIDs)
	}
	return int64(len(ids)) == x.Counted
}

// Fits reports whether a rebuilt prompt equals the prompt in the turn. If the turn has no prompt,
// Fits compares the length with the server's count.
func (x *Examined) Fits() bool {
	return slices.ContainsFunc(x.rebuilt(), func(r *Rebuilt) bool { return x.fits(r.IDs) })
}

// Settle chooses, for each rebuilt prompt, the reading that fits the known prompt or the server's
// count.
func (x *Examined) Settle(m *Model) {
	for _, r := range x.rebuilt() {
		r.Clock = ""
		fit := 0
		for _, t := range slices.Backward(r.readings) {
			if x.fits(t.ids) {
				r.Text, r.IDs = t.text, t.ids
				fit++
			}
		}
		switch {
		case fit == 0, len(x.PromptIDs) > 0:
		case r.doubt != nil:
			r.Clock = clockGap(m, r.doubt)
		case fit > 1:
			r.Clock = clockGap(m, severalFit(len(r.readings)))
		}
	}
}

// Offsets returns, in order, the UTC offsets with which the server's clock could have shown the
// time in the known prompt. The result is empty if the prompt is unknown or does not contain the
// time.
func (x *Examined) Offsets(m *Model) []time.Duration {
	if len(x.PromptIDs) == 0 || !m.Template.ReadsClock() {
		return nil
	}
	for _, r := range x.rebuilt() {
		texts, err := m.texts(r.in, r.window, everyOffset)
		if err != nil || len(texts) < 2 {
			continue
		}
		for _, t := range texts {
			ids, err := m.Tokenizer.AppendTokens(nil, string(t.text))
			if err == nil && x.fits(ids) {
				slices.Sort(t.offsets)
				return slices.Compact(t.offsets)
			}
		}
	}
	return nil
}

// PrintsTime reports whether a rebuilt prompt of the call depends on the time.
func (x *Examined) PrintsTime(m *Model) bool {
	all := x.rebuilt()
	if len(all) == 0 || !m.Template.ReadsClock() {
		return false
	}
	texts, err := m.texts(all[0].in, all[0].window, everyOffset)
	return err != nil || len(texts) > 1
}

func (r *Rebuilt) same(other *Rebuilt) bool {
	return (r.Err == nil) == (other.Err == nil) && r.Text == other.Text
}

// ErrNotRebuilt means that the server kept no records to rebuild a prompt from.
var ErrNotRebuilt = errors.New("prompt: no records to rebuild the prompt from")

// Examine rebuilds the prompt of every call twice: from the stored messages and from the call's own
// trace. It fetches more records than a Prompter does. It returns an error if steps and turns do
// not match.
func Examine(ctx context.Context, m *Model, reply *collector.Reply, rollout *record.Rollout) ([]Examined, error) {
	if rollout == nil || len(rollout.Sends) != len(reply.Sends) {
		return nil, ErrNotRebuilt
	}
	calls, err := fromTurns(reply)
	if err != nil {
		return nil, err
	}
	b := newRebuild(rollout, calls, new(finishes), nil)
	nameSteps(reply, rollout, calls)
	if err := b.join(ctx, reply); err != nil {
		return nil, err
	}
	out := make([]Examined, len(calls))
	for i := range out {
		out[i] = Examined{Call: calls[i], Counted: -1, Stored: Rebuilt{Err: ErrNotRebuilt}, Trace: Rebuilt{Err: ErrNotRebuilt}}
	}
	if b.transcript.system != "" {
		if err := b.findWitnesses(ctx); err != nil {
			return nil, err
		}
		err := b.transcript.replay(func(s *send, k int, in input) bool {
			x := &out[s.first+k]
			if x.Stored = m.rebuild(in, s.window(k)); s.gap != nil {
				x.Gap, x.Reason = s.gap.note, s.gap.reason
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		for k := range s.steps {
			x := &out[s.first+k]
			x.StepID = s.steps[k].ID
			if n := s.steps[k].PromptTokens; n != nil {
				x.Counted = *n
			}
			if err := b.examineTrace(ctx, m, s, k, x); err != nil {
				return nil, err
			}
			x.Settle(m)
		}
	}
	return out, nil
}

func (b *rebuild) examineTrace(ctx context.Context, m *Model, s *send, k int, x *Examined) error {
	t, err := b.rollout.Trace(ctx, s.steps[k].ID)
	if err != nil || t == nil {
		return err
	}
	if answer, err := t.Answer(); err == nil {
		x.Response = answer.Text
	}
	read, err := readTrace(t, b.transcript.decisions, b.systemOver(s))
	if err == nil {
		tools, changed := shownTools(read.tools, b.transcript.agent(), s.request)
		if changed != nil {
			x.Unlike = changed.Error() // the text can still show the cause
		} else {
			read.tools = tools
		}
	}
	switch {
	case err != nil:
		x.Trace.Err = err
	case !read.answer.Proves(x.OutputIDs):
		x.Trace.Err = fmt.Errorf("trace of step %s has different output tokens than the turn", s.steps[k].ID)
		x.Response = ""
	default:
		x.Trace, x.Spliced = m.rebuild(read.input(), s.window(k)), read.answer.Spliced
	}
	return nil
}

// rebuild renders and encodes the input at every possible time in the window.
func (m *Model) rebuild(in input, w window) Rebuilt {
	texts, err := m.texts(in, w, m.offsets(w))
	if len(texts) == 0 {
		return Rebuilt{Err: err}
	}
	out := Rebuilt{in: in, window: w, doubt: err}
	for _, t := range texts {
		ids, err := m.Tokenizer.AppendTokens(nil, string(t.text))
		if err != nil {
			return Rebuilt{Text: string(t.text), Err: fmt.Errorf("encode: %w", err)}
		}
		out.readings = append(out.readings, reading{string(t.text), ids})
	}
	out.Text, out.IDs = out.readings[0].text, out.readings[0].ids
	return out
}

// Releases lists the releases of the transformers library whose rules reproduce the server's
// prompts for a reply.
type Releases struct {
	// Fit contains the releases for which Examined.Fits is true for every call. It is nil if any
	// call has neither a known prompt nor a count.
	Fit []chat.Transformers
	// Apart is true if the releases produce different text for any prompt.
	Apart bool
}

// ExamineReleases calls Examine with the rules of each release of the transformers library.
func ExamineReleases(ctx context.Context, m *Model, reply *collector.Reply, rollout *record.Rollout) (Releases, error) {
	var out Releases
	var first []Examined
	for _, release := range chat.AllTransformers() {
		by := *m
		by.Transformers = release
		calls, err := Examine(ctx, &by, reply, rollout)
		if err != nil {
			return Releases{}, err
		}
		if first == nil {
			first = calls
		}
		fit := len(calls) > 0
		for i := range calls {
			fit = fit && calls[i].Fits()
			out.Apart = out.Apart || !calls[i].Stored.same(&first[i].Stored) || !calls[i].Trace.same(&first[i].Trace)
		}
		if fit {
			out.Fit = append(out.Fit, release)
		}
	}
	return out, nil
}

// Other returns the first release that fits, and true, if the given release does not fit. If the
// given release fits or no release fits, Other returns the given release and false.
func (r *Releases) Other(now chat.Transformers) (release chat.Transformers, ok bool) {
	if len(r.Fit) == 0 || slices.Contains(r.Fit, now) {
		return now, false
	}
	return r.Fit[0], true
}
