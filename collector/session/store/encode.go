package store

import (
	"encoding/binary"
	"encoding/json"
	"strconv"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// This file encodes the payloads of a session's file. The package comment describes the format.

// Version is the format version of the payloads. A program refuses files with a newer version.
const Version = 1

const kind = "session"

// The first byte of a payload is its kind.
const (
	opHead      = 1
	opText      = 2
	opCall      = 3
	opDelivered = 4
	opEnd       = 5
)

// maxPayload is the maximum size of a payload, in bytes.
const maxPayload = tap.MaxPayload

// header returns the header of the file of the session with this id. If a file is renamed, the
// number in its header does not match its name.
func header(id string) frame.Header {
	n, err := strconv.ParseUint(id[:16], 16, 64)
	if err != nil || n == 0 {
		n = 1
	}
	return frame.Header{Kind: kind, Version: Version, Number: n}
}

func headPayload(id string, h session.Head) ([]byte, error) {
	text, err := json.Marshal(h)
	return append(frame.AppendText([]byte{opHead}, id), text...), err
}

func deliveredPayload(number int) []byte {
	return binary.AppendUvarint([]byte{opDelivered}, uint64(number)) //nolint:gosec // not negative
}

// endPayload returns the payload of an end that was parsed from JSON.
func endPayload(e session.End) []byte {
	text, _ := json.Marshal(e) // cannot fail
	return append([]byte{opEnd}, text...)
}

// appendFields appends the fields of a call that are not in tap.Call.
func appendFields(b []byte, c *session.Call) []byte {
	b = binary.AppendUvarint(append(b, opCall), uint64(c.Number))
	b = frame.AppendLen(b, c.Messages)
	for _, i := range c.Messages {
		b = binary.AppendUvarint(b, uint64(i))
	}
	b = binary.AppendVarint(b, int64(c.Tools))
	b = append(frame.AppendLen(b, c.Answer), c.Answer...)
	spliced := byte(0)
	if c.Spliced {
		spliced = 1
	}
	b = append(b, spliced)
	b = binary.AppendVarint(b, int64(c.Retry))
	for _, text := range []string{c.Model, c.Unread, c.Agent, c.ParentAgent} {
		b = frame.AppendText(b, text)
	}
	return b
}
