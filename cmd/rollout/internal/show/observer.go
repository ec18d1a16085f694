package show

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// An Observer receives the events of a run and passes them on: to people, the log, metrics,
// spans, and the tally that the summary is made of.
type Observer struct {
	*Display
	Log     *Log
	Metrics *Metrics
	Tracing *Tracing // nil: no spans are wanted
	Tally   Tally

	agentLeft   atomic.Bool // the message that an agent could not be removed was shown
	scoreFailed atomic.Bool // the message that a sample could not be scored was shown

	mu           sync.Mutex
	versionNotes []string // why policy versions are unknown
}

// Events returns the events of the collector. They call ended first for every attempt that
// has ended, and for every attempt of an earlier process that could not be taken over.
func (o *Observer) Events(ended func(a collector.Attempt, err error)) collector.Events {
	return o.Tracing.Events(collector.Events{
		SampleFinished: func(s *tokenize.Sample) func() {
			s = outline(s)
			return func() {
				o.Tally.Add(s)
				o.Log.failed(s)
				o.Metrics.sampleFinished(s)
			}
		},
		AttemptStarted: o.Metrics.attemptStarted,
		AttemptFinished: func(r collector.Result) {
			ended(r.Attempt, r.Err)
			o.Metrics.attemptFinished(r)
		},
		Reattached: func(a collector.Attempt, endpoint string, err error) {
			if err != nil {
				ended(a, err)
			}
			o.Log.reattached(a, endpoint, err)
			o.Metrics.reattached(a, endpoint, err)
		},
		ScoreFailed: func(a collector.Attempt, err error) {
			o.Log.scoreFailed(a, err)
			if !o.scoreFailed.Swap(true) { // a scorer that is broken fails on every sample
				o.Say("%s #%d could not be scored and has no reward: %v; more like this are only logged, and counted in the summary", tame.Text(a.Task.ID, 40), a.Index, err)
			}
		},
		LimitChanged: func(endpoint string, from, to int, reason string) {
			o.Log.LimitChanged(endpoint, from, to, reason)
			o.Metrics.limitChanged(endpoint, from, to, reason)
		},
		RetryWaiting: func(a collector.Attempt, err error, delay time.Duration) {
			o.Log.retry(a, err, delay)
			o.Metrics.retryWaiting(a, collector.Classify(err), delay)
		},
		CloseFailed: func(a collector.Attempt, endpoint string, err error) {
			o.Log.agentLeft(a, endpoint, err)
			if !o.agentLeft.Swap(true) { // a server that dies may leave hundreds
				o.Say("agent of %s #%d not removed: %v; more like this are only logged, and counted in the summary", tame.Text(a.Task.ID, 40), a.Index, err)
			}
		},
		EndpointDown: func(endpoint string, err error) {
			o.Log.endpointDown(endpoint, err)
			if err != nil {
				o.Say("%s does not answer: %v", endpoint, err)
			} else {
				o.Say("%s answers again", endpoint)
			}
		},
		EndpointLost: func(endpoint string, err error) {
			o.Log.endpointLost(endpoint, err)
			o.Say("gave up on %s: %v", endpoint, err)
		},
	})
}

// outline returns a copy of the sample that may be read once the sink has the sample:
// everything but the elements of the slices of its rows and failures, whose lengths stay.
func outline(s *tokenize.Sample) *tokenize.Sample {
	one := *s
	one.Rows, one.Failures = slices.Clone(s.Rows), slices.Clone(s.Failures)
	return &one
}

// SinkEvents returns the events of the sink.
func (o *Observer) SinkEvents() sink.Events {
	return sink.Events{Committed: o.committed, Sealed: o.Metrics.sealed, Synced: o.Metrics.synced}
}

// committed shows a commit and each of its shards.
func (o *Observer) committed(commit sink.Commit) {
	o.Metrics.committed(commit)
	o.Log.committed(commit)
	for _, s := range commit.Shards {
		o.Event("commit", map[string]any{
			"seq": commit.Seq, "kind": s.Kind.String(), "path": s.Path, "rows": s.Rows, "bytes": s.Bytes, "samples": len(commit.Samples),
		})
	}
}

