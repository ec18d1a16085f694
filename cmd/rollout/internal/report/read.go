package report

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// DefaultPass is the reward that counts as a pass. Every built-in scorer returns 1 for a solved
// task and less for a partly solved task.
const DefaultPass = 1

// A Run has the content of run.json that a report needs, and settings of the caller.
type Run struct {
	ID        string
	CreatedAt time.Time
	Model     string
	Servers   []string
	// Tasks and Planned count tasks and samples.
	Tasks, Planned int
	// Running reports whether a process is collecting into the folder.
	Running bool
	// Program is the version of this program. Now is the current time.
	Program string
	Now     time.Time
	// Pass is the lowest reward of a pass.
	Pass float64
	// LastInvocation is copied unchanged.
	LastInvocation json.RawMessage
	// Last is the previous report, or nil. If its Basis still holds, its numbers about samples are
	// reused, and shards are only compared with their digests.
	Last *Report
}

// Read builds the report of the run in dir. It changes nothing. It returns an error if the commit
// log cannot be read; other unreadable files are listed in Problems.
//
// It uses about 20 bytes per sample, and 200 more if it reads the rows.
func Read(dir string, run Run) (*Report, error) {
	// Samples of the write-ahead log can be committed during the read, so that the read sees them
	// twice or not at all. In that case read again, up to maxTries times.
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

// maxTries bounds how often an active run is read again.
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
			r.Lag.CutShort = max(0, r.Lag.CutShort-1) // the running process has not ended yet
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
