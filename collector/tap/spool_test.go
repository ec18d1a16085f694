package tap_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		if os.Getenv(helperLimited) != "" {
			limited(dir)
		} else {
			write(dir)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// call returns a call whose tokens all follow from n.
func call(n int) *tap.Call {
	c := &tap.Call{
		Began: time.Unix(1_800_000_000, int64(n)).UTC(), Ended: time.Unix(1_800_000_001, int64(n)).UTC(),
		Engine: "http://127.0.0.1:30000", Dialect: "sglang", Status: 200, Finish: "stop", Matched: 7,
		PromptTokens: 300, OutputTokens: 20, Cached: -1,
	}
	for i := range 300 {
		id := i * 31
		if i > 200 {
			id = n + i
		}
		c.Prompt = append(c.Prompt, int32(id))
	}
	for i := range 20 {
		c.Output = append(c.Output, int32(n*7+i))
		c.Logprobs = append(c.Logprobs, -float32(n+i)/3)
	}
	return c
}

// number returns the n of call(n), or -1 if c is another call.
func number(c *tap.Call) int {
	n := c.Ended.Nanosecond()
	want := call(n)
	if !slices.Equal(c.Prompt, want.Prompt) || !slices.Equal(c.Output, want.Output) || !slices.Equal(c.Logprobs, want.Logprobs) {
		return -1
	}
	return n
}

func open(tb testing.TB, cfg tap.SpoolConfig) *tap.Spool {
	tb.Helper()
	s, err := tap.OpenSpool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func shut(tb testing.TB, s *tap.Spool) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
}

func reader(tb testing.TB, where string) *tap.Reader {
	tb.Helper()
	r, err := tap.OpenReader(where, "")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

func take(tb testing.TB, r *tap.Reader, n int) (got []int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for range n {
		c, err := r.Next(ctx)
		if err != nil {
			tb.Fatalf("after %d calls: %v; %+v", len(got), err, r.Stats())
		}
		got = append(got, number(c))
	}
	return got
}

// last is the number of the call after all others: see rest.
const last = 999_999_999

// seal adds the last call to a spool that is not open.
func seal(tb testing.TB, dir string) {
	tb.Helper()
	s := open(tb, tap.SpoolConfig{Dir: dir})
	s.Add(call(last))
	shut(tb, s)
}

func segments(tb testing.TB, dir string) (all []int64) {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.tap"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		n, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".tap"), 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// rest returns the numbers of the calls before the last one.
func rest(tb testing.TB, r *tap.Reader) (got []int) {
	tb.Helper()
	for {
		n := take(tb, r, 1)[0]
		if n == last {
			return got
		}
		got = append(got, n)
	}
}

func numbers(from, to int) (list []int) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

// TestFollow proves that readers from the beginning, the middle and the end get each call once and
// in order, over many segments, while several goroutines write at full speed.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, tap.SpoolConfig{Dir: dir, SegmentBytes: 64 << 10, MaxBytes: 1 << 30})
	const calls = 3000
	var readers sync.WaitGroup
	for range 3 {
		r := reader(t, dir)
		readers.Go(func() {
			got := take(t, r, calls)
			slices.Sort(got)
			if !slices.Equal(got, numbers(0, calls)) {
				t.Errorf("%d calls, from %d to %d", len(got), got[0], got[len(got)-1])
			}
			if st := r.Stats(); st.Lost+st.Damaged+st.Orphans+st.Torn+st.Removed > 0 || st.Segments < 3 {
				t.Errorf("%+v", st)
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := w; n < calls; n += 4 {
				for !s.Add(call(n)) {
					time.Sleep(time.Millisecond) // the queue is full
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	shut(t, s)
	if st := s.Stats(); st.Written != calls || st.Errors != 0 || st.QueuedBytes != 0 || st.Syncs == 0 {
		t.Errorf("%+v", st)
	}
	if got := take(t, reader(t, dir), calls); slices.Contains(got, -1) {
		t.Error("a call that was not added")
	}
}

// TestRestart proves that a new process begins a new segment, and that readers continue into it.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var r *tap.Reader
	for i := range 4 {
		s := open(t, tap.SpoolConfig{Dir: dir})
		if _, err := tap.OpenSpool(tap.SpoolConfig{Dir: dir}); !errors.Is(err, tap.ErrLocked) {
			t.Errorf("opened twice: %v", err)
		}
		for n := range 10 {
			s.Add(call(10*i + n))
		}
		if r == nil {
			r = reader(t, dir)
		}
		if got := take(t, r, 10); !slices.Equal(got, numbers(10*i, 10*i+10)) {
			t.Errorf("process %d: %v", i, got)
		}
		shut(t, s)
		if s.Add(call(1)) || s.Stats().Lost != 1 {
			t.Error("a closed spool takes a call")
		}
	}
	if names := segmentFiles(t, dir); len(names) != 4 {
		t.Errorf("segments: %v", names)
	}
}

func segmentFiles(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tap") {
			names = append(names, filepath.Join(dir, f.Name()))
		}
	}
	return names
}

// TestHorizon proves that a Reader, of the folder or over HTTP, has returned all calls before its
// horizon.
func TestHorizon(t *testing.T) {
	t.Parallel()
	for _, overHTTP := range []bool{false, true} {
		where := t.TempDir()
		s := open(t, tap.SpoolConfig{Dir: where})
		if overHTTP {
			where = serve(t, s)
		}
		r := reader(t, where)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var latest atomic.Int64
		latest.Store(-1)
		var wg sync.WaitGroup
		wg.Go(func() {
			for c, err := r.Next(ctx); err == nil; c, err = r.Next(ctx) {
				latest.Store(int64(number(c)))
			}
		})
		for n := range 50 {
			s.Add(call(n))
			if err := r.Await(ctx, time.Now()); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			if latest.Load() != int64(n) {
				t.Errorf("the horizon has passed call %d, and %d is the last that came", n, latest.Load())
			}
		}
		if skew := r.Skew(); skew < 0 || skew > time.Minute {
			t.Errorf("skew %v of the same clock", skew)
		}
		cancel()
		wg.Wait()
	}
}

// TestHorizonOfTheIdle proves that the horizon moves without calls: for a tap that has not had any,
// that has ended, and that was killed.
func TestHorizonOfTheIdle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, tap.SpoolConfig{Dir: dir})
	await := func(what string, r *tap.Reader, torn int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = r.Next(ctx)
		}()
		if err := r.Await(ctx, time.Now()); err != nil || r.Stats().Torn != torn {
			t.Errorf("%s: %v, %+v", what, err, r.Stats())
		}
		cancel()
		<-ended
	}
	r := reader(t, dir)
	await("no call yet", r, 0)
	shut(t, s)
	await("ended", r, 0)
	await("ended, for a reader that comes later", reader(t, dir), 0)
	name := segmentFiles(t, dir)[0]
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, info.Size()-60); err != nil {
		t.Fatal(err)
	}
	await("killed", reader(t, dir), 1)
	open(t, tap.SpoolConfig{Dir: dir})
	await("started again", r, 0)
}

// TestSince proves that earlier calls are skipped, and earlier segments are not read.
func TestSince(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2 {
		s := open(t, tap.SpoolConfig{Dir: dir})
		s.Add(call(2 * i))
		s.Add(call(2*i + 1))
		shut(t, s)
	}
	// Segments that began in the same millisecond get the following numbers.
	since := time.Now()
	for newest := segments(t, dir)[1]; since.UnixMilli() < newest; since = time.Now() {
		runtime.Gosched()
	}
	s := open(t, tap.SpoolConfig{Dir: dir})
	s.Add(call(4))
	shut(t, s)
	seal(t, dir)
	r := reader(t, dir)
	r.Since(since)
	if got := rest(t, r); !slices.Equal(got, []int{4}) || r.Stats().Segments > 3 {
		t.Errorf("since the third: %v, %+v", got, r.Stats())
	}
	r = reader(t, dir)
	r.Since(since.Add(-time.Hour))
	if got := rest(t, r); !slices.Equal(got, numbers(0, 5)) {
		t.Errorf("since long ago: %v", got)
	}
}

// TestOpenReaderRefuses proves that OpenReader refuses other folders and newer segments.
func TestOpenReaderRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := tap.OpenReader(filepath.Join(dir, "gone"), ""); err == nil || !strings.Contains(err.Error(), "no such folder") {
		t.Errorf("a missing folder: %v", err)
	}
	if _, err := tap.OpenReader(dir, ""); err == nil || !strings.Contains(err.Error(), "is not the spool of a tap") {
		t.Errorf("another folder: %v", err)
	}
	s := open(t, tap.SpoolConfig{Dir: dir})
	s.Add(call(0))
	follower := reader(t, dir)
	take(t, follower, 1)
	shut(t, s)
	newer := filepath.Join(dir, fmt.Sprintf("%013d.tap", time.Now().Add(time.Minute).UnixMilli()))
	f, err := os.Create(newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := frame.NewWriter(f, frame.Header{Kind: "tap", Version: tap.Version + 1}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for name, err := range map[string]error{"OpenReader": second(tap.OpenReader(dir, "")), "Next": second(follower.Next(t.Context()))} {
		if !errors.Is(err, frame.ErrNewer) || !strings.Contains(err.Error(), "upgrade rollout") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