// Recovered shows what an earlier process left in the folder. open is how many of its
// attempts may be taken over.
func (o *Observer) Recovered(r sink.Recovery, found journal.Found, open int) Recovery {
	if r.Segments == 0 && r.Temporaries == 0 && len(r.Orphans) == 0 && found.Open == 0 && len(found.Torn) == 0 {
		return Recovery{}
	}
	o.Log.Info("recovered", "samples", r.Replayed, "waiting", r.Waiting, "commits", r.Commits, "segments", r.Segments, "torn_bytes", r.TornBytes,
		"temporaries", r.Temporaries, "orphans", len(r.Orphans), "open_attempts", open)
	var parts []string
	if r.Replayed > 0 {
		parts = append(parts, human.Plural(r.Replayed, "finished sample")+" from the write-ahead log")
	}
	if r.Waiting > 0 {
		parts = append(parts, human.Plural(r.Waiting, "finished sample")+" that the write-ahead log keeps for the rest of their groups")
	}
	if open > 0 {
		parts = append(parts, human.Plural(int64(open), "attempt")+" that an earlier process had in flight, looked for on the servers now")
	}
	if n := len(r.Orphans); n > 0 {
		parts = append(parts, human.Plural(int64(n), "file")+" that no commit names, now in orphans/")
	}
	if parts != nil {
		o.Note("recovered: %s", strings.Join(parts, "; "))
	}
	return Recovery{Samples: r.Replayed + r.Waiting, Open: open}
}

// Cleared shows how many agents of earlier processes were removed from a server. err is why
// others were not.
func (o *Observer) Cleared(endpoint string, n int, err error) {
	o.Log.Info("leftover agents removed", "endpoint", endpoint, "agents", n)
	if n > 0 {
		o.Note("removed %d agents that an earlier process left on %s", n, endpoint)
	}
	if err != nil {
		o.Log.Warn("leftover agents not removed", append([]any{"endpoint", endpoint}, errorAttrs(err)...)...)
		o.Say("agents of an earlier process may be left on %s: %v", endpoint, err)
	}
}

// Silent logs a send whose answer has not begun, and the steps that the server shows of it.
func (o *Observer) Silent(p agent.Progress) {
	o.Log.Info("silent send", "sample_key", p.Key, "attempt", p.Attempt, "agent_id", p.AgentID, "server_run_id", p.RunID,
		"steps", p.Steps, "silent_s", p.Silent.Seconds())
}

// Damaged logs a damaged file of the run at once. If first is true it also shows it. The run
// continues, because what it collects is right, and its end reports all damage.
func (o *Observer) Damaged(err error, first bool) {
	o.Log.Error("damage", "error", err)
	if first {
		o.Say("damaged: %v; the run continues, and will end with exit status %d; more like this are only logged", err, exit.Verify)
	}
}

// Engine returns two functions: read takes metrics of the inference engine that were read, and
// failed the error if they could not be. One goroutine calls both. read passes the metrics on
// to seen.
func (o *Observer) Engine(endpoints []string, seen func(endpoint string, e limit.Engine)) (read func(limit.Engine), failed func(error)) {
	failing, ever := false, false
	read = func(e limit.Engine) {
		ever = true
		if failing {
			failing = false
			o.Log.Info("engine metrics back")
			o.Say("the engine's metrics can be read again")
		}
		for _, endpoint := range endpoints {
			seen(endpoint, e)
			o.Metrics.engine(endpoint, e)
		}
	}
	failed = func(err error) {
		if failing {
			return
		}
		failing = true
		o.Log.Warn("engine metrics", "error", err)
		if ever {
			o.Say("the engine's metrics can no longer be read; no limit grows for the next 5 minutes: %v", err)
		} else {
			o.Say("the engine's metrics cannot be read, and limit nothing until they can: %v", err)
		}
	}
	return read, failed
}

// VersionUnknown tells why policy versions are unknown, once for each reason.
func (o *Observer) VersionUnknown(text string) {
	o.mu.Lock()
	o.versionNotes = append(o.versionNotes, text)
	o.mu.Unlock()
	o.Log.Warn("policy version", "reason", text)
	o.Say("%s", text)
}

// VersionNotes returns what VersionUnknown was told.
func (o *Observer) VersionNotes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.versionNotes)
}
