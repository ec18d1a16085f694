package report

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// DefaultPass is the lowest reward that counts as a pass by default. Every built-in scorer returns
// 1 for a solved task, and less for a partly solved task.
const DefaultPass = 1

// A Run contains the fields of run.json that a report needs, and settings from the caller.
type Run struct {
	ID        string
	CreatedAt time.Time
	Model     string
	Servers   []string
	// Tasks is the number of tasks, and Planned is the number of planned samples.
	Tasks, Planned int
	// Running is true if a process is collecting into the folder.
	Running bool
	// Program is the version of this program. Now is the current time.
	Program string
	Now     time.Time
	// Pass is the lowest reward that counts as a pass.
	Pass float64
	// LastInvocation is copied to the report unchanged.
	LastInvocation json.RawMessage
	// Last is the previous report, or nil. If its Basis is still valid, Read reuses its numbers
	// about samples and only checks that every shard still has its recorded digest.
	Last *Report
	// Copied is true if the run has the rows of another run, so that it cannot be continued.
	Copied bool
	// Scores are the scores that replace those in the rows, or nil.
	Scores *sink.Scores
	// Partitions is the number of partitions of a fleet, and otherwise 0.
	Partitions int
	// Logs reads the commit logs. The default is the log in the folder of the run.
	Logs Source
	// Wrap adds the name of the partition to an error from reading a shard. It can be nil.
	Wrap func(log *sink.Log, err error) error
}

// A Source reads the commit logs of a run: one, or one per partition. It passes every commit to each, one at
// a time.
type Source func(each func(*sink.Commit)) ([]*sink.Log, error)

// Read builds the report of the run in dir, or of run.Logs. It does not change any file. It returns an error if a
// commit log cannot be read. It lists other unreadable files in Problems. If dir is empty, the report has only the
// numbers that come from the dataset.
//
// Read needs about 20 bytes of memory per sample, and 200 more if it reads the rows.
func Read(dir string, run Run) (*Report, error) {
	// While Read is working, samples in the write-ahead log can be committed. Read can then see
	// such samples twice or not at all. In this case, Read starts over, up to maxTries times.
	for try := 0; ; try++ {
		r, logs, err := read(dir, run)
		if err != nil || dir == "" {
			return r, err
		}
		log := logs[0]
		had := log.Last()
		if err := log.Follow(); err != nil {
			return nil, err
		}
		if log.Last() == had || try == maxTries {
			return r, nil
		}
	}
}

// maxTries is the maximum number of times that a run in progress is reread.
const maxTries = 3

func read(dir string, run Run) (*Report, []*sink.Log, error) {
	logs, done, filtered, entries, err := readLogs(dir, run.Logs, run.Scores)
	if err != nil {
		return nil, nil, err
	}
	r := &Report{
		Version: Version, RunID: run.ID, CreatedAt: run.CreatedAt.UTC(), WrittenAt: run.Now.UTC(), Program: run.Program,
		Model: run.Model, Servers: run.Servers, Tasks: run.Tasks, Copied: run.Copied, Partitions: run.Partitions, LastInvocation: run.LastInvocation,
	}
	if run.Scores != nil {
		r.Scores = run.Scores.Name
	}
	r.Coverage.Planned, r.Filtered = run.Planned, filtered
	r.Storage, r.Balance = storageOf(logs), balanceOf(logs)
	if dir != "" {
		readWAL(dir, r)
		readInvocations(dir, r)
	}
	r.Basis = basisOf(r, &run, entries)
	if !r.takeOver(run.Last, logs) {
		had := len(r.Problems)
		newSurvey(r, logs, dir != "", done, &run).run()
		if len(r.Problems) > had {
			r.Basis = ""
		}
	}
	r.rate()
	if dir != "" {
		readJournal(dir, r, done)
	}
	switch {
	case run.Running:
		r.State = "running"
		if n := len(r.Invocations); r.Lag != nil && n > 0 && r.Invocations[n-1].Outcome == "" {
			r.Lag.CutShort = max(0, r.Lag.CutShort-1) // the running process has not yet ended
		}
	case r.Coverage.Remaining == 0:
		r.State = "complete"
	default:
		r.State = "incomplete"
	}
	return r, logs, nil
}

// shardsIn yields the shards of one kind in all logs.
func shardsIn(logs []*sink.Log, kind sink.Kind) iter.Seq2[*sink.Log, sink.Shard] {
	return func(yield func(*sink.Log, sink.Shard) bool) {
		for _, log := range logs {
			for s := range log.Shards(kind) {
				if !yield(log, s) {
					return
				}
			}
		}
	}
}

func balanceOf(logs []*sink.Log) *tokenize.Balance {
	var sum sink.Tokens
	for _, kind := range []sink.Kind{sink.KindData, sink.KindFailures} {
		for _, shard := range shardsIn(logs, kind) {
			sum.Add(shard.Tokens)
		}
	}
	if b := sum.Balance(); b.Sampled != b.Trained {
		return &b
	}
	return nil
}

func storageOf(logs []*sink.Log) (s Storage) {
	for _, log := range logs {
		s.Commits += len(log.Commits)
	}
	for _, shard := range shardsIn(logs, sink.KindData) {
		s.DataShards++
		s.DataBytes += shard.Bytes
		s.Tokens += shard.Tokens.Total
		s.Trainable += shard.Tokens.Trainable
	}
	for _, shard := range shardsIn(logs, sink.KindFailures) {
		s.FailureShards++
		s.FailureBytes += shard.Bytes
	}
	return s
}
