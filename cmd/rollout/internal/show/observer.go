package show

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// An Observer passes a run's events to the display, log, metrics, spans and the summary's tally.
type Observer struct {
	*Display
	Log     *Log
	Metrics *Metrics
	Tracing *Tracing // nil if tracing is off
	Tally   Tally

	agentLeft   atomic.Bool // the message about an agent that was not removed has been shown
	scoreFailed atomic.Bool // the message about a sample that was not scored has been shown

	mu           sync.Mutex
	versionNotes []string // reasons why policy versions are unknown
}

// Events returns the collector's event functions. If an attempt ends, or an earlier attempt cannot
// be reattached, the event function first calls the function ended.
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
			if attrs := []any{"sample_key", a.Key, "attempt", a.N, "endpoint", endpoint}; err == nil {
				o.Log.Info("reattached", attrs...)
			} else {
				o.Log.Warn("not reattached", withError(err, attrs...)...)
			}
			o.Metrics.reattached(a, endpoint, err)
		},
		ScoreFailed: func(a collector.Attempt, err error) {
			o.Log.Warn("not scored", "sample_key", a.Key, "attempt", a.N, "error", err.Error())
			if !o.scoreFailed.Swap(true) { // show the message only once, because a broken scorer fails on every sample
				o.Say("%s #%d could not be scored: %v; further cases are only logged and counted in the summary", termsafe.Text(a.Task.ID, 40), a.Index, err)
			}
		},
		LimitChanged: func(endpoint string, from, to int, reason string) {
			o.Log.LimitChanged(endpoint, from, to, reason)
			o.Metrics.limitChanged(endpoint, from, to, reason)
		},
		RetryWaiting: func(a collector.Attempt, err error, delay time.Duration) {
			o.Log.Warn("retry", withError(err, "sample_key", a.Key, "attempt", a.N, "delay_s", delay.Seconds())...)
			o.Metrics.retryWaiting(a, collector.Classify(err), delay)
		},
		CloseFailed: func(a collector.Attempt, endpoint string, err error) {
			o.Log.Warn("agent not removed", withError(err, "sample_key", a.Key, "attempt", a.N, "endpoint", endpoint)...)
			if !o.agentLeft.Swap(true) { // show the message only once, because a crashing server can leave hundreds of agents
				o.Say("the agent of %s #%d could not be removed: %v; further cases are only logged and counted in the summary", termsafe.Text(a.Task.ID, 40), a.Index, err)
			}
		},
		EndpointDown: func(endpoint string, err error) {
			if err != nil {
				o.Log.Warn("endpoint down", withError(err, "endpoint", endpoint)...)
				o.Say("%s is down: %v", endpoint, err)
			} else {
				o.Log.Info("endpoint up", "endpoint", endpoint)
				o.Say("%s is up again", endpoint)
			}
		},
		EndpointLost: func(endpoint string, err error) {
			o.Log.Error("endpoint lost", withError(err, "endpoint", endpoint)...)
			o.Say("gave up on %s: %v", endpoint, err)
		},
	})
}

// outline returns a copy of the sample that can be read after the sink has taken ownership of the
// sample. The slices inside the rows and failures keep their lengths, but the sink owns their
// elements.
func outline(s *tokenize.Sample) *tokenize.Sample {
	one := *s
	one.Rows, one.Failures = slices.Clone(s.Rows), slices.Clone(s.Failures)
	return &one
}

// SinkEvents returns the event functions for the sink.
func (o *Observer) SinkEvents() sink.Events {
	return sink.Events{Committed: o.committed, Sealed: o.Metrics.sealed, Synced: o.Metrics.synced}
}

// committed reports a commit and each of its shards.
func (o *Observer) committed(commit sink.Commit) {
	o.Metrics.committed(commit)
	var rows, tokens int64
	for _, s := range commit.Shards {
		if s.Kind == sink.KindData {
			rows += s.Rows
			tokens += s.Tokens.Total
		}
		o.Event("commit", map[string]any{
			"seq": commit.Seq, "kind": s.Kind.String(), "path": s.Path, "rows": s.Rows, "bytes": s.Bytes, "samples": len(commit.Samples),
		})
	}
	o.Log.Info("commit", "seq", commit.Seq, "samples", len(commit.Samples), "rows", rows, "tokens", tokens)
}

