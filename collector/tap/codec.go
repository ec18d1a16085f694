package tap

import (
	"fmt"
	"time"
)

// A CallEncoder encodes calls for a file that is not a segment of a spool. The payloads have the
// format of the payloads in a segment: the prompt of a call can refer to an earlier call in the
// same file. A CallEncoder is not safe for concurrent use.
type CallEncoder struct{ enc encoder }

// NewCallEncoder returns an encoder for a file that already contains the given number of calls. The
// encoder does not know these calls, so no prompt refers to them. The encoder keeps the tokens of
// the latest calls in memory, at most the given number of tokens.
func NewCallEncoder(calls uint64, tokens int) *CallEncoder {
	return &CallEncoder{enc: encoder{last: calls, known: finder{most: tokens}}}
}

// Append appends the payload of the next call to b. The payload states that the call was added at
// the given time. Append keeps no reference to the call. If the payload is not written to the file,
// the encoder must not be used again, because later payloads could refer to the missing call.
func (e *CallEncoder) Append(b []byte, c *Call, added time.Time) []byte {
	en := newEntry(c)
	en.added = added
	b = e.enc.append(b, en, 0)
	e.enc.room = nil // thousands of encoders can be in use, so none keeps a buffer between two calls
	return b
}

// A CallDecoder decodes the payloads that a CallEncoder encoded, in the same order. The zero value
// is ready to use.
type CallDecoder struct{ dec decoder }

// Decode returns the call in a payload. The caller owns the call. If an earlier payload is missing,
// Decode returns an error.
func (d *CallDecoder) Decode(payload []byte) (*Call, error) {
	c, _, err := d.dec.decode(payload)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("invalid payload: kind %d is not a call", payload[0])
	case d.dec.lost > 0:
		return nil, fmt.Errorf("%d calls are missing before this call", d.dec.lost)
	}
	return c, nil
}
