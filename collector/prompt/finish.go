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
	// finishTries bounds the traces per sample that are fetched for a finish reason.
	finishTries = 2
	// finishMisses is the number of missing traces in a row after which no more are requested.
	finishMisses = 8
)

// finishes finds out how calls ended. Answers do not show it: the server hides the token limit if
// it parsed a tool call. It also reports an output that the engine aborted as the end of a turn
// (sglang_native_adapter.py:350).
//
// It remembers the ids at which the engine was seen to stop. So only a call that ends in another id
// needs a trace. It is safe for concurrent use.
type finishes struct {
	tapped bool // a tap is in front of the engine

	mu     sync.RWMutex
	stops  []int32 // stop ids seen in traces; a handful
	misses atomic.Int32
	traced atomic.Bool // the server was seen to keep traces

	untraced atomic.Int32 // proofs in a row without the trace that they requested
}

// keepsTraces reports whether a proof that needs traces is worth trying.
func (f *finishes) keepsTraces() bool { return f.untraced.Load() < finishMisses }

// learn records the id at which the engine stopped, if a trace shows it.
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

// fill sets the finish reasons of the calls, as far as they are proven:
//
//	known    from the call's own trace, if it was fetched
//	stop     the last id is one at which the engine stops
//	other    from the call's trace, the last calls first
//	length   without a trace: the output has the token limit of release 0.16
//
// If the answer proves that a call ended by length, the collector sets the reason.
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

// stopReasons returns, per call, the stop reason of the send that ended with it. It is empty if
// another turn of the send follows.
func stopReasons(r *collector.Reply, calls int) []string {
	said := make([]string, calls)
	k := 0
	for i := range r.Sends {
		turns := r.Sends[i].Turns
		k += tokenize.AssistantTurns(turns)
		if n := len(turns); n > 0 && turns[n-1].Role == tokenize.RoleAssistant && k <= calls {
			said[k-1] = r.Sends[i].StopReason
		}
	}
	return said
}

// look reads the finish reason from the trace of a call. If the server was seen to keep traces,
// look requests a missing trace again: it can be late. A missing or unreadable trace is not a
// failure of the sample. The finish reason is then unknown.
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