// Recovered reports the data and the attempts that an earlier process left in the folder. open is
// the number of attempts that can be reattached.
func (o *Observer) Recovered(r sink.Recovery, found journal.Found, open int) Recovery {
	if r.Segments == 0 && r.Temporaries == 0 && len(r.Orphans) == 0 && found.Open == 0 && len(found.Torn) == 0 {
		return Recovery{}
	}
	o.Log.Info("recovered", "samples", r.Replayed, "waiting", r.Waiting, "commits", r.Commits, "segments", r.Segments, "torn_bytes", r.TornBytes,
		"temporaries", r.Temporaries, "orphans", len(r.Orphans), "open_attempts", open)
	var parts []string
	part := func(n int64, noun, rest string) {
		if n > 0 {
			parts = append(parts, format.Plural(n, noun)+rest)
		}
	}
	part(r.Replayed, "finished sample", " from the write-ahead log")
	part(r.Waiting, "finished sample", " kept in the write-ahead log until the whole group has ended")
	part(int64(open), "attempt", " that an earlier process left in flight, to be reattached if possible")
	part(int64(len(r.Orphans)), "file", " without a commit, moved to orphans/")
	if parts != nil {
		o.Note("recovered: %s", strings.Join(parts, "; "))
	}
	return Recovery{Samples: r.Replayed + r.Waiting, Open: open}
}

// Cleared reports how many agents from earlier processes were removed from a server. If some agents
// could not be removed, err is the reason.
func (o *Observer) Cleared(endpoint string, n int, err error) {
	o.Log.Info("leftover agents removed", "endpoint", endpoint, "agents", n)
	if n > 0 {
		o.Note("removed %s of an earlier process from %s", format.Plural(int64(n), "leftover agent"), endpoint)
	}
	if err != nil {
		o.Log.Warn("leftover agents not removed", withError(err, "endpoint", endpoint)...)
		o.Say("agents of an earlier process might remain on %s: %v", endpoint, err)
	}
}

// Silent logs a send that has not yet been answered, with the number of steps that the server run
// has completed.
func (o *Observer) Silent(p agent.Progress) {
	o.Log.Info("silent send", "sample_key", p.Key, "attempt", p.Attempt, "agent_id", p.AgentID, "server_run_id", p.RunID,
		"steps", p.Steps, "silent_s", p.Silent.Seconds())
}

// Damaged logs a damaged file of the run. If the parameter first is true, it also shows a message.
// The run continues, because new data is unaffected, and reports all damage at its end.
func (o *Observer) Damaged(err error, first bool) {
	o.Log.Error("damage", "error", err)
	if first {
		o.Say("damage found: %v; the run continues, logs any further damage, and will end with exit status %d", err, exit.Verify)
	}
}

// StoreBehind reports that the store takes the samples of a worker too slowly, or that this has ended.
func (o *Observer) StoreBehind(behind bool) {
	if behind {
		o.Log.Warn("store behind")
		o.Say("the store has not taken finished samples for 30 s: no samples start until it has")
	} else {
		o.Log.Info("store keeps up")
		o.Say("the store has taken them: samples start again")
	}
}

// Engine returns two callbacks for the poller of an inference engine's metrics. The first callback
// takes new metrics and calls seen for each endpoint. The second callback takes the error if the
// metrics cannot be fetched. Both callbacks must be called from the same goroutine.
func (o *Observer) Engine(endpoints []string, seen func(endpoint string, e limit.Engine)) (read func(limit.Engine), failed func(error)) {
	failing, ever := false, false
	read = func(e limit.Engine) {
		ever = true
		if failing {
			failing = false
			o.Log.Info("engine metrics back")
			o.Say("the engine's metrics are available again")
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
			o.Say("the engine's metrics are unavailable, so limits do not grow for 5 minutes: %v", err)
		} else {
			o.Say("the engine's metrics are unavailable, so they do not limit the number of samples in flight: %v", err)
		}
	}
	return read, failed
}

// VersionUnknown reports why policy versions are unknown. It is called once per reason.
func (o *Observer) VersionUnknown(text string) {
	o.mu.Lock()
	o.versionNotes = append(o.versionNotes, text)
	o.mu.Unlock()
	o.Log.Warn("policy version", "reason", text)
	o.Say("%s", text)
}

// VersionNotes returns the reasons passed to VersionUnknown.
func (o *Observer) VersionNotes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.versionNotes)
}
