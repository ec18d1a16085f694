package journal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink/frame"
)

// An Op is the kind of an Entry.
type Op uint8

// The ops. Their numeric values are part of the file format.
const (
	OpBegin Op = 1 + iota // an attempt is about to start
	OpAgent               // the agent of an attempt is known
	OpRun                 // a server run of an attempt is known
	OpEnd                 // an attempt ended
	OpSums                // the counts of a sample, written by a compaction
)

var opNames = [...]string{OpBegin: "begin", OpAgent: "agent", OpRun: "run", OpEnd: "end", OpSums: "sums"}

func (o Op) String() string {
	if o >= OpBegin && int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// An Entry is one entry of a journal.
type Entry struct {
	// Process is the number of the process that wrote the entry. The first process is number 1.
	Process int
	// Time is the wall-clock time of the entry, truncated to milliseconds.
	Time time.Time
	Op   Op
	// Key is the sample key, and Attempt is the number of the attempt.
	Key     string
	Attempt int

	Kind     collector.Kind // OpBegin
	Endpoint string         // OpBegin
	ID       string         // OpAgent, OpRun
	// Class is the name of the failure class, or "none" if the attempt succeeded. Class is set only
	// for OpEnd.
	Class   string
	Charged bool // OpEnd

	sums counts // OpSums
}

type counts struct{ charged, dataCharged int }

// An id is the binary form of a sample key.
type id struct {
	group [16]byte
	index uint32
}

// idOf parses a sample key. It accepts only the spelling that id.String returns.
func idOf(key string) (id, error) {
	var k id
	group, index, _ := strings.Cut(key, "-")
	n, err := strconv.ParseUint(index, 10, 32)
	if len(group) != 2*len(k.group) || err != nil {
		return id{}, fmt.Errorf("%q is not a sample key", key)
	}
	if _, err := hex.Decode(k.group[:], []byte(group)); err != nil {
		return id{}, fmt.Errorf("%q is not a sample key: %w", key, err)
	}
	k.index = uint32(n)
	if k.String() != key {
		return id{}, fmt.Errorf("%q is not a sample key; did you mean %q?", key, k)
	}
	return k, nil
}

func (k id) String() string {
	var text [2*len(k.group) + 11]byte
	hex.Encode(text[:], k.group[:])
	text[2*len(k.group)] = '-'
	return string(strconv.AppendUint(text[:2*len(k.group)+1], uint64(k.index), 10))
}

// append encodes the entry for sample k in the file format and appends it to dst.
func (e *Entry) append(dst []byte, k id) []byte {
	dst = append(dst, byte(e.Op))
	dst = binary.AppendUvarint(dst, uint64(min(max(0, e.Time.UnixMilli()), maxMilli))) // the clock can be wrong
	dst = append(dst, k.group[:]...)
	dst = binary.AppendUvarint(dst, uint64(k.index))
	dst = binary.AppendUvarint(dst, uint64(e.Attempt))
	switch e.Op {
	case OpBegin:
		dst = append(dst, byte(e.Kind))
		dst = frame.AppendText(dst, e.Endpoint)
	case OpAgent, OpRun:
		dst = frame.AppendText(dst, e.ID)
	case OpEnd:
		dst = frame.AppendText(frame.AppendFlag(dst, e.Charged), e.Class)
	case OpSums:
		dst = binary.AppendUvarint(dst, uint64(e.sums.charged))
		dst = binary.AppendUvarint(dst, uint64(e.sums.dataCharged))
	}
	return dst
}

const maxMilli = 1 << 53

// parse parses an entry. It accepts only bytes that append can produce. It returns the sample key
// as an id and leaves Entry.Key empty.
func parse(payload []byte) (Entry, id, error) {
	p := parser{rest: payload}
	e := Entry{Op: Op(p.byte())}
	var k id
	e.Time = time.UnixMilli(int64(p.uvarint(maxMilli)))
	copy(k.group[:], p.bytes(len(k.group)))
	k.index = uint32(p.uvarint(1<<32 - 1))
	e.Attempt = int(p.uvarint(1<<31 - 1))
	switch e.Op {
	case OpBegin:
		e.Kind = collector.Kind(p.byte())
		if int(e.Kind) >= len(collector.Kinds()) {
			p.fail(fmt.Errorf("unknown kind %d", e.Kind))
		}
		e.Endpoint = p.text()
	case OpAgent, OpRun:
		e.ID = p.text()
	case OpEnd:
		charged := p.byte()
		if charged > 1 {
			p.fail(fmt.Errorf("charged is %d, want 0 or 1", charged))
		}
		e.Charged, e.Class = charged == 1, p.text()
	case OpSums:
		e.sums.charged, e.sums.dataCharged = int(p.uvarint(maxCharged)), int(p.uvarint(maxCharged))
	default:
		p.fail(fmt.Errorf("unknown op %d", e.Op))
	}
	if len(p.rest) > 0 {
		p.fail(fmt.Errorf("%d extra bytes at the end", len(p.rest)))
	}
	return e, k, p.err
}

// A parser consumes the bytes of an entry and keeps the first error.
type parser struct {
	rest []byte
	err  error
}

var errShort = errors.New("the entry is truncated")

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.rest = nil
}

func (p *parser) bytes(n int) []byte {
	if len(p.rest) < n {
		p.fail(errShort)
		return nil
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}

func (p *parser) byte() byte {
	if b := p.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint rejects a number that exceeds the parameter most or takes more bytes than necessary.
func (p *parser) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 || v > most || n > 1 && p.rest[n-1] == 0 {
		p.fail(errors.New("a number is truncated, too long or too large"))
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) text() string {
	return string(p.bytes(int(p.uvarint(1 << 20))))
}
