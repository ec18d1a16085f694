package mapped_test

import (
	"cmp"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink/mapped"
)

type key [20]byte

// keys returns n keys in order, with the even numbers.
func keys(n int) []key {
	list := make([]key, n)
	for i := range list {
		binary.BigEndian.PutUint64(list[i][:], uint64(2*i))
		list[i][19] = byte(i)
	}
	return list
}

func number(k *key) uint64 { return binary.BigEndian.Uint64(k[:]) }

// check tests that s has every key and no others.
func check(t *testing.T, s *mapped.Sorted[key], n int) {
	t.Helper()
	if s.Len() != n {
		t.Fatalf("Len() = %d, want %d", s.Len(), n)
	}
	for i := range uint64(2*n + 1) {
		k, ok := s.Search(func(k *key) int { return cmp.Compare(number(k), i) })
		if want := i%2 == 0 && i < uint64(2*n); ok != want || ok && (number(&k) != i || k[19] != byte(i/2)) {
			t.Fatalf("Search(%d) = %v, %v", i, k, ok)
		}
	}
	next := uint64(0)
	s.Each(func(k *key) {
		if number(k) != next {
			t.Fatalf("Each yields %d, want %d", number(k), next)
		}
		next += 2
	})
}

func TestSorted(t *testing.T) {
	t.Parallel()
	var none *mapped.Sorted[key]
	check(t, none, 0)
	many := mapped.SpillBytes/20 + 2
	for _, tt := range []struct {
		name   string
		dir    string
		n      int
		mapped bool
	}{
		{"none", t.TempDir(), 0, false},
		{"few", t.TempDir(), 1000, false},
		{"the most in the heap", t.TempDir(), mapped.SpillBytes / 20, false},
		{"many", t.TempDir(), many, mapped.CanMap},
		{"many, and nowhere to write", filepath.Join(t.TempDir(), "gone"), many, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mapped.New(tt.dir, keys(tt.n))
			if s.Mapped() != tt.mapped {
				t.Errorf("Mapped() = %v, want %v", s.Mapped(), tt.mapped)
			}
			check(t, s, tt.n)
			if left, _ := os.ReadDir(tt.dir); len(left) > 0 {
				t.Errorf("%s is in the folder", left[0].Name())
			}
		})
	}
}

// TestGateMapped tests that a mapped list is not in the heap, and that its mapping ends with it.
func TestGateMapped(t *testing.T) {
	if !mapped.CanMap {
		t.Skip("lists are mapped on Linux only, and with package unsafe")
	}
	const n = 1 << 20
	dir := t.TempDir()
	before := heap()
	s := mapped.New(dir, keys(n))
	if grown := heap() - before; grown > n {
		t.Errorf("the heap grew by %d bytes for %d keys", grown, n)
	}
	if maps(t, dir) != 1 {
		t.Errorf("%d mappings, want 1", maps(t, dir))
	}
	if _, ok := s.Search(func(k *key) int { return cmp.Compare(number(k), 2*(n-1)) }); !ok {
		t.Error("the last key is not found")
	}
	s = nil
	for range 100 {
		if heap(); maps(t, dir) == 0 { // a cleanup runs some time after the collection
			return
		}
		runtime.Gosched()
	}
	t.Error("the mapping is still there")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// maps counts the mappings of files in dir.
func maps(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), dir+"/")
}
