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
	// finishTries limits the number of traces that are fetched per sample to find finish reasons.
	finishTries = 2
	// finishMisses is the number of consecutive missing traces after which no more traces are
	// requested.
	finishMisses = 8
)

// finishes finds the finish reasons of calls, because an answer does not contain them. If the
// server parsed a tool call, it does not report that the output reached the token limit. If the
// engine aborted an output, the server reports that the turn ended normally
// (sglang_native_adapter.py:350).
//
// finishes remembers the ids at which the engine was seen to stop. So a call needs a trace only if
// its output ends with a different id. All methods are safe for concurrent use.
type finishes struct {
	tapped bool // a tap is in front of the engine

	mu     sync.RWMutex
	stops  []int32 // stop ids seen in traces; only a few
	misses atomic.Int32
	traced atomic.Bool // the server was seen to keep traces

	untraced atomic.Int32 // number of consecutive proofs whose trace was missing
}

// keepsTraces reports whether a proof that needs traces is worth trying.
func (f *finishes) keepsTraces() bool { return f.untraced.Load() < finishMisses }

// learn stores the id at which the engine stopped, if the answer shows this id.
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

// fill sets the finish reasons that are proven. For each call, it uses the first proof that
// applies:
//
//	known    the call's own trace, if it was already fetched
//	stop     the last id, if it is an id at which the engine stops
//	other    the call's trace, requested for the last calls first
//	length   without a trace, an output as long as the token limit of release 0.16
//
// If the answer proves that a call reached the token limit, the collector sets the finish reason
// instead.
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

// nativeLimit is the token limit of Letta 0.16 on the native path, regardless of the agent's
// settings (sglang_native_adapter.py:303). A tap can change this limit.
const nativeLimit = 4096

// stopReasons returns a stop reason for each call. The result is the stop reason of the send if the
// call is the send's last turn. Otherwise the result is empty.
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
// look retries the request for a missing trace, because a trace can be late. If the trace is
// missing or unreadable, the finish reason stays unknown and the sample does not fail.
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
	c.FinishReason, c.StopID = said.FinishReason, said.StopID // the version is not copied, because a row has versions for all of its calls or for none
	f.learn(answer)
}
