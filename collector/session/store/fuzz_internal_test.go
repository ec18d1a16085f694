package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// encodeCall returns the payload of a call that refers to no other call.
func encodeCall(c *session.Call) []byte {
	enc := tap.NewCallEncoder(0, 0)
	return enc.Append(appendFields(nil, c), &c.Call, time.Unix(1_800_000_000, 0))
}

// FuzzFile proves that no file makes the readers panic, and that a record that is read is consistent
// and that its calls can be encoded again. The data is cut into payloads: each is preceded by its length.
func FuzzFile(f *testing.F) {
	id := session.Key("fuzz").ID()
	head, err := headPayload(id, session.Head{})
	if err != nil {
		f.Fatal(err)
	}
	join := func(payloads ...[]byte) (data []byte) {
		for _, p := range payloads {
			data = append(binary.AppendUvarint(data, uint64(len(p))), p...)
		}
		return data
	}
	end := endPayload(session.End{Calls: 1})
	talk := newTalk(3)
	talk.prompt = talk.prompt[:80]
	c := talk.next()
	c.Output, c.Logprobs = c.Output[:5], c.Logprobs[:5]
	c.Number, c.Messages, c.Tools = 1, []int{0, 0}, 0
	call := encodeCall(c)
	f.Add(join(head, append([]byte{opText}, "{}"...), call, end))
	f.Add(join(head, []byte{opText}, call, []byte{opDelivered, 1}, []byte{opDelivered, 1}))
	f.Add(join(head))
	f.Add(join(call, head, end))
	f.Fuzz(func(t *testing.T, data []byte) {
		var payloads [][]byte
		for len(data) > 0 {
			n, used := binary.Uvarint(data)
			if used <= 0 {
				break
			}
			data = data[used:]
			n = min(n, uint64(len(data)))
			payloads = append(payloads, data[:n])
			data = data[n:]
		}
		b := fileOf(t, id, payloads...)
		rec, err := readRecord(bytes.NewReader(b), int64(len(b)), id, false)
		if err != nil {
			if !errors.Is(err, ErrDamaged) || rec != nil {
				t.Fatalf("%+v, %v", rec, err)
			}
			return
		}
		for i, c := range rec.Calls {
			if i > 0 && c.Number <= rec.Calls[i-1].Number || c.Number < 1 || c.Tools < -1 || c.Tools >= len(rec.Texts) {
				t.Fatalf("call %d: %+v", i, c)
			}
			for _, m := range c.Messages {
				if m < 0 || m >= len(rec.Texts) {
					t.Fatalf("call %d: %+v", i, c)
				}
			}
			var again decoder
			again.rec.Texts = rec.Texts
			one := encodeCall(&c)
			p := frame.PayloadOf(one[1:])
			if err := again.call(&p); err != nil || !bytes.Equal(encodeCall(&again.rec.Calls[0]), one) {
				t.Fatalf("call %d is read again as %+v, %v", i, again.rec.Calls, err)
			}
		}
	})
}
