package proxy

import (
	"io"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file contains the pooled memory for parsing bodies. Calls and transports receive copies, so
// no references to this memory remain after a body has been parsed.

const (
	// maxTokens limits the number of ids in one list.
	maxTokens = 1 << 20
	// chunkBytes is the size of the read buffer for an answer that is not a stream.
	chunkBytes = 4 << 10
)

// Buffers larger than these sizes are not pooled.
const (
	maxRoomBytes = 1 << 20
	maxRoomIDs   = 256 << 10
)

// A desk contains the memory for parsing one request and for the ids of one call.
type desk struct {
	s    *tokenize.Scanner
	body []byte
	ids  []int32
}

var desks = sync.Pool{New: func() any { return &desk{s: newScanner()} }}

func newScanner() *tokenize.Scanner {
	return tokenize.NewScanner(tokenize.DecoderConfig{MaxTokens: maxTokens, ChunkBytes: chunkBytes})
}

func newDesk() *desk {
	return desks.Get().(*desk) //nolint:forcetypeassert // the pool contains nothing else
}

// free returns the desk to the pool. The memory of the desk must not be used afterwards.
func (d *desk) free() {
	d.s.ResetBytes(nil)
	if cap(d.body) > maxRoomBytes {
		d.body = nil
	}
	if cap(d.ids) > maxRoomIDs {
		d.ids = nil
	}
	desks.Put(d)
}

// read reads a body of n bytes. If n is negative, the length is unknown. After each read, the
// callback may receives the number of bytes read so far. If the callback returns false, read stops.
// whole reports whether the body is complete. body is valid until free.
func (d *desk) read(r io.Reader, n int64, may func(n int64) bool) (body []byte, whole bool, err error) {
	if n >= 0 {
		d.body = slices.Grow(d.body[:0], int(n))[:n]
		_, err = io.ReadFull(r, d.body)
		return d.body, err == nil, err
	}
	d.body = d.body[:0]
	for {
		d.body = slices.Grow(d.body, chunkBytes)
		n, err := r.Read(d.body[len(d.body) : len(d.body)+chunkBytes])
		d.body = d.body[:len(d.body)+n]
		switch {
		case err == io.EOF:
			return d.body, may(int64(len(d.body))), nil
		case err != nil:
			return d.body, false, err
		case !may(int64(len(d.body))):
			return d.body, false, nil
		}
	}
}

// A tray contains the memory for parsing one answer.
type tray struct {
	s              *tokenize.Scanner
	output, logIDs []int32
	logprobs       []float32
	prompt         []int32
}

const trayTokens = 512

var trays = sync.Pool{New: func() any {
	return &tray{newScanner(), make([]int32, 0, trayTokens), make([]int32, 0, trayTokens), make([]float32, 0, trayTokens), nil}
}}

func newTray() *tray {
	return trays.Get().(*tray) //nolint:forcetypeassert // the pool contains nothing else
}

func (t *tray) free() {
	t.s.ResetBytes(nil)
	if max(cap(t.output), cap(t.logIDs), cap(t.logprobs), cap(t.prompt)) <= maxRoomIDs {
		trays.Put(t)
	}
}

const copyBytes = 4 << 10

type buffers struct{ pool sync.Pool }

var copies buffers

func (b *buffers) Get() []byte {
	if v, ok := b.pool.Get().(*[copyBytes]byte); ok {
		return v[:]
	}
	return make([]byte, copyBytes)
}

func (b *buffers) Put(s []byte) {
	if len(s) == copyBytes {
		b.pool.Put((*[copyBytes]byte)(s))
	}
}

// streamBytes is the size of the read buffer for a session's stream. With a smaller buffer, a burst
// of the engine becomes more writes to the client.
const streamBytes = 16 << 10

var streamRooms = sync.Pool{New: func() any { return new([streamBytes]byte) }}
