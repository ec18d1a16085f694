package record

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Trace is the server's record of one model call. Its messages are parsed on first use.
type Trace struct {
	kept     *letta.ProviderTrace
	answer   Answer
	messages func() ([]letta.TraceMessage, error)
}

// An Answer is the engine's answer to one model call, as stored in a trace.
type Answer struct {
	letta.TraceResponse
	// MatchedID is the stop id that ended the output, as reported by the engine, or -1 if there is
	// none.
	MatchedID int32
	// PromptLength is the number of prompt ids that the engine reports, or -1.
	PromptLength int32
	// Continuity is true if the call passed through a tap with continuity. Spliced is the number of
	// prompt turns that the tap replaced. It is -1 if unknown, and 0 if the call passed through no
	// such tap.
	Continuity bool
	Spliced    int32

	ids func() ([]int32, error)
}

// NewTrace returns a Trace that parses the server's record of the call.
func NewTrace(kept *letta.ProviderTrace) *Trace {
	t := &Trace{kept: kept}
	if r, err := kept.Response.Parsed(); err == nil {
		t.answer = Answer{
			TraceResponse: *r, MatchedID: number(string(r.Matched)),
			PromptLength: number(string(r.PromptTokens)),
			ids:          sync.OnceValues(func() ([]int32, error) { return r.AppendIDs(nil) }),
		}
		t.answer.readMark(string(r.Mark))
	}
	t.messages = sync.OnceValues(func() ([]letta.TraceMessage, error) {
		r, err := kept.Request.Parsed()
		if err != nil {
			return nil, err
		}
		return r.ReadMessages()
	})
	return t
}

// readMark parses the mark of a tap with continuity. It ignores any other text, because an engine
// can use the same JSON member for other data.
func (a *Answer) readMark(text string) {
	if text == "" {
		return
	}
	var mark struct {
		Continuity json.RawMessage `json:"continuity"`
		Spliced    json.RawMessage `json:"spliced"`
	}
	if json.Unmarshal([]byte(text), &mark) == nil && string(mark.Continuity) == "true" {
		a.Continuity, a.Spliced = true, number(string(mark.Spliced))
	}
}

// Answer returns the engine's answer. The caller must not change it.
func (t *Trace) Answer() (*Answer, error) {
	_, err := t.kept.Response.Parsed()
	if err != nil {
		return nil, err
	}
	return &t.answer, nil
}

// Request returns the request in the form that the server would have sent to an OpenAI-style
// engine.
func (t *Trace) Request() (*letta.TraceRequest, error) { return t.kept.Request.Parsed() }

// Messages returns the messages of the request. The caller must not change them.
func (t *Trace) Messages() ([]letta.TraceMessage, error) { return t.messages() }

// IDs returns the sampled ids. The result is empty if the call did not use the server's native
// path. The caller must not change the slice.
func (a *Answer) IDs() ([]int32, error) { return a.ids() }

// Proves reports whether the trace belongs to the call that sampled ids.
func (a *Answer) Proves(ids []int32) bool {
	own, err := a.IDs()
	return err == nil && slices.Equal(own, ids)
}

// Describe sets the fields of the call that turns do not contain. These are the finish reason, the
// stop id and the policy versions. Call it only if Proves has returned true for the ids of the
// call.
func (a *Answer) Describe(c *tokenize.Call) {
	c.FinishReason, c.StopID = a.Finish, nil
	if a.Finish == tokenize.FinishStop && a.MatchedID >= 0 {
		c.StopID = new(a.MatchedID)
	}
	c.VersionFrom = tokenize.VersionTrace
	c.Version, c.Versions = tokenize.OutputVersions(a.Version, a.Spans(), len(c.OutputIDs))
}

// number parses text as a nonnegative int32. It returns -1 for any other text.
func number(text string) int32 {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return -1
}
