package proxy

import (
	"io"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file has the memory that one body after the other is read with. Nothing that outlives
// the reading refers to it: what a call keeps is copied, and what a transport sends too.

// The bounds of what is read of one body.
const (
	// maxEvent bounds an event of a stream. The first may have the ids of the prompt.
	maxEvent = 4 << 20
	// maxTokens bounds the ids of a body.
	maxTokens = 1 << 20
	// chunkBytes is the read buffer of an answer that is one document.
	chunkBytes = 4 << 10
)

// What is larger is not used again.
const (
	maxRoomBytes = 1 << 20
	maxRoomIDs   = 256 << 10
)

// A desk is for reading one request, and for the ids of one call.
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
	return desks.Get().(*desk) //nolint:forcetypeassert // of New
}

// free gives the desk to the next reader. Nobody may use what lies on it any more.
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

// read reads a body of n bytes, or to its end if n is negative. That one is read as long as may,
// which is told how long it is, allows it. whole reports whether it was read to its end, and
// allowed. The body is valid until free.
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

// A tray is for reading one answer.
type tray struct {
	s              *tokenize.Scanner
	output, logIDs []int32
	logprobs       []float32
}

// trayTokens is the room for tokens that a tray begins with.
const trayTokens = 512

var trays = sync.Pool{New: func() any {
	return &tray{newScanner(), make([]int32, 0, trayTokens), make([]int32, 0, trayTokens), make([]float32, 0, trayTokens)}
}}

func newTray() *tray {
	return trays.Get().(*tray) //nolint:forcetypeassert // of New
}

// free gives the tray to the next reader.
func (t *tray) free() {
	t.s.ResetBytes(nil)
	if max(cap(t.output), cap(t.logIDs), cap(t.logprobs)) <= maxRoomIDs {
		trays.Put(t)
	}
}

// copyBytes is what is held of a body that passes.
const copyBytes = 4 << 10

// buffers are for copying bodies.
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
