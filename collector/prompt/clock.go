package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// This file rebuilds prompts that contain the time. doc.go explains which times are possible. The
// code never uses the clock or the time zone of the local machine.

// A window is the closed time interval in which the server could have rendered a prompt. The zero
// window means that no bounds are known.
type window struct{ from, to time.Time }

// stampUnit is the largest error of a message timestamp, because the server drops fractions of a
// second.
const stampUnit = time.Second - 1

// maxWindow is longer than any call. If two timestamps are further apart, they are not used as the
// bounds of a call.
const maxWindow = 7 * 24 * time.Hour

// window returns bounds for the time at which the server rendered call k. The bounds follow from
// the timestamps of the server's messages. The server rendered call k after it stored the messages
// of the request and of earlier calls. It rendered call k before it stored the messages of call k
// and of later calls.
func (s *send) window(k int) window {
	var w window
	left := false // true once a message from any call has been seen
	for i := range s.stored {
		m := &s.stored[i]
		step := s.stepIndex(m.StepID)
		byCall := step >= 0 && leftByCall(m.Type)
		if left = left || byCall; left && !byCall {
			continue // a message that arrived during the calls but comes from none of the calls
		}
		at, err := m.Date.Time()
		switch end := at.Add(stampUnit); {
		case err != nil:
			return window{}
		case !byCall || step < k:
			if at.After(w.from) {
				w.from = at
			}
		case w.to.IsZero() || end.Before(w.to):
			w.to = end
		}
	}
	if w.from.IsZero() || w.to.IsZero() || w.from.After(w.to) || w.to.Sub(w.from) > maxWindow {
		return window{}
	}
	return w
}

// leftByCall reports whether the server stores a message of type t only after it has rendered the
// prompt of the message's step. Such messages come from the model or from a tool that the model
// called.
func leftByCall(t letta.MessageType) bool {
	switch t {
	case letta.TypeAssistant, letta.TypeReasoning, letta.TypeHiddenReasoning, letta.TypeToolCall, letta.TypeApprovalRequest, letta.TypeToolReturn:
		return true
	default:
		return false
	}
}

// leastOffset and mostOffset are the bounds of the UTC offsets in use worldwide. All offsets are
// multiples of quarterHour.
const (
	leastOffset = -12 * time.Hour
	mostOffset  = 14 * time.Hour
	quarterHour = 15 * time.Minute
)

// offsets returns the possible UTC offsets of the server's clock within the window, the most likely
// offset first.
func (m *Model) offsets(w window) []time.Duration {
	if m.Zone == nil {
		return everyOffset
	}
	var all []time.Duration
	for at := w.from; ; at = at.Truncate(quarterHour).Add(quarterHour) {
		if at.After(w.to) {
			at = w.to
		}
		_, seconds := at.In(m.Zone).Zone()
		if offset := time.Duration(seconds) * time.Second; !slices.Contains(all, offset) {
			all = append(all, offset)
		}
		if !at.Before(w.to) {
			return all
		}
	}
}

var everyOffset = func() []time.Duration {
	all := []time.Duration{0}
	for offset := leastOffset; offset <= mostOffset; offset += quarterHour {
		if offset != 0 {
			all = append(all, offset)
		}
	}
	return all
}()

// maxTimes limits the number of distinct times at which one prompt is rendered. Over all offsets, a
// window covers at most three local dates, unless a call takes days.
const maxTimes = 32

var (
	errUnbounded = errors.New("the server's timestamps do not bound the time of the call")
	errManyTimes = fmt.Errorf("the printed time is so precise that more than %d prompts are possible", maxTimes)
)

// A clockTime is a possible time on the server's clock, with the UTC offsets that give the same
// printed output.
type clockTime struct {
	at      time.Time // local time, stored as UTC
	printed []string  // the printed output of each format
	offsets []time.Duration
}

// times returns one time for each distinct output of the formats, over all offsets and the whole
// window.
func times(w window, offsets []time.Duration, formats []string) ([]clockTime, error) {
	unit := 24 * time.Hour
	for _, f := range formats {
		unit = min(unit, chat.ClockUnit(f))
	}
	if unit < time.Second {
		return nil, errManyTimes
	}
	var all []clockTime
	printed := make([]string, len(formats))
	for _, offset := range offsets {
		end := w.to.UTC().Add(offset)
		for at := w.from.UTC().Add(offset); !at.After(end); at = at.Truncate(unit).Add(unit) {
			for i, f := range formats {
				var err error
				if printed[i], err = chat.Strftime(at, f); err != nil {
					return nil, err
				}
			}
			i := slices.IndexFunc(all, func(t clockTime) bool { return slices.Equal(t.printed, printed) })
			if i < 0 {
				if len(all) == maxTimes {
					return nil, errManyTimes
				}
				i, all = len(all), append(all, clockTime{at: at, printed: slices.Clone(printed)})
			}
			if n := len(all[i].offsets); n == 0 || all[i].offsets[n-1] != offset {
				all[i].offsets = append(all[i].offsets, offset)
			}
		}
	}
	return all, nil
}

