package sink

import (
	"time"
)

// CommitVersion is the version of the commit entries. A reader refuses newer ones.
const CommitVersion = 1

// A Commit is one entry of the commit log: it makes its files exist, all at once.
type Commit struct {
	Version       int       `json:"version"`
	Seq           int64     `json:"seq"`
	RunID         string    `json:"run_id"`
	Writer        int       `json:"writer"`
	SchemaVersion int       `json:"schema_version"`
	CreatedAt     time.Time `json:"created_at"`
	// Files holds at most one shard of each kind. It is empty when no sample of
	// the commit has a row or a failure.
	Files []Shard `json:"files"`
	// Samples holds every sample whose rows and failures are in Files, in order.
	Samples []CommittedSample `json:"samples"`
}

// A Shard is one committed file.
type Shard struct {
	Kind   Kind   `json:"kind"`
	Path   string `json:"path"` // relative to the run's folder, with slashes
	Format Format `json:"format"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // lower-case hex
	Rows   int64  `json:"rows"`
	Tokens Tokens `json:"tokens"`
}

// Tokens counts the tokens of a shard.
type Tokens struct {
	// Total is Σ len(input_ids), or Σ len(output_ids) of failures.
	Total int64 `json:"total"`
	// Trainable is Σ loss_mask; 0 in failures.
	Trainable int64 `json:"trainable"`
	// Prompt is Σ prompt_length; 0 in failures.
	Prompt int64 `json:"prompt"`
}

// A CommittedSample says what a commit holds of one sample. A sample with rows,
// or with neither rows nor failures, is done; one with failures only has failed,
// and a later commit may hold a success that supersedes it.
type CommittedSample struct {
	Key      string `json:"key"`
	Attempt  int32  `json:"attempt"`
	Rows     int32  `json:"rows"`
	Failures int32  `json:"failures"`
}

// Failed reports whether the sample failed as a whole.
func (s CommittedSample) Failed() bool { return s.Rows == 0 && s.Failures > 0 }
