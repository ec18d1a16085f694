package sink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Dataset durably stores samples. Create opens a Dataset, Run writes and commits its samples, and
// Close closes it:
//
//	d, err := sink.Create(dir, cfg)
//	…
//	g.Go(func() error { return d.Run(ctx) })
//	… d.Append(ctx, sample, done) from any number of goroutines …
//	err = d.Close(ctx)
//
// Only Run starts goroutines.
type Dataset struct {
	location
	cfg Config

	budget *budget
	// Append sends samples to the write-ahead log, which passes them to the writer through a queue.
	wal       *wal
	recovered Recovery
	card      *card
	merger    merger
	waiting   hold // samples that recovery left in the write-ahead log; Run moves them to the writer's hold

	parts    atomic.Bool   // whether Close also commits incomplete groups
	draining chan struct{} // closed by stop
	ended    chan struct{} // closed when Run has returned, or if it will never run

	logMu   sync.Mutex // serializes commits and merges; must be locked before mu
	nextSeq int64
	nonce   string
	end     *Commit // the sealed entry, once Seal has been called
	claimed int64   // number of this process's claim, or 0

	checkpoints *checkpointer // nil without Config.Store

	known *GroupLog // the groups in the log; nil without Config.CommitGroups

	ackMu sync.Mutex // held while ack.json is written
	ack   Cursor

	mu      sync.Mutex
	keys    keySet // samples that are done or in flight
	stats   Stats
	since   time.Time // start of the current commit; zero if there is none
	stopped bool
	cause   error // why the Dataset stopped; nil if Close stopped it
	running bool
	err     error // Run's error
}

// accepted is a sample that Append has accepted. bytes is the sample's share of the budget.
type accepted struct {
	sample *tokenize.Sample
	bytes  int64
	done   func(error)
	// durable receives nil when the sample is durable, or an error from the write-ahead log. The
	// channel is buffered, so that the log never blocks.
	durable  chan error
	segment  *segment // segment that holds the sample
	at, size int64    // offset and size of the sample's frame in segment
	index    int32    // sample index; set when the sample is held
}

// Create opens the dataset in the run's folder dir, which must exist. It creates the dataset's
// folders. If the folders already contain a commit log, Create continues that dataset. Before
// Create returns, it recovers the samples that an interrupted process left behind, as the package
// documentation describes. The recovery takes about as long as writing the samples of the shards
// that were open. No other process is allowed to have the folder open. When Create returns, it has
// left no goroutines. The caller must call Run.
//
// Create returns an error if cfg is not valid. The error is a *CorruptError if the log cannot be
// read or belongs to another run, or if a committed file is missing or has a different size. If a
// newer version of the program wrote the dataset, the error wraps ErrNewer. The error is a
// *ShardError if dir does not support commits, for example because the file system lacks hard
// links, or if dir contains the write-ahead log of another run or another store.
func Create(dir string, cfg Config) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	files := locate(cfg.Store, cfg.FS, dir)
	if err := files.makeFolders(cfg.RunID); err != nil { // find out before any sample is collected
		return nil, err
	}
	keys := newLedgerBuilder()
	var known *GroupLog
	if cfg.CommitGroups {
		known = &GroupLog{}
	}
	card := &card{location: files, logger: cfg.Logger, slow: cfg.CommitGroups, facts: cardFacts{runID: cfg.RunID}}
	log := &Log{location: files, seq: sequence{runID: cfg.RunID}, each: func(c *Commit) {
		card.facts.addSamples(c)
		keys.add(c)
		if known != nil {
			known.Add(c)
		}
	}}
	if !files.folder {
		log.replaced, log.checkpoints = []string{}, new(checkpointer)
	}
	if isNew, err := log.isNew(cfg.Epoch); err != nil {
		return nil, err
	} else if !isNew {
		if err := log.Follow(); err != nil {
			return nil, err
		}
		if err := log.CheckSizes(); err != nil {
			return nil, err
		}
	}
	for i := range log.Commits {
		card.facts.add(&log.Commits[i])
	}
	if lost, err := log.lostShards(); err != nil {
		return nil, err
	} else if len(lost) > 0 {
		return nil, lostCommit(lost[0])
	}
	d := &Dataset{
		location: files,
		cfg:      cfg,
		budget:   newBudget(cfg.MaxBytesInFlight),
		draining: make(chan struct{}),
		ended:    make(chan struct{}),
		card:     card,
		keys:     keySet{keys.ledger(dir), map[KeyID]struct{}{}},
		known:    known,
		nextSeq:  log.Last() + 1,
		nonce:    rand.Text(),

		checkpoints: log.checkpoints,
	}
	d.wal = newWAL(d)
	d.budget.press = d.wal.queue.signal
	if err := d.claimLog(log); err != nil {
		return nil, err
	}
	if err := d.readAck(d.nextSeq - 1); err != nil {
		return nil, err
	}
	d.merger.d = d
	d.merger.begin(log)
	if err := d.recover(log); err != nil {
		return nil, err
	}
	card.begin()
	return d, nil
}

