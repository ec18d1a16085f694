package frame_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink/frame"
)

// follow reads a file that grows step by step and ends with the last step.
func follow(tb testing.TB, body []byte, steps []int) (payloads []string, damage []error) {
	tb.Helper()
	r := frame.NewGrowing(bytes.NewReader(body), header)
	r.MaxPayload(1 << 20)
	for i, size := range steps {
		must(tb, r.Grow(int64(size), i+1 < len(steps)))
		for {
			p, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				damage = append(damage, err)
				continue
			}
			payloads = append(payloads, string(p))
		}
	}
	return payloads, damage
}

// TestGrow tests that a following reader returns each payload once, as soon as its frame is whole, and
// reports no incomplete frame as damage.
func TestGrow(t *testing.T) {
	t.Parallel()
	batches := contents(t)
	body, at := file(t, batches...)
	steps := make([]int, len(body)+1)
	for i := range steps {
		steps[i] = i
	}
	got, damage := follow(t, body, steps)
	if !slices.Equal(got, flat(batches)) || len(damage) > 0 {
		t.Errorf("byte by byte: %d payloads, damage %v", len(got), damage)
	}
	for i, offset := range at {
		end := int(offset) + frame.Overhead + len(flat(batches)[i])
		got, _ := follow(t, body, []int{0, end, len(body)})
		if !slices.Equal(got, flat(batches)) {
			t.Errorf("in two parts at %d: %d payloads", end, len(got))
		}
		r := frame.NewGrowing(bytes.NewReader(body), header)
		must(t, r.Grow(int64(end), true))
		n := 0
		for ; n <= i; n++ {
			if _, err := r.Next(); err != nil {
				t.Errorf("payload %d is missing: %v", n, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("after payload %d: %v", i, err)
		}
	}
}

// TestGrowDamaged tests that a flipped bit does not affect the other frames, and is reported once when
// the next whole frame is there. That includes a bit of a length.
func TestGrowDamaged(t *testing.T) {
	t.Parallel()
	batches := contents(t)
	all := flat(batches)
	body, at, marks := marked(t, true, batches...)
	for bit := range len(body) * 8 {
		flipped := bytes.Clone(body)
		flipped[bit/8] ^= 1 << (bit % 8)
		want := slices.Clone(all)
		hit, mark := lastBefore(at, bit/8), lastBefore(marks, bit/8)
		if hit >= 0 && (mark < 0 || marks[mark] < at[hit]) {
			want = slices.Delete(want, hit, hit+1)
		}
		got, damage := follow(t, flipped, []int{10, len(body) / 2, len(body), len(body)})
		if !slices.Equal(got, want) || len(damage) != 1 {
			t.Fatalf("bit %d: read %d payloads, want %d; damage %v", bit, len(got), len(want), damage)
		}
	}
}

// lastBefore returns the index of the last offset at or before n, or -1.
func lastBefore(offsets []int64, n int) int {
	i, found := slices.BinarySearch(offsets, int64(n))
	if found {
		return i
	}
	return i - 1
}

// TestGrowRefuses tests that the header is checked as soon as it is complete.
func TestGrowRefuses(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	newWriter(t, &buf, frame.Header{Kind: "test", Version: header.Version + 1})
	r := frame.NewGrowing(bytes.NewReader(buf.Bytes()), header)
	must(t, r.Grow(frame.HeaderSize-1, true))
	if err := r.Grow(frame.HeaderSize, true); !errors.Is(err, frame.ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
}
