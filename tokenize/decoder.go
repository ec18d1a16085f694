package tokenize

import "io"

// DecoderConfig bounds what a Decoder accepts. The zero value means the defaults.
type DecoderConfig struct {
	// MaxReplyBytes bounds the length of a reply. Default 128 MiB: a reply of the
	// recorded shape takes some 80 to 130 bytes per sampled token.
	MaxReplyBytes int64
	// MaxTokens bounds all ids of a reply together, prompts included. Default 1<<24.
	MaxTokens int
	// MaxTurns bounds the number of turns. Default 65,536.
	MaxTurns int
	// MaxDepth bounds the nesting of arrays and objects. Default 256.
	MaxDepth int
	// MaxRestBytes bounds Reply.Rest. Default 32 MiB.
	MaxRestBytes int
	// ChunkBytes is the size of the read buffer of Decode, at least 4 KiB.
	// Default 64 KiB; from 16 to 256 KiB it makes no difference.
	ChunkBytes int
}

func (c DecoderConfig) withDefaults() DecoderConfig {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.MaxReplyBytes <= 0 {
		c.MaxReplyBytes = 128 << 20
	}
	set(&c.MaxTokens, 1<<24)
	set(&c.MaxTurns, 1<<16)
	set(&c.MaxDepth, 256)
	set(&c.MaxRestBytes, 32<<20)
	set(&c.ChunkBytes, 64<<10)
	c.ChunkBytes = max(c.ChunkBytes, minChunkBytes)
	return c
}

// minChunkBytes leaves room for the longest number, key and look-ahead together.
const minChunkBytes = 4 << 10

// A Decoder reads replies of a Letta server into a Reply. It keeps one read buffer
// of ChunkBytes and may be used for any number of replies, one at a time; it is
// not safe for concurrent use: give each worker its own.
type Decoder struct {
	cfg DecoderConfig
}

// NewDecoder returns a Decoder with the given limits.
func NewDecoder(cfg DecoderConfig) *Decoder { return &Decoder{cfg: cfg.withDefaults()} }

// Decode reads one reply from r up to its end into dst, which it resets first. The
// result does not depend on how r chops the bytes. After an error dst is empty and
// the Decoder can be used again.
//
// Errors: *DecodeError for bytes that are not a reply, *ReadError where r failed.
func (d *Decoder) Decode(r io.Reader, dst *Reply) error { panic("todo") }

// DecodeBytes is Decode for a reply that is in memory. It does not change b and
// keeps no reference to it.
func (d *Decoder) DecodeBytes(b []byte, dst *Reply) error { panic("todo") }

// SlowFloats returns how many log-probabilities of the last reply had to be
// converted by strconv. On real replies it is below one in a thousand; more means
// that the fast path has stopped matching what the server prints.
func (d *Decoder) SlowFloats() int { return 0 }
