package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Version is the version of the framing format.
const Version = 1

// HeaderSize is the size of the file header, and Overhead is the size of a frame without its
// payload, both in bytes.
const (
	HeaderSize = 32
	Overhead   = 20
)

const (
	magic   = "rollout\x1a"
	mark    = "\xffRL\xfe" // begins a frame; valid UTF-8 text cannot contain it
	synced  = "\xffRS\xfe" // begins a mark, which is a frame without a payload that records a sync
	begins  = "\xffR"      // common prefix of mark and synced
	kindLen = 8
)

// ErrNewer means that the file was written by a newer version of the program.
var ErrNewer = errors.New("frame: written by a newer version")

// castagnoli is the table for the CRC polynomial that processors support in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Header describes a file.
type Header struct {
	// Kind names the use of the file, in 1 to 8 bytes of ASCII.
	Kind string
	// Version is the version of the payload format. It is at least 1.
	Version uint16
	// Number distinguishes the file from other files of its kind. It is at least 1. If the numbers
	// in the header and in the file name differ, the file was renamed. If NewReader receives the
	// number 0, it accepts any number.
	Number uint64
}

// A TornError describes a part of a file that was never durable, because a crash interrupted its
// write. The caller can drop the part.
type TornError struct {
	// Offset is the start of the torn part. Bytes is its length.
	Offset, Bytes int64
}

func (e *TornError) Error() string {
	return fmt.Sprintf("offset %d: %d bytes of an incomplete write", e.Offset, e.Bytes)
}

// A CorruptError describes a damaged part of a file. Either the part was already durable, or a
// crash cannot explain the damage.
type CorruptError struct {
	// Offset is the start of the damaged part. Bytes is the distance to the next whole frame or to
	// the end of the file. If the part is missing, Bytes is 0.
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

// parseHeader is the inverse of appendHeader. framing is the framing version in the header.
func parseHeader(b []byte) (h Header, framing uint16, err error) {
	if len(b) < HeaderSize {
		return Header{}, 0, errShort
	}
	if string(b[:len(magic)]) != magic {
		return Header{}, 0, errors.New("not a rollout file header")
	}
	if crc32.Checksum(b[:28], castagnoli) != binary.LittleEndian.Uint32(b[28:]) {
		return Header{}, 0, errSum
	}
	h.Kind = strings.TrimRight(string(b[8:8+kindLen]), "\x00")
	h.Version = binary.LittleEndian.Uint16(b[18:])
	h.Number = binary.LittleEndian.Uint64(b[20:])
	return h, binary.LittleEndian.Uint16(b[16:]), nil
}

// A summer computes checksums. It contains a buffer for the offset, so that checksums need no
// allocations.
type summer struct{ at [8]byte }

// sum returns the checksum of the frame at an offset in the file. head contains the first 16 bytes
// of the frame.
func (s *summer) sum(offset int64, head, payload []byte) uint32 {
	binary.LittleEndian.PutUint64(s.at[:], uint64(offset))
	crc := crc32.Update(0, castagnoli, s.at[:])
	crc = crc32.Update(crc, castagnoli, head[4:16])
	return crc32.Update(crc, castagnoli, payload)
}

var (
	errShort = errors.New("the file ends too early")
	errMark  = errors.New("no frame begins here")
	errSum   = errors.New("wrong checksum")
)
