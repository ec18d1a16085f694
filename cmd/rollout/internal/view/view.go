package view

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A View is a run that is shown. Its methods can be called concurrently.
type View struct {
	run    *runs.Run
	tokens *decoder

	refresh sync.Mutex  // one Refresh at a time
	logs    []*runs.Log // of the last Refresh

	mu       sync.RWMutex
	revision int64 // grows when the samples change; 0 before the first Refresh
	state    snapshot
	broken   bool // true if state is incomplete because a shard could not be read

	reports sync.Mutex // one report at a time
	report  *report.Overview
	of      int64         // the revision that report belongs to
	at      time.Time     // when report was built
	took    time.Duration // how long that took
}

// A snapshot is what was read of a run at one time.
type snapshot struct {
	logs    []*runs.Log
	shards  []sink.Shard
	seen    map[string]int32 // numbers in shards, by dataset and path
	index   index
	unshown map[string]tokenize.Unshown
	last    int64 // sum of the numbers of the last entries
	damaged bool  // true if a shard could not be read completely
}

// Open returns a View of a run. The tokenizer is nil if tokens are shown as ids. Refresh reads the
// run.
func Open(run *runs.Run, tokenizer *bpe.Tokenizer) *View {
	return &View{run: run, tokens: newDecoder(tokenizer)}
}

// Name returns the name of the run's folder or bucket.
func (v *View) Name() string { return v.run.Name() }

// Refresh reads what was committed since the last call. The number of a sample never changes. Refresh
// skips damaged shards and partitions. The report lists them.
func (v *View) Refresh(ctx context.Context) error {
	v.refresh.Lock()
	defer v.refresh.Unlock()
	logs, last, err := v.follow(ctx) // without v.mu: a bucket can be slow
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.revision > 0 && !v.broken && last == v.state.last {
		return nil
	}
	next := snapshot{logs: logs, last: last, unshown: runs.Unshown(logs)}
	if !v.broken && v.state.allIn(logs) {
		next.shards, next.seen, next.index, next.damaged = v.state.shards, v.state.seen, v.state.index, v.state.damaged
	} else { // a merge has replaced shards
		for _, key := range v.state.index.order {
			next.index.at(key)
		}
	}
	err = next.read(ctx)
	v.state, v.broken = next, err != nil
	if err != nil {
		return v.run.Error(err)
	}
	v.revision++
	return nil
}

// follow reads the new entries of the logs. It returns logs that do not change later, and the sum of
// the numbers of their last entries. The caller must hold v.refresh.
func (v *View) follow(ctx context.Context) (logs []*runs.Log, last int64, err error) {
	if v.logs == nil {
		v.logs, _, err = v.run.Logs(ctx)
	} else {
		_, err = v.run.Follow(ctx, v.logs)
	}
	if err != nil {
		return nil, 0, err
	}
	for _, log := range v.logs {
		logs = append(logs, log.With(slices.Clone(log.Commits)))
		last += log.Last()
	}
	return logs, last, nil
}

// read reads the run if it has not been read. If again is true, it also reads what was committed since.
func (v *View) read(ctx context.Context, again bool) error {
	v.mu.RLock()
	done := v.revision > 0
	v.mu.RUnlock()
	if done && !again {
		return nil
	}
	return v.Refresh(ctx)
}

// allIn reports whether the logs still name all shards of the snapshot.
func (s *snapshot) allIn(logs []*runs.Log) bool {
	n := 0
	for i, log := range logs {
		for _, kind := range kinds {
			for shard := range log.Shards(kind) {
				if _, ok := s.seen[shardName(i, shard)]; ok {
					n++
				}
			}
		}
	}
	return n == len(s.seen)
}

// kinds is the order in which shards are read: a sample with rows has not failed.
var kinds = [...]sink.Kind{sink.KindData, sink.KindFailures}

func shardName(log int, s sink.Shard) string { return string(rune(log)) + s.Path }

// read adds the shards that are not in the snapshot.
func (s *snapshot) read(ctx context.Context) error {
	if s.seen == nil {
		s.seen = map[string]int32{}
	}
	for _, log := range s.logs { // number the samples in the order of the log
		for i := range log.Commits {
			for k := range log.Commits[i].Samples {
				s.index.at(log.Commits[i].Samples[k].Key)
			}
		}
	}
	for _, kind := range kinds {
		for i, log := range s.logs {
			for shard := range log.Shards(kind) {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if _, ok := s.seen[shardName(i, shard)]; ok {
					continue
				}
				err := s.add(int32(i), log, shard) //nolint:gosec // a run has far fewer datasets
				damaged := errors.Is(err, sink.ErrCorrupt)
				if err != nil && !damaged {
					return err
				}
				s.damaged = s.damaged || damaged
			}
		}
	}
	for _, log := range s.logs {
		for i := range log.Commits {
			c := &log.Commits[i]
			for k := range c.Samples {
				of := &c.Samples[k]
				switch {
				case of.Rows+of.Failures == 0:
					s.index.addEmpty(of, c.Groups[of.Group], "no rows")
				case s.damaged:
					s.index.addEmpty(of, c.Groups[of.Group], lost)
				}
			}
		}
	}
	return nil
}

// add adds the rows of a shard. It returns a *sink.CorruptError if the shard is damaged.
func (s *snapshot) add(log int32, from *runs.Log, shard sink.Shard) error {
	number := int32(len(s.shards)) //nolint:gosec // far fewer shards than 2³¹ fit into memory
	s.shards = append(s.shards, shard)
	s.seen[shardName(int(log), shard)] = number
	at := place{log: log, shard: number}
	if shard.Kind == sink.KindData {
		for row, err := range from.Facts(shard) {
			if err != nil {
				return err
			}
			s.index.addRow(row, at)
			at.first++
		}
	} else {
		for f, err := range from.FailureFacts(shard) {
			if err != nil {
				return err
			}
			s.index.addFailure(f, at)
			at.first++
		}
	}
	return nil
}

// patience limits the time that is spent on reports during a run: a report is shown for at least
// patience times the time that it took to build.
const patience = 10

// overview returns the report of the current samples. If live is true, the report of a running
// process is also built again when no sample was committed, because the process can end.
func (v *View) overview(ctx context.Context, live bool) (*report.Overview, error) {
	v.reports.Lock()
	defer v.reports.Unlock()
	v.mu.RLock()
	revision := v.revision
	v.mu.RUnlock()
	if v.report != nil {
		current := v.of == revision && (!live || v.report.Report.State != "running")
		if current || time.Since(v.at) < patience*v.took {
			return v.report, nil
		}
	}
	began := time.Now()
	r, err := v.run.Report(ctx, report.DefaultPass)
	if err != nil {
		return nil, err
	}
	v.report, v.of = report.OverviewOf(v.Name(), r), revision
	v.at, v.took = time.Now(), time.Since(began)
	return v.report, nil
}
