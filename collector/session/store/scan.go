package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/rollout-rl/rollout/sink/frame"
)

// A digest computes End.Digest: the SHA-256 of all payloads before the end, each preceded by its
// length in eight bytes, little-endian.
type digest struct{ sha hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

// add adds a payload, which is the concatenation of the parts.
func (d digest) add(parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(n)) //nolint:gosec // not negative
	_, _ = d.sha.Write(length[:])
	for _, p := range parts {
		_, _ = d.sha.Write(p)
	}
}

func (d digest) String() string { return hex.EncodeToString(d.sha.Sum(nil)) }

// A scan reads the payloads of a session's file in their order.
type scan struct {
	id    string
	whole int64 // the offset of the end of the last whole frame
	torn  bool  // a torn part follows the last whole frame
}

// each passes each payload to visit. It stops at the first torn part, because later frames were not
// durable either. A damaged part and an error of visit cause an error that wraps ErrDamaged.
// Another error means that the file could not be read.
func (s *scan) each(r io.ReaderAt, size int64, visit func(payload []byte) error) error {
	f, err := frame.NewReader(r, size, header(s.id))
	if corrupt, ok := errors.AsType[*frame.CorruptError](err); ok {
		return damaged(s.id, corrupt)
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", s.id, err)
	}
	f.MaxPayload(maxPayload)
	for {
		at := f.Offset()
		payload, err := f.Next()
		if err == io.EOF {
			s.whole = f.Offset()
			return nil
		}
		if torn, ok := errors.AsType[*frame.TornError](err); ok {
			s.whole, s.torn = torn.Offset, true
			return nil
		}
		if corrupt, ok := errors.AsType[*frame.CorruptError](err); ok {
			return damaged(s.id, corrupt)
		}
		if err != nil {
			return fmt.Errorf("session %s: %w", s.id, err)
		}
		if err := visit(payload); err != nil {
			return damaged(s.id, fmt.Errorf("offset %d: %w", at, err))
		}
	}
}

func damaged(id string, why error) error {
	return fmt.Errorf("session %s: %w: %w", id, ErrDamaged, why)
}
