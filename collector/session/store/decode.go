package store

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A decoder decodes the texts and the calls of one file in their order.
type decoder struct {
	calls tap.CallDecoder
	rec   session.Record
}

func (d *decoder) text(text []byte) error {
	d.rec.Texts = append(d.rec.Texts, bytes.Clone(text))
	return nil
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
	c.Tools = int(p.Int32())
	if c.Tools < -1 || c.Tools >= len(d.rec.Texts) {
		p.Fail(fmt.Errorf("text %d is not in the file", c.Tools))
	}
	if n, ok := p.Len(1); ok {
		c.Answer = append([]byte{}, p.Take(uint64(n))...)
	}
	spliced := p.Byte()
	if spliced > 1 {
		p.Fail(fmt.Errorf("the byte for a spliced prompt is %d, want 0 or 1", spliced))
	}
	c.Spliced = spliced == 1
	c.Retry, c.Model, c.Unread, c.Agent, c.ParentAgent = int(p.Int32()), p.Text(), p.Text(), p.Text(), p.Text()
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

// delivered sets the field Delivered of a call, which must be in the file before.
func (d *decoder) delivered(number int) error {
	for i := range slices.Backward(d.rec.Calls) {
		if c := &d.rec.Calls[i]; c.Number == number && !c.Delivered {
			c.Delivered = true
			return nil
		}
	}
	return fmt.Errorf("call %d is not in the file, or was already delivered", number)
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
