package tap_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestOutage proves that calls wait while the folder is not writable. Once the queue is full, calls
// are dropped and counted, also for readers. Later all queued calls are written in order, each
// once.
func TestOutage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	var log lockedBuffer
	s := open(t, tap.SpoolConfig{Dir: dir, SegmentBytes: 4 << 10, MaxBytes: 1 << 30, QueueBytes: 100 << 10, Log: slog.New(slog.NewTextHandler(&log, nil))})
	var taken []int
	n := 0
	add := func() bool {
		n++
		if s.Add(call(n)) {
			taken = append(taken, n)
			return true
		}
		return false
	}
	for range 20 {
		add()
	}
	r := reader(t, dir)
	got := take(t, r, 20)
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o666); err != nil { // blocks creating the folder
		t.Fatal(err)
	}
	// The open segment can still be written, until it is full.
	for dropped := 0; dropped < 10; {
		if !add() {
			if s.Stats().Err == nil {
				time.Sleep(time.Millisecond) // the writer is behind
				continue
			}
			dropped++
		}
	}
	st := s.Stats()
	if st.Full < 10 || st.Errors == 0 || st.QueuedBytes > 100<<10 {
		t.Errorf("in the outage: %+v", st)
	}
	if err := errorsOf(os.Remove(dir), os.Rename(away, dir)); err != nil {
		t.Fatal(err)
	}
	got = append(got, take(t, r, len(taken)-20)...)
	for !add() {
		time.Sleep(time.Millisecond) // a write makes room
	}
	got = append(got, take(t, r, 1)...)
	shut(t, s)
	if !slices.Equal(got, taken) {
		t.Errorf("%d calls were accepted, %d are read", len(taken), len(got))
	}
	st = s.Stats()
	if st.Written != int64(len(taken)) || st.Full != int64(n-len(taken)) || st.Err != nil || st.Lost != 0 {
		t.Errorf("after the outage: %+v", st)
	}
	if rs := r.Stats(); rs.Dropped != st.Full || rs.Damaged+rs.Lost+rs.Orphans > 0 {
		t.Errorf("the reader: %+v, %d were dropped", rs, st.Full)
	}
	if text := log.String(); strings.Count(text, "cannot write to the spool") != 1 || strings.Count(text, "is writable again") != 1 {
		t.Errorf("log:\n%s", text)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// helperLimited makes the helper process write with a file size limit.
const helperLimited = "ROLLOUT_TEST_TAP_LIMITED"

// limited adds calls while every segment fails in the middle of a frame.
func limited(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 20_001, Max: 20_001}
	s, err := tap.OpenSpool(tap.SpoolConfig{Dir: dir, SyncEvery: time.Millisecond})
	if err = errorsOf(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	for n := range 100 {
		s.Add(call(n))
	}
	for st := s.Stats(); st.Written < 100; st = s.Stats() {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(os.Stdout, s.Close(), s.Stats().Errors)
}

// TestTornWrites proves that a write failing within a frame neither loses nor duplicates a call.
func TestTornWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, helperLimited+"=1")
	out, err := cmd.CombinedOutput()
	if line, _, _ := bufio.NewReader(bytes.NewReader(out)).ReadLine(); err != nil || !strings.HasPrefix(string(line), "<nil> ") || string(line) == "<nil> 0" {
		t.Fatalf("%v: %s", err, out)
	}
	seal(t, dir)
	r := reader(t, dir)
	if got := rest(t, r); !slices.Equal(got, numbers(0, 100)) {
		t.Errorf("%d calls: %v", len(got), got)
	}
	if st := r.Stats(); st.Torn == 0 || st.Damaged+st.Lost+st.Orphans+st.Removed > 0 {
		t.Errorf("%+v", st)
	}
}

// TestRetention proves that the oldest segments are removed if there are too many bytes, or if they
// are too old, but never the open one. A reader that was too slow counts them.
func TestRetention(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 64 << 10
	s := open(t, tap.SpoolConfig{Dir: dir, SegmentBytes: 8 << 10, MaxBytes: most})
	s.Add(call(0))
	slow := reader(t, dir)
	take(t, slow, 1)
	for n := 1; n < 1000; n++ {
		for !s.Add(call(n)) {
			time.Sleep(time.Millisecond)
		}
	}
	shut(t, s)
	var bytes int64
	for _, name := range segmentFiles(t, dir) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	if st := s.Stats(); bytes > most || bytes < most/2 || st.Removed == 0 || st.SegmentBytes != bytes {
		t.Errorf("%d bytes are left, %+v", bytes, st)
	}
	seal(t, dir)
	got := rest(t, slow)
	if len(got) == 0 || got[len(got)-1] != 999 || !slices.IsSorted(got) || slow.Stats().Removed == 0 {
		t.Errorf("the slow reader has %d calls, %+v", len(got), slow.Stats())
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range segmentFiles(t, dir) {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, tap.SpoolConfig{Dir: dir, MaxAge: 30 * time.Minute})
	shut(t, s)
	if names := segmentFiles(t, dir); len(names) > 1 {
		t.Errorf("old segments: %v", names)
	}
	if st := s.Stats(); st.Removed == 0 {
		t.Errorf("%+v", st)
	}
}

// TestTooLong proves that a call too long for a segment is dropped, and that readers count it.
func TestTooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, tap.SpoolConfig{Dir: dir, QueueBytes: 1 << 30})
	if s.Add(&tap.Call{Prompt: make([]int32, 14<<20)}) {
		t.Error("a call of 14 million tokens was accepted")
	}
	s.Add(call(1))
	r := reader(t, dir)
	take(t, r, 1)
	if st, rs := s.Stats(), r.Stats(); st.TooLong != 1 || rs.Dropped != 1 {
		t.Errorf("%+v, %+v", st, rs)
	}
}

// TestValidate proves that every error names its setting.
func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := tap.OpenSpool(tap.SpoolConfig{SegmentBytes: 1, MaxBytes: 1, MaxAge: -1, QueueBytes: -1, SyncEvery: -1})
	for _, want := range []string{"dir: ", "segment_bytes: 1", "max_bytes: 1", "max_age: ", "queue_bytes: -1", "sync_every: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
