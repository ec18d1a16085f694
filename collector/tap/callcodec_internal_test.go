package tap

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCallCodec proves that calls decode to their originals, that the encoder keeps at most the given
// number of tokens, and that a second encoder can continue the file of the first.
func TestCallCodec(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(32, 1))
	const most = 2000
	calls := interleaved(r, 10, 6)
	for range 50 {
		calls = append(calls, strange(r))
	}
	var dec CallDecoder
	enc := NewCallEncoder(0, most)
	shared := 0
	for i, c := range calls {
		if i == len(calls)/2 {
			enc = NewCallEncoder(uint64(i), most)
		}
		payload := enc.Append(nil, c, time.Unix(1_800_000_000, 0))
		got, err := dec.Decode(payload)
		if err != nil || !sameCall(c, got) {
			t.Fatalf("call %d: %+v, %v", i, got, err)
		}
		if n := enc.enc.known.tokens; n > most || enc.enc.room != nil {
			t.Fatalf("call %d: the encoder keeps %d tokens", i, n)
		}
		if len(payload) < 2*len(c.Prompt) {
			shared++
		}
		if int64(len(payload)) > PayloadBound(c) {
			t.Errorf("call %d: %d bytes, bound is %d", i, len(payload), PayloadBound(c))
		}
	}
	if shared < 20 {
		t.Errorf("only %d prompts share tokens", shared)
	}
	enc.Append(nil, calls[0], time.Unix(1_800_000_000, 0)) // missing
	if got, err := dec.Decode(enc.Append(nil, calls[1], time.Unix(1_800_000_000, 0))); err == nil {
		t.Errorf("a call after a missing call: %+v", got)
	}
	if got, err := dec.Decode(appendTick(nil, time.Unix(1_800_000_000, 0), 0)); err == nil {
		t.Errorf("a tick is a call: %+v", got)
	}
}
