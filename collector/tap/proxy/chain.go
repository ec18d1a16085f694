package proxy

import (
	"slices"
	"sync"
)

// A chain contains a hash for each block of a prompt. A block's hash covers everything up to the
// end of the block. In a rollout, each prompt usually begins with the previous prompt. The chain of
// a prompt then begins with the chain of the previous prompt. The hashes are only used to select an
// engine, so a collision is harmless.
type chain []uint64

// A block consists of blockIDs ids or of blockBytes bytes of text.
const (
	blockIDs   = 32
	blockBytes = 128
)

func chainOf(ids []int32) chain {
	return make(chain, 0, len(ids)/blockIDs).grow(ids, nil)
}

// grow appends the missing hashes for a prompt that consists of ids, followed by more. c can
// already contain the hashes of the first blocks in ids.
func (c chain) grow(ids, more []int32) chain {
	h, in := uint64(seedHash), 0
	if len(c) > 0 {
		h = c[len(c)-1]
	}
	for _, list := range [...][]int32{ids[len(c)*blockIDs:], more} {
		for _, id := range list {
			h = mix(h, uint64(uint32(id)))
			if in++; in == blockIDs {
				c, in = append(c, h), 0
			}
		}
	}
	return c
}

func chainOfText(text []byte) (c chain) {
	h := uint64(seedHash)
	for at := 0; at+blockBytes <= len(text); at += blockBytes {
		for _, b := range text[at : at+blockBytes] {
			h = mix(h, uint64(b))
		}
		c = append(c, h)
	}
	return c
}

const seedHash = 0x9E3779B97F4A7C15

func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0xff51afd7ed558ccd
	return h ^ h>>32
}

// places maps the last hash of a chain to the engine that received the prompt with this chain. It
// contains at most two generations of placesEach entries. When the newer generation is full, the
// older one is dropped.
type places struct {
	mu         sync.Mutex
	young, old map[uint64]*engine
}

const placesEach = 1 << 16

// find returns the engine that received the longest known prefix of c, or nil.
func (p *places) find(c chain) *engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range slices.Backward(c) {
		if e := p.young[h]; e != nil {
			return e
		}
		if e := p.old[h]; e != nil {
			return e
		}
	}
	return nil
}

func (p *places) put(c chain, e *engine) {
	if len(c) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.young == nil || len(p.young) >= placesEach {
		p.old, p.young = p.young, make(map[uint64]*engine)
	}
	p.young[c[len(c)-1]] = e
}
