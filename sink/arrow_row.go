package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"
)

// A stream is a sequence of messages:
//
//	ff ff ff ff   length of the header (int32)   header, padded to 8   body
//
// The header is a Flatbuffers table with the length of the body. So a batch can be found without
// decoding the batches before it: see "Encapsulated message format" of the Arrow columnar format. The
// constants are offsets in Message of Message.fbs, by field number.
const (
	messageType       = 4 + 2*1
	messageHeader     = 4 + 2*2
	messageBodyLength = 4 + 2*3
	batchLength       = 4 + 2*0

	isRecordBatch = 3
)

// arrowRow returns row n of a stream. It decodes only the schema and one batch.
func arrowRow(f File, size, n int64) (row *StoredRow, err error) {
	defer func() { // a damaged table can point outside its header
		if r := recover(); r != nil {
			row, err = nil, fmt.Errorf("arrow: %v", r)
		}
	}()
	schema := int64(-1) // length of the schema message
	for at := int64(0); at < size; {
		m, err := readMessage(f, at, size)
		if err != nil {
			return nil, err
		}
		switch {
		case m.rows < 0 && schema < 0:
			schema = m.length
		case m.rows < 0 || schema < 0:
			return nil, fmt.Errorf("byte %d: not a record batch", at)
		case n >= m.rows:
			n -= m.rows
		default:
			one := &oneBatch{File: f, schema: schema, at: at, length: m.length}
			err := readArrow(one, one.size(), m.rows, func(r *StoredRow) bool {
				row = r
				n--
				return n >= 0
			})
			return row, err
		}
		at += m.length
	}
	return nil, errors.New("the stream ends before the row")
}

// A message is one message of a stream. rows is -1 unless it is a record batch.
type message struct{ length, rows int64 }

// readMessage reads the header of the message at offset at.
func readMessage(f File, at, size int64) (message, error) {
	var prefix [8]byte
	if _, err := f.ReadAt(prefix[:], at); err != nil {
		return message{}, err
	}
	length := int64(binary.LittleEndian.Uint32(prefix[4:]))
	if string(prefix[:4]) != arrowEnd[:4] || length < 8 || length > size-at-8 {
		return message{}, fmt.Errorf("byte %d: no message", at)
	}
	header := make([]byte, length)
	if _, err := f.ReadAt(header, at+8); err != nil {
		return message{}, err
	}
	t := flatbuffers.Table{Bytes: header, Pos: flatbuffers.GetUOffsetT(header)}
	m := message{length: 8 + length, rows: -1}
	if o := t.Offset(messageBodyLength); o != 0 {
		body := t.GetInt64(t.Pos + flatbuffers.UOffsetT(o))
		if body < 0 || body > size-at-m.length {
			return message{}, fmt.Errorf("byte %d: a body of %d bytes", at, body)
		}
		m.length += body
	}
	if o := t.Offset(messageType); o == 0 || t.GetByte(t.Pos+flatbuffers.UOffsetT(o)) != isRecordBatch {
		return m, nil
	}
	m.rows = 0
	if o := t.Offset(messageHeader); o != 0 {
		var batch flatbuffers.Table
		t.Union(&batch, flatbuffers.UOffsetT(o))
		if o := batch.Offset(batchLength); o != 0 {
			m.rows = batch.GetInt64(batch.Pos + flatbuffers.UOffsetT(o))
		}
	}
	return m, nil
}

// A oneBatch reads as a stream with one batch of a file: the schema, the batch, the end mark.
type oneBatch struct {
	File
	schema, at, length int64
}

func (b *oneBatch) size() int64 { return b.schema + b.length + int64(len(arrowEnd)) }

func (b *oneBatch) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		var k int
		switch at := off + int64(n); {
		case at < b.schema:
			k, err = b.File.ReadAt(p[n:min(int64(len(p)), int64(n)+b.schema-at)], at)
		case at < b.schema+b.length:
			k, err = b.File.ReadAt(p[n:min(int64(len(p)), int64(n)+b.schema+b.length-at)], b.at+at-b.schema)
		default:
			k = copy(p[n:], arrowEnd[min(at-b.schema-b.length, int64(len(arrowEnd))):])
			if k == 0 {
				return n, io.EOF
			}
		}
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
