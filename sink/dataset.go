package sink

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Dataset takes samples, makes them durable, and commits them. Create opens it, Run works, and
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
	dir string
	cfg Config

	budget *budget
	// A sample goes from Append to the write-ahead log, and through a queue to the
	// writer that its key belongs to.
	wal       *wal
	seed      maphash.Seed
	recovered Recovery
	card      *card
	merger    merger
	waiting   hold // what recovery left in the write-ahead log, until Run gives it to the writers

	parts    atomic.Bool   // Close commits groups that are not whole
	draining chan struct{} // closed by stop
	ended    chan struct{} // closed when Run has returned, or will never run

	logMu   sync.Mutex // held while an entry is written; taken before mu
	nextSeq int64

	known *knownGroups // nil without Config.CommitGroups

	ackMu sync.Mutex // held while the acknowledgement is written
	ack   Cursor

	mu      sync.Mutex
	keys    keySet // samples that are done, or on their way
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
	// durable gets the outcome of the write-ahead log, which never waits for it.
	durable  chan error
	segment  *segment // that holds the sample
	at, size int64    // its frame there
	index    int32    // of the sample, once it is held
}

// Create makes the folders of a dataset in the run's folder dir, which must
// exist, and reads its commit log where there is one: a dataset is continued by
// creating it again. What an earlier process left is brought to its end first, as
// the package documentation says; that takes as long as writing the samples of its
// open shards. No other process may have the dataset open. Create starts no goroutine;
// the caller must call Run.
//
// A Config that does not Validate is an error. So are a log or a write-ahead log
// that cannot be read, or is of another run, and a committed file that is missing or has
// another size, a *CorruptError or ErrNewer, and a folder in which no commit
// could be made, such as one without hard links: a *ShardError.
func Create(dir string, cfg Config) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	names, err := cfg.FS.ReadDir(dir)
	if err != nil {
		return nil, &ShardError{Path: dir, Op: "open", Err: err}
	}
	for _, sub := range []string{dataDir, failuresDir, commitsDir, walDir} {
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
	var keys keySet
	var known *knownGroups
	if cfg.CommitGroups {
		known = &knownGroups{}
	}
	card := &card{fs: cfg.FS, dir: dir, logger: cfg.Logger, slow: cfg.CommitGroups, facts: cardFacts{runID: cfg.RunID}}
	log, err := readLog(cfg.FS, dir, cfg.RunID, func(c *Commit) {
		card.facts.addSamples(c)
		keys.take(c)
		known.add(c)
	})
	if err != nil {
		return nil, err
	}
	for i := range log.Commits {
		card.facts.add(&log.Commits[i])
	}
	if err := log.CheckSizes(); err != nil {
		return nil, err
	}
	if lost, err := log.lostShards(); err != nil {
		return nil, err
	} else if len(lost) > 0 {
		return nil, lostCommit(lost[0])
	}
	keys.sorted(dir)
	d := &Dataset{
		dir:      dir,
		cfg:      cfg,
		budget:   newBudget(cfg.MaxBytesInFlight),
		seed:     maphash.MakeSeed(),
		draining: make(chan struct{}),
		ended:    make(chan struct{}),
		card:     card,
		keys:     keys,
		known:    known,
		nextSeq:  log.Last() + 1,
	}
	d.wal = newWAL(d, cfg.Writers)
	d.budget.press = d.wal.wakeWriters
	if err := d.readAck(names, d.nextSeq-1); err != nil {
		return nil, err
	}
	d.merger.d = d
	d.merger.begin(log)
	if err := d.recover(log); err != nil {
		return nil, err
	}
	card.begin(names)
	return d, nil
}

// Run writes until Close was called and everything accepted is committed, a write
// fails, or ctx is done. When it returns, every goroutine that it started has
// returned and every accepted sample's done has been called.
//
// When a write fails, the other writers still commit what they hold; Append and
// Close return the error as well. When ctx is done, open shards are abandoned:
// their samples' done gets the cause, and the write-ahead log keeps them for the
// next Create. To commit them now, call Close and only then end ctx. Run can be
// called once.
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
	for _, w := range d.newWriters() {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return d.wal.run(ctx) })
	if d.cfg.CommitGroups || len(d.merger.gone) > 0 {
		g.Go(func() error { return d.merger.run(ctx) })
	}
	err := g.Wait()
	d.card.end()
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	close(d.ended)
	return err
}