// A clockText is a possible rendering of a prompt, with one time that produces it.
type clockText struct {
	at      time.Time
	text    []byte
	offsets []time.Duration // all offsets that produce this text
}

// anyTime is a placeholder for the time of a call if no timestamps bound it.
var anyTime = time.Unix(0, 0).UTC()

// texts renders a prompt at every possible time in the window and returns the distinct renderings,
// the most likely rendering first. If the template does not print the time, there is only one
// rendering. If the error is errUnbounded or errManyTimes, texts also returns one of the possible
// renderings.
func (m *Model) texts(in input, w window, offsets []time.Duration) ([]clockText, error) {
	now := anyTime // the first rendering shows whether the template prints the time
	if w != (window{}) {
		now = w.from.UTC().Add(offsets[0])
	}
	var formats []string
	first, err := m.render(nil, in, now, &formats)
	if err != nil {
		return nil, err
	}
	switch {
	case len(formats) == 0:
		return []clockText{{at: now, text: first, offsets: offsets}}, nil
	case w == (window{}):
		return []clockText{{at: now, text: first}}, errUnbounded
	}
	for {
		all, err := times(w, offsets, formats)
		if err != nil {
			return []clockText{{at: now, text: first}}, err
		}
		known := len(formats)
		var out []clockText
		var failed error
		for _, t := range all {
			text := first
			if !t.at.Equal(now) {
				if text, err = m.render(nil, in, t.at, &formats); err != nil {
					failed = err // the server did render a prompt, so its clock did not show this time
					continue
				}
			}
			if i := slices.IndexFunc(out, func(o clockText) bool { return bytes.Equal(o.text, text) }); i >= 0 {
				out[i].offsets = append(out[i].offsets, t.offsets...)
				continue
			}
			out = append(out, clockText{t.at, text, t.offsets})
		}
		switch {
		case len(formats) > known: // the template used another format at another time, so repeat with all formats
		case len(out) == 0:
			return nil, failed
		default:
			return out, nil
		}
	}
}

// render renders a prompt as if the server's clock showed the given time. If formats is not nil,
// render appends to it the time formats that the template used.
func (m *Model) render(dst []byte, in input, now time.Time, formats *[]string) ([]byte, error) {
	out, err := m.Template.Render(dst, chat.Input{
		Messages: in.messages.view(in.scrub), Tools: in.tools, AddGenerationPrompt: true, Transformers: m.Transformers, Now: now, Formats: formats,
	})
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return out, nil
}

// try rebuilds the prompt of call k and accepts the prompt if it is proven. The first result
// reports whether the prompt was accepted. Afterwards, the renderer's previous text is one of the
// possible renderings of this prompt. If the call already has a prompt, try only renders the input.
func (b *rebuild) try(s *send, k int, in input, source tokenize.PromptSource) (accepted bool, err error) {
	c, wanted := &b.calls[s.first+k], s.steps[k].PromptTokens
	open := c.Grade == tokenize.Quarantined
	if !b.r.clock {
		ids, err := b.r.prompt(in)
		return open && b.accept(s, k, ids, err, source), err
	}
	w := s.window(k)
	texts, why := b.r.model.texts(in, w, b.r.model.offsets(w))
	if len(texts) == 0 {
		return open && b.accept(s, k, nil, why, source), why
	}
	fits := func(ids []int32) bool {
		return !open && slices.Equal(ids, c.PromptIDs) || open && wanted != nil && int64(len(ids)) == *wanted
	}
	var ids []int32 // ids of the most likely text that fits, or of the last text if none fits
	n, at := 0, 0
	for i := 0; i < len(texts) && n < 2; i++ {
		these, err := b.r.encode(texts[i])
		if err != nil {
			return open && b.accept(s, k, nil, err, source), err
		}
		if n == 0 {
			at, ids = i, these
		}
		if fits(these) {
			n++
		}
	}
	if n == 1 && at < len(texts)-1 { // the renderer continues from the accepted text
		if ids, err = b.r.encode(texts[at]); err != nil {
			return false, err
		}
	}
	switch {
	case !open:
		return false, nil
	case why == nil && n < 2:
		return b.accept(s, k, ids, nil, source), nil
	case why == nil:
		why = severalFit(len(texts))
	}
	c.Reason = tokenize.ReasonClock
	b.note(s.first+k, "%s: %s", source, clockGap(b.r.model, why))
	if n > 0 && !errors.Is(why, errUnbounded) { // with errUnbounded, the text shows an arbitrary time
		b.unverified[s.first+k] = unproven{ids, source}
	}
	return false, nil
}

func severalFit(of int) error {
	return fmt.Errorf("more than one of %d possible prompts has the server's token count", of)
}

func clockGap(m *Model, why error) string {
	if m.Zone == nil {
		return "the template prints the current time, server.timezone is not set, and " + why.Error()
	}
	return fmt.Sprintf("the template prints the current time, and with server.timezone %s, %v", m.Zone, why)
}

// ClockHint explains how to prove calls that have the reason tokenize.ReasonClock.
const ClockHint = "set server.timezone to the time zone of the server's process (UTC in most containers), run rollout tap in front of the engine, " +
	"or accept unverified rows with --require any"
