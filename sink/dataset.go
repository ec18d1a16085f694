package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Dataset takes samples and makes them durable. Create opens it, Run works, and
// Close ends it:
//
//	d, err := sink.Create(dir, cfg)
//	…
//	g.Go(func() error { return d.Run(ctx) })
//	… d.Append(ctx, sample, done) from any number of goroutines …
//	err = d.Close(ctx)
//
// The Dataset starts no goroutine but in Run.
type Dataset struct {
	dir   string
	cfg   Config
	codec *zstd.Codec
	meta  [len(kindNames)]map[string]string

	budget *budget
	// A sample goes from Append through work to the relay, and through hand to a
	// writer. Both are unbuffered: it always belongs to exactly one of them.
	work, hand chan accepted
	alone      chan struct{} // closed when no writer is left

	draining chan struct{} // closed by stop
	ended    chan struct{} // closed when Run has returned, or will never run

	logMu   sync.Mutex // held while an entry is written; taken before mu
	nextSeq int64

	mu      sync.Mutex
	keys    map[string]struct{} // samples that are done, or on their way
	stats   Stats
	stopped bool
	cause   error // why it stopped; nil: Close
	running bool
	err     error // what Run returned
}

// accepted is a sample that Append took, and its part of the budget.
type accepted struct {
	sample *tokenize.Sample
	bytes  int64
	done   func(error)
}

// Stats is a snapshot of what a Dataset has done since Create.
type Stats struct {
	// Commits and Shards count what was committed; Bytes are the shards' sizes.
	Commits, Shards, Bytes int64
	// Samples, Rows, Failures and Tokens count what is in those commits. Failed
	// counts the samples that failed as a whole.
	Samples, Failed, Rows, Failures int64
	Tokens                          Tokens
	// Pending counts samples that were accepted and are not committed yet.
	Pending int64
	// BytesInFlight is the memory of accepted samples that were not yet encoded.
	BytesInFlight int64
}

// Create makes the folders of a dataset in the run's folder dir, which must
// exist, and reads its commit log where there is one: a dataset is continued by
// creating it again. It starts nothing; the caller must call Run.
//
// A Config that does not Validate is an error. So are a log that cannot be read, a
// *CorruptError or ErrNewer, and a folder in which no commit could be made, such
// as one without hard links: a *ShardError.
func Create(dir string, cfg Config) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if _, err := cfg.FS.ReadDir(dir); err != nil {
		return nil, &ShardError{Path: dir, Op: "open", Err: err}
	}
	for _, sub := range []string{dataDir, failuresDir, commitsDir} {
		if err := cfg.FS.MkdirAll(filepath.Join(dir, sub)); err != nil {
			return nil, &ShardError{Path: dir, Op: "create", Err: err}
		}
	}
	if err := cfg.FS.SyncDir(dir); err != nil {
		return nil, &ShardError{Path: dir, Op: "sync", Err: err}
	}
	if err := checkLinks(cfg.FS, filepath.Join(dir, commitsDir)); err != nil {
		return nil, err
	}
	log, err := readLog(cfg.FS, dir)
	if err != nil {
		return nil, err
	}
	d := &Dataset{
		dir:      dir,
		cfg:      cfg,
		codec:    newCodec(),
		budget:   newBudget(cfg.MaxBytesInFlight),
		work:     make(chan accepted),
		hand:     make(chan accepted),
		alone:    make(chan struct{}),
		draining: make(chan struct{}),
		ended:    make(chan struct{}),
		keys:     log.Done(),
		nextSeq:  int64(len(log.Commits)) + 1,
	}
	for kind := range d.meta {
		meta := map[string]string{
			metaSchemaVersion: strconv.Itoa(SchemaVersion),
			metaRunID:         cfg.RunID,
			metaKind:          Kind(kind).String(),
		}
		maps.Copy(meta, cfg.Meta)
		d.meta[kind] = meta
	}
	return d, nil
}

