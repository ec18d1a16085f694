package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/rollout-rl/rollout/collector/session"
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

// A scan reads the payloads of a session's file in their order. It checks that the file begins with
// the head of the session, and that nothing follows the end. The number and the digest of the calls
// must match the end. A scan does not decode the calls.
type scan struct {
	id        string
	text      func(text []byte) error         // called for each text, which it must not keep
	call      func(call *frame.Payload) error // called for each call
	delivered func(number int) error          // called for each call that was delivered

	head  *session.Head // nil until it is read
	end   *session.End  // nil until it is read
	calls int
	sum   digest

	whole   int64 // the offset of the end of the last whole frame
	durable int64 // how many of these bytes a sync has made durable
	torn    bool  // a torn part follows the last whole frame
}

// file reads the file. It stops at the first torn part, because later frames were not durable
// either. A damaged part and an error of text or call cause an error that wraps ErrDamaged. Another
// error means that the file could not be read.
func (s *scan) file(r io.ReaderAt, size int64) error {
	s.sum = newDigest()
	f, err := frame.NewReader(r, size, header(s.id))
	if err != nil {
		return s.unread(err)
	}
	f.MaxPayload(maxPayload)
	defer func() {
		if s.durable = f.Durable(); f.Ended() {
			s.durable -= frame.Overhead // the mark at the end need not be durable
		}
	}()
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
		if err != nil {
			return s.unread(err)
		}
		if err := s.payload(payload); err != nil {
			return damaged(s.id, fmt.Errorf("offset %d: %w", at, err))
		}
	}
}

// unread returns the error of a frame that is damaged or cannot be read.
func (s *scan) unread(err error) error {
	if corrupt, ok := errors.AsType[*frame.CorruptError](err); ok {
		return damaged(s.id, corrupt)
	}
	return fmt.Errorf("session %s: %w", s.id, err)
}

func (s *scan) payload(payload []byte) error {
	p := frame.PayloadOf(payload)
	op := p.Byte()
	switch {
	case (s.head == nil) != (op == opHead):
		return errors.New("the file must contain one head, at its start")
	case s.end != nil:
		return errors.New("data follows the end of the session")
	}
	var err error
	switch op {
	case opHead:
		err = s.readHead(&p)
	case opText:
		err = s.text(payload[1:])
	case opCall:
		s.calls++
		err = s.call(&p)
	case opDelivered:
		number := numberOf(&p)
		if err = p.End(); err == nil {
			err = s.delivered(number)
		}
	case opEnd:
		return s.readEnd(payload[1:])
	default:
		err = fmt.Errorf("unknown kind %d", op)
	}
	s.sum.add(payload)
	return err
}

func (s *scan) readHead(p *frame.Payload) error {
	id := p.Text()
	if err := p.Err(); err != nil {
		return err
	}
	if id != s.id {
		return fmt.Errorf("the file belongs to the session %q", id)
	}
	s.head = new(session.Head)
	return json.Unmarshal(p.Take(uint64(p.Left())), s.head)
}

func (s *scan) readEnd(text []byte) error {
	s.end = new(session.End)
	if err := json.Unmarshal(text, s.end); err != nil {
		return err
	}
	if s.end.Calls != s.calls {
		return fmt.Errorf("the file contains %d calls, but the end of the session states %d", s.calls, s.end.Calls)
	}
	if s.end.Digest != s.sum.String() {
		return errors.New("the digest in the end of the session does not match the calls")
	}
	return nil
}

func damaged(id string, why error) error {
	return fmt.Errorf("session %s: %w: %w", id, ErrDamaged, why)
}