// Ledger returns the samples that the dataset had when Create returned, as [ReadLedger] does. It
// rereads the log only if Create has recovered samples. Call it before Run.
func (d *Dataset) Ledger() (*Ledger, error) {
	if d.recovered.Segments > 0 {
		return ReadLedger(d.cfg.Store, d.dir)
	}
	return d.keys.log, nil
}

// Run writes samples until ctx is done, a write fails, or Close has been called and all accepted
// samples have been committed. When Run returns, all of its goroutines have ended, and the done
// function of every accepted sample has been called. Run can be called only once.
//
// If a write fails, Append and Close also return the error. If ctx is done, open shards are
// abandoned. The done functions of their samples receive the cause, and the write-ahead log keeps
// the samples for the next Create. To commit these samples before Run ends, call Close first and
// cancel ctx afterwards.
func (d *Dataset) Run(ctx context.Context) error {
	d.mu.Lock()
	again, stopped := d.running, d.stopped
	d.running = true
	d.mu.Unlock()
	if again {
		return errors.New("sink: Run can be called only once")
	}
	if stopped { // Close was called before Run and did not wait
		close(d.ended)
		return nil
	}
	var g errgroup.Group
	w := newWriter(d)
	if d.waiting.n > 0 {
		w.held, d.waiting = d.waiting, hold{}
	}
	g.Go(func() error { return w.run(ctx) })
	g.Go(func() error { return d.wal.run(ctx) })
	if d.cfg.CommitGroups || len(d.merger.gone) > 0 {
		g.Go(func() error { return d.merger.run(ctx) })
	}
	err := g.Wait()
	if !errors.Is(err, ErrFenced) { // otherwise the card belongs to the other process
		d.card.end()
	}
	if err == nil {
		d.checkpoint() // a goroutine can have skipped one that was due
	}
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	close(d.ended)
	return err
}

// Append adds a sample. All of its rows and failures become part of the dataset in one commit.
// Append returns nil as soon as the sample is durable. From then on, the sample is not lost even if
// the process is killed. Append waits up to 20 ms for a sync that several samples share, plus the
// duration of the sync. It waits longer if too many bytes are in flight or if Run has not yet been
// called. If ctx is done, Append ends this longer wait, but it never abandons the wait for a sync.
//
// After Append returns nil, the sample's memory belongs to the Dataset. The function done is called
// exactly once, from another goroutine, possibly before Append returns. If the sample is in a
// durable commit, the argument of done is nil. Otherwise the argument is the reason why the sample
// has not yet been committed, and a later Create will commit the sample. The function done must not
// block.
//
// If Append returns an error, done is not called and the caller keeps the sample. A *SampleError
// means that the sample breaks a rule or is already committed (ErrCommitted); other samples can
// still be appended. After any other error, no more samples can be appended, and it is unknown
// whether this sample is durable.
func (d *Dataset) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	if !d.folder && storedBytes(s) > MaxStoredShard {
		return &SampleError{Key: s.Key, Row: -1, Err: fmt.Errorf("the sample has %d bytes, but a shard in a store can have at most %d", storedBytes(s), MaxStoredShard)}
	}
	if err := checkSample(s, d.cfg.VocabSize, d.cfg.Experts); err != nil {
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

func (d *Dataset) deliver(batch []accepted) {
	d.pending(len(batch))
	if err := d.wal.queue.push(batch...); err != nil {
		d.drop(batch, err)
	}
}

// drop calls the done functions of durable samples that the writer did not accept, with err as the
// argument. The next Create commits these samples.
func (d *Dataset) drop(list []accepted, err error) {
	d.pending(-len(list))
	for _, a := range list {
		d.budget.release(a.bytes)
		a.done(err)
	}
}

// claim records that the key of a sample is in flight. It returns an error if a sample with this
// key is already done or in flight. A failed sample does not claim its key, because a later attempt
// can succeed.
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

// Close makes Append refuse further samples and makes Run commit the open shards and return. With
// Config.CommitGroups, samples of incomplete groups stay in the write-ahead log, and their done
// functions receive ErrWaiting. Close returns Run's error. If ctx is done before Run returns, Close
// returns the cause of ctx, and Run continues. If Run's context is then canceled, Run abandons the
// samples that have not yet been committed. Close can be called more than once.
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

// CommitParts makes Close commit incomplete groups even if Config.CommitGroups is set.
func (d *Dataset) CommitParts() { d.parts.Store(true) }

// errStopped means that the Dataset has been stopped. Callers receive the error from whyStopped
// instead.
var errStopped = errors.New("sink: stopped")

// stop makes the writer commit the samples that it already has and return. Only the first call to
// stop records its cause.
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
