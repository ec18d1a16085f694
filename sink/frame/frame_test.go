package frame_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink/frame"
)

var header = frame.Header{Kind: "test", Version: 3}

// file returns a file of batches with a sync after each, and the offset of each frame.
func file(tb testing.TB, batches ...[]string) (body []byte, at []int64) {
	tb.Helper()
	body, at, _ = marked(tb, true, batches...)
	return body, at
}

// marked is file with the offsets of the marks. If synced is false, the last batch is not synced.
func marked(tb testing.TB, synced bool, batches ...[]string) (body []byte, at, marks []int64) {
	tb.Helper()
	var buf bytes.Buffer
	w := newWriter(tb, &buf, header)
	for i, batch := range batches {
		for _, payload := range batch {
			at = append(at, w.Size())
			must(tb, w.Write([]byte(payload)))
		}
		if i+1 == len(batches) && !synced {
			break
		}
		for range 2 { // the second one writes nothing
			before := w.Size()
			must(tb, w.Synced())
			if w.Size() > before {
				marks = append(marks, before)
			}
		}
	}
	if w.Size() != int64(buf.Len()) {
		tb.Errorf("Size() = %d, the file has %d bytes", w.Size(), buf.Len())
	}
	return buf.Bytes(), at, marks
}

// read returns all payloads and errors of a reader.
func read(tb testing.TB, body []byte) (payloads []string, damage []error) {
	tb.Helper()
	r := newReader(tb, bytes.NewReader(body), int64(len(body)), header)
	at, marks := int64(0), 0
	if len(body) > 0 {
		at = frame.HeaderSize
	}
	marksTo := func(offset int64) {
		for ; at < offset; at += frame.Overhead {
			marks++
		}
	}
	must(tb, frame.Salvage(r, func(payload []byte, err error) error {
		if err == nil {
			payloads = append(payloads, string(payload))
			at += frame.Overhead + int64(len(payload))
			marksTo(r.Offset())
			return nil
		}
		from, n := extent(tb, err)
		marksTo(from)
		if from != 0 && from != at || n < 1 {
			tb.Errorf("damage %v, after %d bytes", err, at)
		}
		at = from + n
		damage = append(damage, err)
		return nil
	}))
	marksTo(r.Offset())
	if at != int64(len(body)) || marks > bytes.Count(body, []byte("\xffRS\xfe")) {
		tb.Errorf("frames, damage and %d marks cover %d bytes of %d", marks, at, len(body))
	}
	return payloads, damage
}

func extent(tb testing.TB, err error) (from, n int64) {
	tb.Helper()
	if e, ok := errors.AsType[*frame.TornError](err); ok {
		return e.Offset, e.Bytes
	}
	e, ok := errors.AsType[*frame.CorruptError](err)
	if !ok {
		tb.Fatalf("%v is not damage", err)
	}
	return e.Offset, e.Bytes
}

func isTorn(err error) bool { _, ok := errors.AsType[*frame.TornError](err); return ok }

func flat(batches [][]string) (all []string) { return slices.Concat(batches...) }

// contents returns empty, text, frame-like and long payloads.
func contents(tb testing.TB) [][]string {
	tb.Helper()
	inner, _ := file(tb, []string{"a frame in a payload"})
	return [][]string{
		{"a", ""}, {"three", "\xffRL\xfe\x01\x00\x00\x00", string(inner)}, {strings.Repeat("l", 300)}, {"e", "end"},
	}
}

func TestReadBack(t *testing.T) {
	t.Parallel()
	for _, batches := range [][][]string{nil, {{""}}, contents(t), {{strings.Repeat("long", 100_000), "short"}, {"x"}}} {
		body, _ := file(t, batches...)
		got, damage := read(t, body)
		if !slices.Equal(got, flat(batches)) || len(damage) > 0 {
			t.Errorf("read %d payloads of %d, damage %v", len(got), len(flat(batches)), damage)
		}
	}
}

