package sink

import (
	"context"
	"errors"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Dataset takes samples and makes them durable. Create opens it, Run works,
// Close ends it.
type Dataset struct {
	dir string
	cfg Config
}

// Stats is a snapshot of what a Dataset has done since Create.
type Stats struct {
	// Commits and Shards count what was committed; Bytes are the shards' sizes.
	Commits, Shards, Bytes int64
	// Samples, Rows, Failures and Tokens count what is in those commits.
	Samples, Rows, Failures int64
	Tokens                  Tokens
	// Pending counts samples that were accepted and are not committed yet.
	Pending int64
	// BytesInFlight is the memory of accepted samples that were not yet encoded.
	BytesInFlight int64
}

// Create makes the folders of a dataset in the run's folder dir, which must
// exist, and reads its commit log where there is one: a dataset is continued by
// creating it again. It starts nothing; the caller must call Run.
func Create(dir string, cfg Config) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Dataset{dir: dir, cfg: cfg.withDefaults()}, nil
}

var errStub = errors.New("sink: not written yet")

// Run owns the goroutines that write.
func (d *Dataset) Run(ctx context.Context) error { return errStub }

// Append hands a sample to a writer.
func (d *Dataset) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	return errStub
}

// Close seals and commits the open shards.
func (d *Dataset) Close(ctx context.Context) error { return errStub }

// Stats returns a snapshot.
func (d *Dataset) Stats() Stats { return Stats{} }
