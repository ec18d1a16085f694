package chat

import (
	"math/rand/v2"
	"testing"
)

// TestPlainEnd compares the search by eight bytes with a search byte by byte.
func TestPlainEnd(t *testing.T) {
	t.Parallel()
	one := func(s string, i int, ascii bool) int {
		for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' && (s[i] < 0x7f || !ascii) {
			i++
		}
		return i
	}
	r := rand.New(rand.NewPCG(1, 2))
	near := []byte{0, 1, 0x1f, 0x20, 0x21, '"', '"' + 1, '\\' - 1, '\\', '\\' + 1, 0x7f, 0x80, 0xa2, 0xdc, 0xff}
	for range 200_000 {
		s := make([]byte, r.IntN(28))
		for i := range s {
			if s[i] = 'a'; r.IntN(6) == 0 {
				s[i] = near[r.IntN(len(near))]
			}
		}
		i, ascii := r.IntN(len(s)+1), r.IntN(2) == 0
		if got, want := plainEnd(string(s), i, ascii), one(string(s), i, ascii); got != want {
			t.Fatalf("plainEnd(%q, %d, %v) = %d, want %d", s, i, ascii, got, want)
		}
	}
}