// TestCutAtEveryByte tests that a file cut at any byte has whole frames and a torn end, never damage,
// and that Ended is true exactly for a file that a mark ends.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	batches := contents(t)
	body, at, marks := marked(t, true, batches...)
	ends := slices.Sorted(slices.Values(slices.Concat(at, marks)))
	for cut := range len(body) + 1 {
		whole := 0
		for i := range at {
			if end := at[i] + frame.Overhead + int64(len(flat(batches)[i])); int64(cut) >= end {
				whole++
			}
		}
		got, damage := read(t, body[:cut])
		if !slices.Equal(got, flat(batches)[:whole]) {
			t.Errorf("cut at %d: %d payloads, want %d", cut, len(got), whole)
		}
		r := newReader(t, bytes.NewReader(body[:cut]), int64(cut), header)
		must(t, frame.Salvage(r, func([]byte, error) error { return nil }))
		if want := slices.Contains(marks, int64(cut-frame.Overhead)); r.Ended() != want {
			t.Errorf("cut at %d: Ended is %t, want %t", cut, r.Ended(), want)
		}
		clean := cut == 0 || cut == frame.HeaderSize || cut == len(body) || slices.Contains(ends, int64(cut))
		if clean != (len(damage) == 0) || len(damage) > 1 || len(damage) == 1 && !isTorn(damage[0]) {
			t.Errorf("cut at %d: damage %v, clean is %t", cut, damage, clean)
		}
	}
}

// TestFlipEveryBit tests that a flipped bit loses only its own frame and is reported as damage, even if
// no sync vouches for the frame: a stop changes no bit. The exception is a length that leads past the
// end of an unsynced frame, which looks torn.
func TestFlipEveryBit(t *testing.T) {
	t.Parallel()
	batches := contents(t)
	all := flat(batches)
	for _, synced := range []bool{true, false} {
		body, at, marks := marked(t, synced, batches...)
		for bit := range len(body) * 8 {
			flipped := bytes.Clone(body)
			flipped[bit/8] ^= 1 << (bit % 8)
			hit, offset := -1, int64(0) // the header
			for i := range at {
				if int64(bit/8) >= at[i] {
					hit, offset = i, at[i]
				}
			}
			want := slices.Clone(all)
			for _, m := range marks {
				if int64(bit/8) >= m && int64(bit/8) < m+frame.Overhead {
					hit, offset = -1, m
				}
			}
			if hit >= 0 {
				want = slices.Delete(want, hit, hit+1)
			}
			length := offset > 0 && int64(bit/8) >= offset+4 && int64(bit/8) < offset+8
			vouched := len(marks) > 0 && offset < marks[len(marks)-1]
			mayTear := length && !vouched && (hit == len(all)-1 || hit < 0)
			got, damage := read(t, flipped)
			if !slices.Equal(got, want) {
				t.Fatalf("bit %d of frame %d: read %q, want %q", bit, hit, got, want)
			}
			if len(damage) != 1 || isTorn(damage[0]) && !mayTear {
				t.Fatalf("bit %d of frame %d, synced %t: damage %v, want one that is loud", bit, hit, synced, damage)
			}
			if from, _ := extent(t, damage[0]); from != offset {
				t.Fatalf("bit %d of frame %d: damage at %d, want %d", bit, hit, from, offset)
			}
		}
	}
}

// TestSectorsNotWritten tests that a power failure can lose a whole unsynced sector and keep the bytes
// after it, but that a lost synced sector is damage.
func TestSectorsNotWritten(t *testing.T) {
	t.Parallel()
	long := []string{strings.Repeat("a", 700), strings.Repeat("b", 2000), strings.Repeat("c", 90)}
	body, at, _ := marked(t, false, []string{"first"}, long)
	for sector := 0; sector*512 < len(body); sector++ {
		lost := bytes.Clone(body)
		from := max(sector*512, int(at[1]))
		clear(lost[from:min((sector+1)*512, len(lost))])
		got, damage := read(t, lost)
		if len(damage) == 0 || len(got)+2 < 4-len(damage) || got[0] != "first" {
			t.Errorf("sector %d: %d payloads, damage %v", sector, len(got), damage)
		}
		for _, d := range damage {
			if !isTorn(d) {
				t.Errorf("sector %d: %v, want torn", sector, d)
			}
		}
	}
	body, _, _ = marked(t, true, []string{"first"}, long)
	clear(body[1024:1536])
	if _, damage := read(t, body); len(damage) != 1 || isTorn(damage[0]) {
		t.Errorf("a synced sector: damage %v, want an error", damage)
	}
}

// TestNumber tests that a renamed file is reported and its frames are still read.
func TestNumber(t *testing.T) {
	t.Parallel()
	numbered := frame.Header{Kind: "test", Version: 3, Number: 7}
	var buf bytes.Buffer
	w := newWriter(t, &buf, numbered)
	must(t, errors.Join(w.Write([]byte("a")), w.Synced()))
	for _, want := range []uint64{0, 7, 8} {
		r := newReader(t, bytes.NewReader(buf.Bytes()), int64(buf.Len()), frame.Header{Kind: "test", Version: 3, Number: want})
		if r.Header() != numbered {
			t.Fatalf("%+v", r.Header())
		}
		n, damage := 0, error(nil)
		must(t, frame.Salvage(r, func(_ []byte, err error) error {
			if err != nil {
				damage = err
			} else {
				n++
			}
			return nil
		}))
		_, loud := errors.AsType[*frame.CorruptError](damage)
		if n != 1 || loud != (want == 8) || !r.Ended() {
			t.Errorf("read as number %d: %d frames, %v, ended %t", want, n, damage, r.Ended())
		}
	}
}