// Run writes until Close was called and everything accepted is committed, a write
// fails, or ctx is done. When it returns, every goroutine that it started has
// returned and every accepted sample's done has been called.
//
// When a write fails, the other writers still commit what they hold; Append and
// Close return the error as well. When ctx is done, open shards are abandoned:
// their samples' done gets the cause. To stop without losing them, call Close and
// only then end ctx. Run can be called once.
func (d *Dataset) Run(ctx context.Context) error {
	d.mu.Lock()
	again, stopped := d.running, d.stopped
	d.running = true
	d.mu.Unlock()
	if again {
		return errors.New("sink: Run was called twice")
	}
	if stopped { // Close came first and did not wait
		close(d.ended)
		return nil
	}
	var g errgroup.Group
	var left atomic.Int32
	left.Store(int32(d.cfg.Writers))
	for n := range d.cfg.Writers {
		g.Go(func() error {
			err := newWriter(d, n).run(ctx)
			if err != nil {
				d.stop(err)
			}
			if left.Add(-1) == 0 {
				close(d.alone)
			}
			return err
		})
	}
	d.relay(ctx)
	err := g.Wait()
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	close(d.ended)
	return err
}

// Append takes the sample as a whole: all of its rows and failures become part of
// the dataset in one commit, or none does. It blocks while too many bytes are in
// flight, and before Run.
//
// When it returns nil the sample's memory belongs to the Dataset, and done is
// called exactly once, from another goroutine: with nil when the sample is in a
// durable commit, else with the reason why it never will be. done must not block.
// When Append returns an error, done is not called and the sample is the caller's
// again: a *SampleError says that the sample breaks a rule, or is committed
// already (ErrCommitted), and others may follow; after any other error, none can.
func (d *Dataset) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	if err := checkSample(s, d.cfg.VocabSize); err != nil {
		return err
	}
	if err := d.claim(s); err != nil {
		return err
	}
	n := sampleBytes(s)
	err := d.budget.acquire(ctx, n, d.draining)
	if err == nil {
		select {
		case d.work <- accepted{s, n, done}:
			return nil
		case <-d.draining:
			err = errStopped
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		d.budget.release(n)
	}
	d.unclaim(s)
	if errors.Is(err, errStopped) {
		err = d.whyStopped()
	}
	return err
}

// claim makes sure that no sample is committed after it was done. A sample that
// failed claims nothing: a later attempt may succeed.
func (d *Dataset) claim(s *tokenize.Sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.keys[s.Key]; ok {
		return &SampleError{Key: s.Key, Row: -1, Err: ErrCommitted}
	}
	if !failed(s) {
		d.keys[s.Key] = struct{}{}
	}
	return nil
}

func (d *Dataset) unclaim(s *tokenize.Sample) {
	if !failed(s) {
		d.mu.Lock()
		delete(d.keys, s.Key)
		d.mu.Unlock()
	}
}

// failed is CommittedSample.Failed of a sample to come.
func failed(s *tokenize.Sample) bool { return len(s.Rows) == 0 && len(s.Failures) > 0 }

// Close ends the dataset: Append accepts nothing any more, open shards are sealed
// and committed, and Run returns. Close returns Run's error, or the cause of ctx
// when that is done first; then Run is still at work, and ending its context
// abandons what is left. Close may be called again.
func (d *Dataset) Close(ctx context.Context) error {
	d.stop(nil)
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-d.ended:
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errStopped says that draining was closed; whyStopped says what to return.
var errStopped = errors.New("sink: stopped")

// stop makes the writers commit what they hold and return. The first cause wins.
func (d *Dataset) stop(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.stopped = true
		d.cause = cause
		close(d.draining)
	}
}

func (d *Dataset) whyStopped() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, d.cause)
}

// Stats returns a snapshot.
func (d *Dataset) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.BytesInFlight = d.budget.inUse()
	return s
}

// commit makes c the next entry of the log, durably. Writers take turns, so that
// the log has no gap.
func (d *Dataset) commit(c *Commit) error {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	c.Seq = d.nextSeq
	if err := putCommit(d.cfg.FS, d.dir, c); err != nil {
		return err
	}
	d.nextSeq = c.Seq + 1

	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Commits++
	for _, s := range c.Shards {
		d.stats.Shards++
		d.stats.Bytes += s.Bytes
		if s.Kind == KindFailures {
			d.stats.Failures += s.Rows
			continue
		}
		d.stats.Rows += s.Rows
		d.stats.Tokens.add(s.Tokens)
	}
	d.stats.Samples += int64(len(c.Samples))
	d.stats.Pending -= int64(len(c.Samples))
	for _, s := range c.Samples {
		if s.Failed() {
			d.stats.Failed++
		}
	}
	return nil
}

// pending adds n to the samples that wait for their commit.
func (d *Dataset) pending(n int) {
	d.mu.Lock()
	d.stats.Pending += int64(n)
	d.mu.Unlock()
}
