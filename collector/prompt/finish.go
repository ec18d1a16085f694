package prompt

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

const (
	// finishTries bounds the traces of a sample that are asked for how a call ended.
	finishTries = 2
	// finishMisses in a row, and no trace is asked for that any more: the server keeps none.
	finishMisses = 8
)

// finishes finds out how calls ended. Answers do not say it: the server hides that the
// engine's limit ended an output where a tool call was parsed, and calls an output that
// the engine gave up in the middle the end of a turn (sglang_native_adapter.py:350).
//
// It remembers the ids at which the engine was seen to stop, so that a trace is needed
// only for a call that ends in no such id. It is safe for concurrent use.
type finishes struct {
	tapped bool // a tap is in front of the engine

	mu     sync.RWMutex
	stops  []int32 // ids at which traces say that the model stopped; a handful
	misses atomic.Int32
	traced atomic.Bool // the server was seen to keep traces

	untraced atomic.Int32 // proofs in a row that asked for a trace which was not there
}

// keepsTraces reports whether a proof that needs a trace is worth a try.
func (f *finishes) keepsTraces() bool { return f.untraced.Load() < finishMisses }

// learn notes the id at which the engine stopped, where a trace shows it.
func (f *finishes) learn(a *record.Answer) {
	f.traced.Store(true)
	f.untraced.Store(0)
	ids, _ := a.IDs()
	n := len(ids)
	if a.Finish != tokenize.FinishStop || n == 0 || a.MatchedID != ids[n-1] || f.stopsAt(a.MatchedID) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops = append(f.stops, a.MatchedID)
}

func (f *finishes) stopsAt(id int32) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Contains(f.stops, id)
}

// fill gives the calls their finish reasons, as far as they are proven:
//
//	said by the call's own trace, where one was fetched
//	stop     the last id is one at which the engine stops
//	else     what the call's trace says, of the last calls first
//	length   without a trace: as many tokens as release 0.16 asks for at most
//
// A call that an answer proves to be ended by length is left to the collector.
func (f *finishes) fill(ctx context.Context, r *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) {
	said, tries := stopReasons(r, len(calls)), 0
	for k := len(calls) - 1; k >= 0; k-- {
		c := &calls[k]
		if c.FinishReason != "" || len(c.OutputIDs) == 0 {
			continue
		}
		switch {
		case collector.StatusOf(said[k]) == collector.StatusTruncated:
			continue
		case f.stopsAt(c.OutputIDs[len(c.OutputIDs)-1]):
			c.FinishReason, c.StopID = tokenize.FinishStop, new(c.OutputIDs[len(c.OutputIDs)-1])
			continue
		}
		if c.StepID != "" && rollout != nil && tries < finishTries && f.misses.Load() < finishMisses {
			tries++
			f.look(ctx, rollout, c)
		}
		if c.FinishReason == "" && said[k] == "" && len(c.OutputIDs) == nativeLimit && !f.tapped && strings.HasPrefix(r.ServerVersion, "0.16.") {
			c.FinishReason = tokenize.FinishLength
		}
	}
}

// nativeLimit is the token limit of release 0.16 on the native path, whatever its settings
// (sglang_native_adapter.py:303). A tap can change this limit.
const nativeLimit = 4096

// stopReasons returns, per call, the stop reason of the send that ended with it, empty
// where another turn follows in its send.
func stopReasons(r *collector.Reply, calls int) []string {
	said := make([]string, calls)
	k := 0
	for i := range r.Sends {
		turns := r.Sends[i].Turns
		k += assistantTurns(turns)
		if n := len(turns); n > 0 && turns[n-1].Role == tokenize.RoleAssistant && k <= calls {
			said[k-1] = r.Sends[i].StopReason
		}
	}
	return said
}

// look reads the trace of a call for how it ended. A server that was seen to keep traces is
// asked again for one that was not there for the proof of a prompt: it may have been late.
// That there is none, or that it cannot be read, is not a failure of the sample: the end is
// not known then.
func (f *finishes) look(ctx context.Context, rollout *record.Rollout, c *tokenize.Call) {
	trace := rollout.Trace
	if f.traced.Load() {
		trace = rollout.TraceSoon
	}
	t, err := trace(ctx, c.StepID)
	if err != nil || t == nil {
		f.misses.Add(1)
		return
	}
	answer, err := t.Answer()
	if err != nil || !answer.Proves(c.OutputIDs) {
		f.misses.Add(1)
		return
	}
	f.misses.Store(0)
	said := *c
	answer.Describe(&said)
	c.FinishReason, c.StopID = said.FinishReason, said.StopID // but not the version: a row has the versions of all its calls, or none
	f.learn(answer)
}
