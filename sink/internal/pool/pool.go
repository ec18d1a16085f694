// Package pool shares zstd encoders between all datasets of a process. An encoder allocates about 2 MB when
// it first compresses something, and a worker opens hundreds of datasets.
package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Window is the window of the encoders in bytes. It is usually larger than a page. An encoder takes twice as
// much memory as its window.
const Window = 1 << 20

// Pages compresses the pages of Parquet shards, and Checkpoints compresses checkpoints of the commit log.
//
// Pages uses the fastest level. It is twice as fast as the default level, and file sizes differ by at most
// 2 %. With an explicit window, the blocks are 128 KB instead of 64 KB. This saves 8 % of the time for text
// and token ids at the same file size.
var (
	Pages = newPool(
		zstd.WithWindowSize(Window), // must precede the level, because otherwise the level sets the block size
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithZeroFrames(true),
		zstd.WithEncoderCRC(false), // pages have their own checksum
	)
	Checkpoints = newPool(zstd.WithWindowSize(Window))
)

// A Pool is a set of encoders with the same options. It has as many encoders as goroutines can run at the
// same time, and creates them when it needs them. Garbage collection would empty a sync.Pool. It is safe for
// concurrent use.
type Pool struct {
	options []zstd.EOption
	places  []place
}

type place struct {
	mu      sync.Mutex
	encoder *zstd.Encoder // nil until it is needed
}

func newPool(options ...zstd.EOption) *Pool {
	return &Pool{append(options, zstd.WithEncoderConcurrency(1)), make([]place, runtime.GOMAXPROCS(0))}
}

// EncodeAll appends the compressed form of src to dst as one frame. It waits if all encoders are busy.
func (p *Pool) EncodeAll(src, dst []byte) []byte {
	e := p.take()
	defer e.mu.Unlock()
	return p.use(e).EncodeAll(src, dst)
}

// take locks a place: the first one that is free, so that few encoders are created.
func (p *Pool) take() *place {
	for i := range p.places {
		if p.places[i].mu.TryLock() {
			return &p.places[i]
		}
	}
	e := &p.places[rand.IntN(len(p.places))] //nolint:gosec // spreads the callers
	e.mu.Lock()
	return e
}

func (p *Pool) use(e *place) *zstd.Encoder {
	if e.encoder == nil {
		var err error
		if e.encoder, err = zstd.NewWriter(nil, p.options...); err != nil {
			panic("pool: internal error: " + err.Error()) // the library refused an option
		}
	}
	return e.encoder
}

// Fill creates all encoders. Tests with synctest need it, because an encoder has a channel, and a channel
// that is made in a bubble can be used only there.
func Fill() {
	for _, p := range []*Pool{Pages, Checkpoints} {
		for i := range p.places {
			p.places[i].mu.Lock()
			p.use(&p.places[i]).EncodeAll(nil, nil)
			p.places[i].mu.Unlock()
		}
	}
}
