package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A decoder decodes the payloads of one file in their order. Set id before the first payload.
type decoder struct {
	id    string
	calls tap.CallDecoder
	begun bool // a head was decoded
	rec   session.Record
}

// decode decodes the next payload and adds it to d.rec. It keeps no reference to the payload. After
// an error, the decoder must not be used again.
func (d *decoder) decode(payload []byte) error {
	op, p := opOf(payload)
	switch {
	case d.begun == (op == opHead):
		return errors.New("invalid payload: the file must contain one head, at its start")
	case d.rec.End != nil:
		return errors.New("invalid payload: data follows the end of the session")
	}
	var err error
	switch op {
	case opHead:
		d.begun = true
		d.rec.ID, d.rec.Head, err = decodeHead(p, d.id)
	case opText:
		d.rec.Texts = append(d.rec.Texts, bytes.Clone(p.Take(uint64(p.Left()))))
	case opCall:
		err = d.call(p)
	case opEnd:
		d.rec.End, err = decodeEnd(p)
	default:
		err = fmt.Errorf("unknown kind %d", op)
	}
	if err != nil {
		return fmt.Errorf("invalid payload: %w", err)
	}
	return nil
}

// opOf returns the kind of a payload and the rest of the payload. An empty payload has kind 0.
func opOf(payload []byte) (byte, *frame.Payload) {
	p := frame.PayloadOf(payload)
	return p.Byte(), &p
}

func decodeHead(p *frame.Payload, want string) (id string, h session.Head, err error) {
	id = p.Text()
	if id != want && p.Err() == nil {
		p.Fail(fmt.Errorf("the file belongs to the session %q", id))
	}
	if err := p.Err(); err != nil {
		return "", h, err
	}
	return id, h, json.Unmarshal(p.Take(uint64(p.Left())), &h)
}

func decodeEnd(p *frame.Payload) (*session.End, error) {
	e := new(session.End)
	if err := json.Unmarshal(p.Take(uint64(p.Left())), e); err != nil {
		return nil, err
	}
	return e, nil
}

func (d *decoder) call(p *frame.Payload) error {
	c := session.Call{Number: numberOf(p)}
	texts := uint64(len(d.rec.Texts))
	if n, ok := p.Len(1); ok {
		c.Messages = make([]int, 0, n)
		for range n {
			i := p.Uvarint()
			if i >= texts {
				p.Fail(fmt.Errorf("text %d is not in the file", i))
				break
			}
			c.Messages = append(c.Messages, int(i))
		}
	}
	tools := p.Varint()
	if tools < -1 || tools >= int64(texts) {
		p.Fail(fmt.Errorf("text %d is not in the file", tools))
	}
	c.Tools = int(tools)
	if n, ok := p.Len(1); ok {
		c.Answer = append([]byte{}, p.Take(uint64(n))...)
	}
	flags := p.Byte()
	if flags > 3 {
		p.Fail(fmt.Errorf("the flags are %d, want 0 to 3", flags))
	}
	c.Delivered, c.Spliced = flags&1 != 0, flags&2 != 0
	retry := p.Varint()
	if retry != int64(int32(retry)) {
		p.Fail(fmt.Errorf("%d does not fit in 32 bits", retry))
	}
	c.Retry, c.Unread = int(retry), p.Text()
	if err := p.Err(); err != nil {
		return err
	}
	call, err := d.calls.Decode(p.Take(uint64(p.Left())))
	if err != nil {
		return err
	}
	c.Call = *call
	d.rec.Calls = append(d.rec.Calls, c)
	return nil
}

// numberOf parses the number of a call.
func numberOf(p *frame.Payload) int {
	n := p.Uvarint()
	if p.Err() == nil && (n == 0 || n > math.MaxInt32) {
		p.Fail(fmt.Errorf("invalid call number %d", n))
	}
	return int(n) //nolint:gosec // the value is bounded
}

// record returns the decoded session, with its calls in the order of their numbers.
func (d *decoder) record() (*session.Record, error) {
	r := &d.rec
	slices.SortFunc(r.Calls, func(a, b session.Call) int { return a.Number - b.Number })
	for i := 1; i < len(r.Calls); i++ {
		if r.Calls[i].Number == r.Calls[i-1].Number {
			return nil, fmt.Errorf("two calls have the number %d", r.Calls[i].Number)
		}
	}
	return r, nil
}
