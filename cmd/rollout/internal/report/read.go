package report

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// DefaultPass is the reward that counts as a pass: 1, which is what a task that is
// solved gets from every scorer of ours. A sample that was solved in part has less.
const DefaultPass = 1

// A Run is what run.json says, and what the caller knows of the folder.
type Run struct {
	ID        string
	CreatedAt time.Time
	Model     string
	Servers   []string
	// Tasks and Planned count tasks and samples.
	Tasks, Planned int
	// Running says that a process is collecting into the folder.
	Running bool
	// Program is the version of the program that makes the report, Now its clock.
	Program string
	Now     time.Time
	// Pass is the least reward of a pass.
	Pass float64
	// LastInvocation is taken over as it is.
	LastInvocation json.RawMessage
	// Last is the report before; nil: there is none. Where its Basis is that of now, its
	// numbers about samples are taken over, and of the shards only the digests are compared.
	Last *Report
}

// Read makes the report of the run in dir. It changes nothing. An error is one of
// the commit log; whatever else cannot be read is listed in Problems.
//
// It keeps some 20 bytes per sample, and some 200 more where the rows are read.
func Read(dir string, run Run) (*Report, error) {
	// What is in the write-ahead log may be committed while it is read, and be seen twice
	// or not at all: then again, but not for ever.
	for try := 0; ; try++ {
		r, log, err := read(dir, run)
		if err != nil {
			return nil, err
		}
		had := log.Last()
		if err := log.Follow(); err != nil {
			return nil, err
		}
		if log.Last() == had || try == maxTries {
			return r, nil
		}
	}
}

// maxTries bounds how often a run that is at work is read again.
const maxTries = 3

func read(dir string, run Run) (*Report, *sink.Log, error) {
	log, done, filtered, entries, err := readLog(dir)
	if err != nil {
		return nil, nil, err
	}
	r := &Report{
		Version: Version, RunID: run.ID, CreatedAt: run.CreatedAt.UTC(), WrittenAt: run.Now.UTC(), Program: run.Program,
		Model: run.Model, Servers: run.Servers, Tasks: run.Tasks, LastInvocation: run.LastInvocation,
	}
	r.Coverage.Planned, r.Filtered = run.Planned, filtered
	r.Storage = storageOf(log)
	r.Storage.WALBytes = walBytes(dir)
	readLogs(dir, r)
	r.Basis = basisOf(r, &run, entries)
	if !r.takeOver(run.Last, log) {
		had := len(r.Problems)
		newSurvey(r, log, done, run.Pass).run()
		if len(r.Problems) > had {
			r.Basis = ""
		}
	}
	r.rate()
	readJournal(dir, r, done)
	switch {
	case run.Running:
		r.State = "running"
		if n := len(r.Invocations); r.Lag != nil && n > 0 && r.Invocations[n-1].Outcome == "" {
			r.Lag.CutShort = max(0, r.Lag.CutShort-1) // it is at work
		}
	case r.Coverage.Remaining == 0:
		r.State = "complete"
	default:
		r.State = "incomplete"
	}
	return r, log, nil
}

func storageOf(log *sink.Log) Storage {
	s := Storage{Commits: len(log.Commits)}
	for shard := range log.Shards(sink.KindData) {
		s.DataShards++
		s.DataBytes += shard.Bytes
		s.Tokens += shard.Tokens.Total
		s.Trainable += shard.Tokens.Trainable
	}
	for shard := range log.Shards(sink.KindFailures) {
		s.FailureShards++
		s.FailureBytes += shard.Bytes
	}
	return s
}