// TestTails tests that appended zeros are torn, because the length was durable before the content, and
// that other bytes that are not the start of a frame are damage.
func TestTails(t *testing.T) {
	t.Parallel()
	batches := contents(t)
	body, at := file(t, batches...)
	zeros := func(n int) string { return string(make([]byte, n)) }
	for _, tail := range []string{
		"x", "\xffR?", "hello, world: this is no frame", "\xffRL\xfe but no frame, and longer than one",
		zeros(1), zeros(19), zeros(20), zeros(4096), zeros(200_000),
	} {
		got, damage := read(t, append(bytes.Clone(body), tail...))
		zero, start := tail[0] == 0, strings.HasPrefix(tail, "\xffRL\xfe") // which can be torn
		if !slices.Equal(got, flat(batches)) || len(damage) != 1 || isTorn(damage[0]) != zero && !start {
			t.Errorf("%d bytes %.9q: %d payloads, damage %v", len(tail), tail, len(got), damage)
		}
	}
	zeroed := bytes.Clone(body)
	clear(zeroed[at[len(at)-1]:]) // including the mark
	got, damage := read(t, zeroed)
	if len(got) != len(at)-1 || len(damage) != 1 || !isTorn(damage[0]) {
		t.Errorf("zeros instead of the last frame: %d payloads, damage %v", len(got), damage)
	}
	unsynced, _, _ := marked(t, false, []string{"a", "b"})
	clear(unsynced[:frame.HeaderSize]) // the header can be torn before the first sync
	got, damage = read(t, unsynced)
	if !slices.Equal(got, []string{"a", "b"}) || len(damage) != 1 || !isTorn(damage[0]) {
		t.Errorf("zeros instead of the header: %q, damage %v", got, damage)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	body, _ := file(t, []string{"a"})
	framing := bytes.Clone(body)
	binary.LittleEndian.PutUint16(framing[16:], frame.Version+1)
	binary.LittleEndian.PutUint32(framing[28:], crc32.Checksum(framing[:28], crc32.MakeTable(crc32.Castagnoli)))
	for _, tt := range []struct {
		name string
		body []byte
		want frame.Header
		err  error
		text string
	}{
		{"newer kind", body, frame.Header{Kind: "test", Version: 2}, frame.ErrNewer, "version 3"},
		{"older kind", body, frame.Header{Kind: "test", Version: 9}, frame.ErrNewer, "version 3"},
		{"another framing", framing, header, frame.ErrNewer, "framing version 2"},
		{"another kind", body, frame.Header{Kind: "journal", Version: 3}, nil, `kind "test", want "journal"`},
	} {
		_, err := frame.NewReader(bytes.NewReader(tt.body), int64(len(tt.body)), tt.want)
		if err == nil || tt.err != nil && !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, h := range []frame.Header{{Version: 1}, {Kind: "too long a kind", Version: 1}, {Kind: "test"}} {
		if _, err := frame.NewWriter(io.Discard, h); err == nil {
			t.Errorf("NewWriter took %+v", h)
		}
	}
}

// brokenWriter accepts some bytes and then fails once.
type brokenWriter struct{ left int }

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		b.left = 1 << 20
		return len(p) / 2, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestWriteError tests that a failed Writer writes nothing more, because half a frame would remain.
func TestWriteError(t *testing.T) {
	t.Parallel()
	w := newWriter(t, &brokenWriter{left: frame.HeaderSize + 50}, header)
	for i, want := range []error{nil, io.ErrClosedPipe, io.ErrClosedPipe} {
		if err := w.Write(make([]byte, 20)); !errors.Is(err, want) {
			t.Errorf("Write %d = %v, want %v", i, err, want)
		}
	}
}

// TestReadError tests that a truncated or unreadable file is not reported as damage.
func TestReadError(t *testing.T) {
	t.Parallel()
	body, _ := file(t, []string{strings.Repeat("x", 1000)})
	r, err := frame.NewReader(bytes.NewReader(body[:500]), int64(len(body)), header)
	if err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want io.ErrUnexpectedEOF", err)
	}
}

func FuzzFrame(f *testing.F) {
	body, _ := file(f, contents(f)...)
	f.Add(body, uint16(0), byte(0))
	f.Add(body, uint16(40), byte(1))
	f.Add(body[:50], uint16(20), byte(0x80))
	f.Add([]byte("\xffRL\xfe"), uint16(2), byte(2))
	f.Fuzz(func(t *testing.T, body []byte, at uint16, flip byte) {
		if len(body) > 0 {
			body = bytes.Clone(body)
			body[int(at)%len(body)] ^= flip
		}
		if _, err := frame.NewReader(bytes.NewReader(body), int64(len(body)), header); err != nil {
			return
		}
		payloads, _ := read(t, body) // also checks that each byte is reported once
		var again bytes.Buffer
		w := newWriter(t, &again, header)
		for _, p := range payloads {
			must(t, w.Write([]byte(p)))
		}
		if got, damage := read(t, again.Bytes()); !slices.Equal(got, payloads) || len(damage) > 0 {
			t.Errorf("salvaged %q, want %q, damage %v", got, payloads, damage)
		}
	})
}

// TestGateAllocs tests that writing and reading a frame does not allocate.
func TestGateAllocs(t *testing.T) {
	payload := make([]byte, 5000)
	w := newWriter(t, io.Discard, header)
	if n := testing.AllocsPerRun(100, func() {
		must(t, w.Write(payload))
		must(t, w.Synced())
	}); n > 0 {
		t.Errorf("%.1f allocations per frame written, want 0", n)
	}
	body, _ := file(t, slices.Repeat([]string{string(payload)}, 200))
	r := newReader(t, bytes.NewReader(body), int64(len(body)), header)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%.1f allocations per frame read, want 0", n)
	}
}

