package tap

import (
	"bytes"
	"errors"
	"io"

	"github.com/rollout-rl/rollout/sink/frame"
)

// DecodeSegment returns the calls that a Reader would return for a complete segment.
func DecodeSegment(b []byte) (calls []*Call) {
	frames := frame.NewGrowing(bytes.NewReader(b), header(0))
	frames.MaxPayload(maxPayload)
	if err := frames.Grow(int64(len(b)), false); err != nil {
		return nil
	}
	var dec decoder
	for {
		payload, err := frames.Next()
		if err == io.EOF {
			return calls
		}
		if err != nil {
			if _, corrupt := errors.AsType[*frame.CorruptError](err); !corrupt {
				if _, torn := errors.AsType[*frame.TornError](err); !torn {
					panic(err)
				}
			}
			continue
		}
		if c, _, err := dec.decode(payload); err == nil && c != nil {
			calls = append(calls, c)
		}
	}
}
