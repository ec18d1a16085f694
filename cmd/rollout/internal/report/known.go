package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"github.com/rollout-rl/rollout/sink"
)

// This file reads the commit log for a report, and reuses numbers from the last report.

// keys contains the keys of the samples that are done, in 20 bytes each.
type keys []sink.KeyID

func (k keys) has(key string) bool {
	_, ok := slices.BinarySearchFunc(k, sink.IDOf(key), sink.KeyID.Compare)
	return ok
}

// readLogs reads the commit logs, or the log of the run in dir. The result done contains the keys of the samples
// that are done. The result filtered counts the samples with keep=false by reason. The result
// entries is a digest of everything that the log records about samples and shards.
func readLogs(dir string, source Source, scores *sink.Scores) (_ []*sink.Log, done keys, filtered map[string]int, entries string, err error) {
	sum := sha256.New()
	if source == nil {
		source = func(each func(*sink.Commit)) ([]*sink.Log, error) {
			log, err := sink.ReadLogIn(nil, dir, each)
			return []*sink.Log{log}, err
		}
	}
	logs, err := source(func(c *sink.Commit) {
		done = slices.Grow(done, len(c.Samples))
		for i := range c.Samples {
			s := &c.Samples[i]
			if !s.Failed() {
				done = append(done, sink.IDOf(s.Key))
				reason := s.Filtered
				if scores != nil {
					if now, ok := scores.Filtered(s.Key); ok {
						reason = now
					}
				}
				if reason != "" {
					if filtered == nil {
						filtered = map[string]int{}
					}
					filtered[reason]++
				}
			}
		}
		addEntry(sum, c)
	})
	if err != nil {
		return nil, nil, nil, "", err
	}
	for _, log := range logs {
		log.UseScores(scores)
	}
	slices.SortFunc(done, sink.KeyID.Compare)
	return logs, slices.Compact(done), filtered, hex.EncodeToString(sum.Sum(nil)), nil
}

func addEntry(sum hash.Hash, c *sink.Commit) {
	var line []byte
	for _, s := range c.Shards {
		line = fmt.Appendf(line[:0], "%s %s\n", s.Path, s.SHA256)
		sum.Write(line)
	}
	for i := range c.Samples {
		s := &c.Samples[i]
		line = append(append(line[:0], s.Key...), ' ')
		line = fmt.Append(line, s.Attempt)
		line = append(append(append(line, ' '), s.Class...), '\n')
		sum.Write(line)
	}
}

// basisOf identifies the sources of r's numbers about samples. It returns "" if samples are still
// in the write-ahead log or if the clock jumped, because the numbers then also depend on other
// files.
func basisOf(r *Report, run *Run, entries string) string {
	wal := r.Storage.WALBytes
	if local := run.Logs == nil; local && (wal == nil || *wal > 0) || len(r.ClockJumps) > 0 {
		return ""
	}
	unstarted := -1
	if n := r.Coverage.Unstarted; n != nil {
		unstarted = *n
	}
	return fmt.Sprintf("%s/%d/%d/%d/%v/%s/%s", run.Program, r.Version, run.Planned, unstarted, run.Pass, entries, r.Scores)
}

// takeOver copies the numbers about samples from the last report. It does so only if both reports
// have the same basis and every file still matches its digest.
func (r *Report) takeOver(last *Report, logs []*sink.Log) bool {
	if last == nil || r.Basis == "" || last.Basis != r.Basis || len(last.ClockJumps) > 0 {
		return false
	}
	damaged := false
	for _, log := range logs {
		if err := log.CheckDigests(context.Background(), nil, func(error) { damaged = true }); err != nil || damaged {
			return false
		}
	}
	r.Coverage, r.Failures, r.Rewards, r.Groups, r.Lengths = last.Coverage, last.Failures, last.Rewards, last.Groups, last.Lengths
	r.Truncation, r.Proof, r.Time, r.Throughput = last.Truncation, last.Proof, last.Time, last.Throughput
	r.Retries.Attempts, r.Slowest, r.Tail = last.Retries.Attempts, last.Slowest, last.Tail
	return true
}
