package tap_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
)

// TestDamage proves that from any damaged spool a reader returns only added calls, in order and
// each once. It counts what it cannot read and continues after it.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, tap.SpoolConfig{Dir: dir, SegmentBytes: 16 << 10})
	const calls = 120
	for n := range calls {
		s.Add(call(n))
	}
	shut(t, s)
	names := segmentFiles(t, dir)
	if len(names) < 3 {
		t.Fatalf("%d segments", len(names))
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(14, seed))
	for round := range rounds {
		damaged := t.TempDir()
		if err := os.WriteFile(filepath.Join(damaged, "lock"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		hit := r.IntN(len(names))
		for i, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if i == hit {
				b = damage(r, b)
			}
			if err := os.WriteFile(filepath.Join(damaged, filepath.Base(name)), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		seal(t, damaged)
		reader := reader(t, damaged)
		got := rest(t, reader)
		st := reader.Stats()
		for i, n := range got {
			if n < 0 || n >= calls || i > 0 && n <= got[i-1] {
				t.Fatalf("seed %d, round %d: call %d in %v", seed, round, n, got)
			}
		}
		if told := st.Damaged + st.Torn + st.Lost + st.Orphans + st.Removed; len(got) < calls && told == 0 {
			t.Errorf("seed %d, round %d: %d calls are missing without a report: %+v", seed, round, calls-len(got), st)
		}
		if hit < len(names)-1 && !slices.Contains(got, calls-1) {
			t.Errorf("seed %d, round %d: nothing is read behind the damage of segment %d: %+v", seed, round, hit, st)
		}
	}
}

func damage(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	at := r.IntN(len(b))
	n := min(1+r.IntN(3000), len(b)-at)
	switch r.IntN(7) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
	case 1:
		for i := at; i < at+n; i++ {
			b[i] = byte(r.Uint32())
		}
	case 2:
		clear(b[at : at+n])
	case 3: // truncated
		b = b[:at]
	case 4: // a part is missing
		b = slices.Delete(b, at, at+n)
	case 5: // a part is duplicated
		b = slices.Insert(b, at, bytes.Clone(b[at:at+n])...)
	case 6: // other bytes follow
		b = append(b, "\xffRL\xfe and so on"...)
	}
	return b
}
