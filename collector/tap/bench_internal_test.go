package tap

import (
	"context"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// sideBySide returns the calls of parallel chains of 8 calls each. A first prompt has 4,000 tokens,
// of which all chains share 3,000. An output has 100 tokens, a tool result 150.
func sideBySide(chains int) []*Call {
	r := rand.New(rand.NewPCG(14, 9))
	system := randomIDs(r, 3000)
	all := make([][]*Call, chains)
	for i := range all {
		first := append(append([]int32{}, system...), randomIDs(r, 940)...)
		all[i] = chain(r, first, 8, 100, 150, false)
	}
	var calls []*Call
	for step := range 8 {
		for i := range all {
			calls = append(calls, all[i][step])
		}
	}
	return calls
}

func BenchmarkEncode(b *testing.B) {
	for name, calls := range map[string][]*Call{"tokens=4k/chains=100": sideBySide(100)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var enc encoder
			var buf []byte
			n, bytes := 0, 0
			for b.Loop() {
				if n%len(calls) == 0 {
					enc = encoder{}
				}
				buf = enc.append(buf[:0], entryOf(calls[n%len(calls)]), 0)
				bytes += len(buf)
				n++
			}
			b.ReportMetric(float64(bytes)/float64(n), "bytes/call")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	calls := sideBySide(100)
	var enc encoder
	var payloads [][]byte
	for _, c := range calls {
		payloads = append(payloads, enc.append(nil, entryOf(c), 0))
	}
	b.Run("tokens=4k/chains=100", func(b *testing.B) {
		b.ReportAllocs()
		var dec decoder
		for n := 0; b.Loop(); n++ {
			if n%len(calls) == 0 {
				dec = decoder{}
			}
			if _, _, err := dec.decode(payloads[n%len(calls)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSpool measures the whole path: Add, the file, Next.
func BenchmarkSpool(b *testing.B) {
	calls := sideBySide(100)
	s, err := OpenSpool(SpoolConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r, err := OpenReader(s.cfg.Dir, "")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	n, read := 0, 0
	began := cpu()
	for b.Loop() {
		if n%len(calls) == 0 { // start other chains
			for _, c := range calls {
				c.Prompt[3000] = int32(n)
			}
		}
		for !s.Add(calls[n%len(calls)]) {
			if _, err := r.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
			read++
		}
		n++
	}
	for ; read < n; read++ {
		if _, err := r.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.Stats().WrittenBytes)/float64(n), "bytes/call")
	b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(n), "cpu-ns/call")
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestGateMemory proves that a thousand chains of 10,000 tokens, with five calls each, take no more
// memory than the windows of both sides.
func TestGateMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute under the race detector")
	}
	r := rand.New(rand.NewPCG(14, 10))
	system := randomIDs(r, 2000)
	before := held()
	var enc encoder
	var dec decoder
	var buf []byte
	chains := make([][]int32, 1000)
	for step := range 5 {
		for i := range chains {
			if step == 0 {
				chains[i] = append(append([]int32{}, system...), randomIDs(r, 7000)...)
			}
			c := &Call{Prompt: chains[i], Output: randomIDs(r, 100)}
			buf = enc.append(buf[:0], entryOf(c), 0)
			got, _, err := dec.decode(buf)
			if err != nil || len(got.Prompt) != len(c.Prompt) {
				t.Fatal(err)
			}
			chains[i] = append(append(chains[i], c.Output...), randomIDs(r, 150)...)
		}
	}
	input := int64(0)
	for i := range chains {
		input += 4 * int64(cap(chains[i]))
	}
	both := held() - before - input
	t.Logf("encoder and decoder of a thousand chains: %d MiB", both>>20)
	if most := int64(2*windowTokens*3*5/4 + 8<<20); both > most {
		t.Errorf("encoder and decoder have %d bytes, at most %d are right", both, most)
	}
	runtime.KeepAlive(&enc)
	runtime.KeepAlive(&dec)
	runtime.KeepAlive(chains)
}

// TestGateQueue proves that unwritten calls take no more memory than the queue.
func TestGateQueue(t *testing.T) {
	calls := sideBySide(4)
	const most = 16 << 20
	s := &Spool{cfg: SpoolConfig{QueueBytes: most}.withDefaults(), wake: make(chan struct{}, 1)} // without a writer
	before := held()
	taken := 0
	for n := 0; ; n++ {
		if !s.Add(calls[n%len(calls)]) {
			break
		}
		taken++
	}
	if got := held() - before; got > most*11/10 || got < most/2 {
		t.Errorf("%d calls take %d bytes, the queue has %d", taken, got, most)
	}
	allocs := testing.AllocsPerRun(100, func() { s.Add(calls[0]) })
	if allocs > 0 {
		t.Errorf("a call that is dropped costs %v allocations", allocs)
	}
	if s.Stats().Full < 100 {
		t.Errorf("%+v", s.Stats())
	}
}

// TestGateShown proves that a reader of the folder sees a call without a sync.
func TestGateShown(t *testing.T) {
	s, err := OpenSpool(SpoolConfig{Dir: t.TempDir(), SyncEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := OpenReader(s.cfg.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	calls := sideBySide(1)
	var total time.Duration
	for _, c := range calls {
		began := time.Now()
		s.Add(c)
		if _, err := r.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
		total += time.Since(began)
	}
	t.Logf("%v from Add to Next", total/time.Duration(len(calls)))
}
