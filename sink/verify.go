package sink

import "context"

// VerifyOptions says how Verify works.
type VerifyOptions struct {
	// VocabSize is the number of ids of the vocabulary, 0 if unknown.
	VocabSize int
	// MaxProblems bounds the list of problems. Default 100.
	MaxProblems int
	// FS is the file system. Default: the operating system's.
	FS FS
}

// A VerifyReport is what Verify found.
type VerifyReport struct {
	Commits, Shards, Samples, Failed, Rows, Failures int64
	Tokens                                           Tokens
	Bytes                                            int64
	// Problems are *CorruptError, at most MaxProblems; ProblemCount counts all.
	Problems     []error
	ProblemCount int64
	// Orphans are files that no commit names: not data, and no problem.
	Orphans []string
}

// Verify checks every promise that a dataset makes.
func Verify(ctx context.Context, dir string, opts VerifyOptions) (VerifyReport, error) {
	return VerifyReport{}, errStub
}