func BenchmarkRead(b *testing.B) {
	body, _ := file(b, slices.Repeat([]string{strings.Repeat("x", 80_000)}, 100))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := newReader(b, bytes.NewReader(body), int64(len(body)), header)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}

// TestAt tests that At reads the frame at its offset, and no other.
func TestAt(t *testing.T) {
	var file bytes.Buffer
	w := newWriter(t, &file, header)
	var at []int64
	payloads := [][]byte{[]byte("one"), bytes.Repeat([]byte("two"), 50_000), nil}
	for _, p := range payloads {
		at = append(at, w.Size())
		must(t, errors.Join(w.Write(p), w.Synced()))
	}
	var buf []byte
	for _, i := range []int{1, 0, 2, 1} {
		var got []byte
		var err error
		if got, buf, err = frame.At(bytes.NewReader(file.Bytes()), at[i], frame.Overhead+int64(len(payloads[i])), buf); err != nil || !bytes.Equal(got, payloads[i]) {
			t.Errorf("At(%d) = %d bytes, %v", i, len(got), err)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		_, buf, _ = frame.At(bytes.NewReader(file.Bytes()), at[1], frame.Overhead+150_000, buf)
	}); n > 3 {
		t.Errorf("%.0f allocations", n)
	}
	bad := bytes.Clone(file.Bytes())
	bad[at[0]+frame.Overhead] ^= 1
	for _, tt := range []struct {
		name  string
		body  []byte
		at, n int64
	}{
		{"a bit", bad, at[0], frame.Overhead + 3},
		{"between frames", file.Bytes(), at[0] + 1, frame.Overhead + 3},
		{"a shorter one", file.Bytes(), at[0], frame.Overhead + 2},
		{"a longer one", file.Bytes(), at[0], frame.Overhead + 4},
		{"a mark", file.Bytes(), at[0] + frame.Overhead + 3, frame.Overhead},
	} {
		_, _, err := frame.At(bytes.NewReader(tt.body), tt.at, tt.n, nil)
		if corrupt, ok := errors.AsType[*frame.CorruptError](err); !ok || corrupt.Offset != tt.at {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, _, err := frame.At(bytes.NewReader(file.Bytes()), int64(file.Len()), frame.Overhead, nil); err == nil {
		t.Error("a frame behind the end")
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func newWriter(tb testing.TB, to io.Writer, h frame.Header) *frame.Writer {
	tb.Helper()
	w, err := frame.NewWriter(to, h)
	must(tb, err)
	return w
}

func newReader(tb testing.TB, from io.ReaderAt, size int64, h frame.Header) *frame.Reader {
	tb.Helper()
	r, err := frame.NewReader(from, size, h)
	must(tb, err)
	return r
}
