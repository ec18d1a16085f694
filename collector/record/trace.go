package record

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Trace is what the server kept of one call of the model. Its messages are read when
// they are first asked for.
type Trace struct {
	kept     *letta.ProviderTrace
	answer   Answer
	messages func() ([]letta.TraceMessage, error)
}

// An Answer is what the engine answered.
type Answer struct {
	letta.TraceResponse
	// MatchedID is the id at which the engine says to have stopped, or -1.
	MatchedID int32
	// PromptLength is the number of ids that the engine counted in its prompt, or -1.
	PromptLength int32
	// Continuity reports that the call passed a tap with continuity. Spliced is the number of
	// turns of its prompt that the tap replaced, or -1 if it is unknown. Without such a tap
	// Spliced is 0.
	Continuity bool
	Spliced    int32

	ids func() ([]int32, error)
}

// NewTrace returns the trace that the server sent as kept.
func NewTrace(kept *letta.ProviderTrace) *Trace {
	t := &Trace{kept: kept}
	if r, err := kept.Response(); err == nil {
		t.answer = Answer{
			TraceResponse: *r, MatchedID: number(string(r.Matched)),
			PromptLength: number(string(r.PromptTokens)),
			ids:          sync.OnceValues(func() ([]int32, error) { return r.AppendIDs(nil) }),
		}
		t.answer.readMark(string(r.Mark))
	}
	t.messages = sync.OnceValues(func() ([]letta.TraceMessage, error) {
		r, err := kept.Request()
		if err != nil {
			return nil, err
		}
		return r.ReadMessages()
	})
	return t
}

// readMark reads the mark of a tap with continuity. An engine can have another member with
// this name.
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
	_, err := t.kept.Response()
	if err != nil {
		return nil, err
	}
	return &t.answer, nil
}

// Request returns the request that the server would have sent to an OpenAI-style engine.
func (t *Trace) Request() (*letta.TraceRequest, error) { return t.kept.Request() }

// Messages returns the messages of the request. The caller must not change them.
func (t *Trace) Messages() ([]letta.TraceMessage, error) { return t.messages() }

// IDs returns the sampled ids; none where the call was not made on the native path. The
// caller must not change them.
func (a *Answer) IDs() ([]int32, error) { return a.ids() }

// Proves reports whether the trace is that of the call which sampled ids.
func (a *Answer) Proves(ids []int32) bool {
	own, err := a.IDs()
	return err == nil && slices.Equal(own, ids)
}

// Describe adds to the call, which the trace proves, the members that turns lack: its finish
// reason, and the versions that sampled it.
func (a *Answer) Describe(c *tokenize.Call) {
	c.FinishReason, c.StopID = a.Finish, nil
	if a.Finish == tokenize.FinishStop && a.MatchedID >= 0 {
		c.StopID = new(a.MatchedID)
	}
	c.VersionFrom = tokenize.VersionTrace
	c.Version, c.Versions = tokenize.OutputVersions(a.Version, a.Spans(), len(c.OutputIDs))
}

// number is the number that text is, or -1 where it is none that counts.
func number(text string) int32 {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return -1
}
