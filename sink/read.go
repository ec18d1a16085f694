package sink

import "iter"

// A Log is the commit log of a dataset as it was when it was read.
type Log struct {
	Dir     string
	Commits []Commit
}

// ReadLog reads the commit log of the run's folder dir.
func ReadLog(dir string) (*Log, error) { return nil, errStub }

// Rows returns the rows of a data shard.
func (l *Log) Rows(s Shard) iter.Seq2[*StoredRow, error] { return nil }

// Failures returns the rows of a shard of failures.
func (l *Log) Failures(s Shard) iter.Seq2[*StoredFailure, error] { return nil }
