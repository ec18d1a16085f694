package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Version is the version of the framing that this package writes. Version 2 added the
// marks and the number of the file; version 1 is still read.
const Version = 2

// The sizes of what is not payload.
const (
	HeaderSize = 32
	Overhead   = 20
)

const (
	magic   = "rollout\x1a"
	mark    = "\xffRL\xfe" // begins a frame; no text holds it: it is not UTF-8
	synced  = "\xffRS\xfe" // begins a frame without payload: a mark of a sync
	begins  = "\xffR"      // what both begin with
	kindLen = 8
)

// ErrNewer means that a newer version of the program wrote the file.
var ErrNewer = errors.New("frame: written by a newer version")

// castagnoli is the polynomial that processors compute by themselves.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Header says what a file holds.
type Header struct {
	// Kind names the use of the file: 1 to 8 bytes of ASCII.
	Kind string
	// Version is that of the payloads, from 1.
	Version uint16
	// Number tells the file from others of its kind, from 1: a file that bears another
	// number than its name is not where it was written. 0: it has none, or of NewReader:
	// any will do.
	Number uint64
}

// A TornError is a part of a file that was never durable: it was being written
// when the process or the machine stopped. It is to be dropped.
type TornError struct {
	// Offset is where it begins, Bytes how long it is.
	Offset, Bytes int64
}

func (e *TornError) Error() string {
	return fmt.Sprintf("offset %d: %d bytes were not written to their end", e.Offset, e.Bytes)
}

// A CorruptError is a part of a file that was durable and is broken, or that no end of
// a process or a machine leaves behind.
type CorruptError struct {
	// Offset is where it begins, Bytes how far it is to the next whole frame or to
	// the end of the file; 0 where what should come there is missing.
	Offset, Bytes int64
	Err           error
}

func (e *CorruptError) Error() string {
	if e.Bytes == 0 {
		return fmt.Sprintf("offset %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("offset %d: %d bytes are damaged: %v", e.Offset, e.Bytes, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// appendHeader appends h as it stands in a file.
func appendHeader(dst []byte, h Header) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, h.Kind...)
	dst = append(dst, make([]byte, kindLen-len(h.Kind))...)
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, h.Version)
	dst = binary.LittleEndian.AppendUint64(dst, h.Number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// parseHeader is the inverse of appendHeader; framing is the version of it.
func parseHeader(b []byte) (h Header, framing uint16, err error) {
	if len(b) < HeaderSize {
		return Header{}, 0, errShort
	}
	if string(b[:len(magic)]) != magic {
		return Header{}, 0, errors.New("the header is not one that rollout writes")
	}
	if crc32.Checksum(b[:28], castagnoli) != binary.LittleEndian.Uint32(b[28:]) {
		return Header{}, 0, errSum
	}
	h.Kind = strings.TrimRight(string(b[8:8+kindLen]), "\x00")
	h.Version = binary.LittleEndian.Uint16(b[18:])
	h.Number = binary.LittleEndian.Uint64(b[20:])
	return h, binary.LittleEndian.Uint16(b[16:]), nil
}

// A summer computes checksums. It is a type to own the bytes of the offset, which
// would else be allocated for each.
type summer struct{ at [8]byte }

// sum is the checksum of a frame at offset, given its first 16 bytes.
func (s *summer) sum(offset int64, head, payload []byte) uint32 {
	binary.LittleEndian.PutUint64(s.at[:], uint64(offset))
	crc := crc32.Update(0, castagnoli, s.at[:])
	crc = crc32.Update(crc, castagnoli, head[4:16])
	return crc32.Update(crc, castagnoli, payload)
}

// What can be wrong with a frame.
var (
	errShort = errors.New("the file ends within it")
	errMark  = errors.New("no frame begins here")
	errSum   = errors.New("the checksum is wrong")
)