// Append takes the sample as a whole: all of its rows and failures become part of
// the dataset in one commit, or none does. It returns nil when the sample is
// durable: it will be in the dataset, whatever happens to the process. That takes a
// sync, which it shares with others, and up to 20 ms. It blocks longer while too many
// bytes are in flight, and before Run; ctx ends that, but not the wait for a sync.
//
// When it returns nil the sample's memory belongs to the Dataset, and done is
// called exactly once, from another goroutine, maybe before Append returns: with nil
// when the sample is in a durable commit, else with the reason why it is not now;
// then the next Create commits it. done must not block. When Append returns an
// error, done is not called and the sample is the caller's again: a *SampleError
// says that the sample breaks a rule, or is committed already (ErrCommitted), and
// others may follow; after any other error, none can, and the sample may be durable
// or not.
func (d *Dataset) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	if err := checkSample(s, d.cfg.VocabSize); err != nil {
		return err
	}
	if err := d.claim(s); err != nil {
		return err
	}
	n := sampleBytes(s)
	err := d.budget.acquire(ctx, n)
	if err == nil {
		durable := make(chan error, 1)
		select {
		case d.wal.in <- accepted{sample: s, bytes: n, done: done, durable: durable}:
			if err = <-durable; err == nil {
				return nil
			}
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

// deliver hands durable samples to their writers, all of one writer at once: always the same
// for one group, and so for one key, so that a failure is never committed after the success
// that follows it.
func (d *Dataset) deliver(batch []accepted) {
	d.pending(len(batch))
	lists := make([][]accepted, len(d.wal.queues))
	if len(lists) == 1 {
		lists[0], batch = batch, nil
	}
	for _, a := range batch {
		name := a.sample.GroupID
		if name == "" {
			name = a.sample.Key
		}
		at := d.writerOf(name)
		lists[at] = append(lists[at], a)
	}
	for at, list := range lists {
		if err := d.wal.queues[at].push(list...); err != nil {
			d.drop(list, err)
		}
	}
}

// writerOf returns the number of the writer of a group, or of a key.
func (d *Dataset) writerOf(name string) uint64 {
	return maphash.String(d.seed, name) % uint64(d.cfg.Writers)
}

// newWriters makes the writers of Run. Each holds its part of what waits in the write-ahead log.
func (d *Dataset) newWriters() (list []*writer) {
	for n := range d.cfg.Writers {
		list = append(list, newWriter(d, n))
	}
	for g := d.waiting.first; g != nil; {
		next := g.next
		list[d.writerOf(g.id.ID)].held.adopt(g)
		g = next
	}
	d.waiting = hold{}
	return list
}

// drop ends samples that are durable and that no writer took: the next Create commits them.
func (d *Dataset) drop(list []accepted, err error) {
	d.pending(-len(list))
	for _, a := range list {
		d.budget.release(a.bytes)
		a.done(err)
	}
}

// claim makes sure that no sample is committed after it was done. A sample that
// failed claims nothing: a later attempt may succeed.
func (d *Dataset) claim(s *tokenize.Sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys.has(s.Key) {
		return &SampleError{Key: s.Key, Row: -1, Err: ErrCommitted}
	}
	if !failed(s) {
		d.keys.add(s.Key)
	}
	return nil
}

func (d *Dataset) unclaim(s *tokenize.Sample) {
	if !failed(s) {
		d.mu.Lock()
		d.keys.remove(s.Key)
		d.mu.Unlock()
	}
}

// Close ends the dataset: Append accepts nothing any more, open shards are sealed
// and committed, and Run returns. With Config.CommitGroups the samples of groups that are not
// whole stay in the write-ahead log, and their done gets ErrWaiting. Close returns Run's error, or the cause of ctx
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

// CommitParts lets Close commit what there is of groups that are not whole, also with
// Config.CommitGroups: nothing more of them will come.
func (d *Dataset) CommitParts() { d.parts.Store(true) }

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
		d.budget.close()
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
	d.card.add(c)
	d.known.add(c)
	d.merger.add(c, 0)
	d.merger.wakeUp()

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
