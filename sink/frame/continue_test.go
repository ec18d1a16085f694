package frame_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/rollout-rl/rollout/sink/frame"
)

// TestContinue proves that the frames of a second writer follow the frames of the first, and vouch for
// the durable part only, and that a reader finds this part.
func TestContinue(t *testing.T) {
	t.Parallel()
	h := frame.Header{Kind: "test", Version: 1, Number: 7}
	var b bytes.Buffer
	w, err := frame.NewWriter(&b, h)
	if err == nil {
		err = w.Write([]byte("first"))
	}
	if err != nil {
		t.Fatal(err)
	}
	durable := w.Size()
	if err := w.Write([]byte("second")); err != nil {
		t.Fatal(err)
	}
	at := w.Size()
	w = frame.Continue(&b, at, durable)
	if err := errors.Join(w.Write([]byte("third")), w.Synced()); err != nil || w.Size() != int64(b.Len()) {
		t.Fatalf("%d bytes, the size is %d, %v", b.Len(), w.Size(), err)
	}
	read := func(b []byte) (payloads []string, durable int64, damage []error) {
		r, err := frame.NewReader(bytes.NewReader(b), int64(len(b)), h)
		for err == nil {
			var p []byte
			p, err = r.Next()
			_, torn := errors.AsType[*frame.TornError](err)
			_, corrupt := errors.AsType[*frame.CorruptError](err)
			if torn || corrupt {
				damage, err = append(damage, err), nil
				continue
			}
			if err == nil {
				payloads = append(payloads, string(p))
			}
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		return payloads, r.Durable(), damage
	}
	if got, n, damage := read(b.Bytes()); len(got) != 3 || got[1] != "second" || got[2] != "third" || damage != nil || n != int64(b.Len()) {
		t.Errorf("%q, %d of %d bytes are durable, %v", got, n, b.Len(), damage)
	}
	// Zeros in a durable frame are damage. Zeros in a later frame can be an interrupted write.
	whole := b.Bytes()[:at+frame.Overhead+int64(len("third"))] // without the mark
	if _, n, _ := read(whole); n != durable {
		t.Errorf("%d bytes are durable, want %d", n, durable)
	}
	for from, want := range map[int64]bool{frame.HeaderSize: false, durable: true} {
		damaged := bytes.Clone(whole)
		clear(damaged[from:at])
		_, _, damage := read(damaged)
		if len(damage) != 1 {
			t.Fatalf("%v", damage)
		}
		if _, torn := errors.AsType[*frame.TornError](damage[0]); torn != want {
			t.Errorf("zeros from %d on: %v", from, damage)
		}
	}
}

// TestLast proves that Last returns the last payload, of any size up to the limit, and nothing else.
func TestLast(t *testing.T) {
	t.Parallel()
	h := frame.Header{Kind: "test", Version: 1, Number: 7}
	const most = 200_000
	for _, n := range []int{0, 1, 4<<10 - frame.Overhead, 4 << 10, 70_000, most, most + 1} {
		var b bytes.Buffer
		w, err := frame.NewWriter(&b, h)
		want := bytes.Repeat([]byte("\xffRL\xfd"), n/4+1)[:n]
		if err = errors.Join(err, w.Write([]byte("first")), w.Write(want)); err != nil {
			t.Fatal(err)
		}
		last := func(b []byte) ([]byte, error) { return frame.Last(bytes.NewReader(b), int64(len(b)), most) }
		got, err := last(b.Bytes())
		if n <= most && (err != nil || !bytes.Equal(got, want)) || n > most && err == nil {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
		whole := bytes.Clone(b.Bytes())
		if err := w.Synced(); err != nil {
			t.Fatal(err)
		}
		whole[len(whole)-1]++ // in the payload, or if it is empty, in the checksum
		for name, b := range map[string][]byte{"a mark": b.Bytes(), "damage": whole, "a cut": b.Bytes()[:len(whole)-1], "a header": whole[:frame.HeaderSize], "nothing": nil} {
			got, err := last(b)
			if _, ok := errors.AsType[*frame.CorruptError](err); !ok {
				t.Errorf("%d bytes, and then %s: %d bytes, %v", n, name, len(got), err)
			}
		}
	}
}
