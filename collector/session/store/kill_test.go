package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// The environment of the processes that tests start.
const (
	helperDir     = "ROLLOUT_TEST_SESSIONS_DIR"
	helperFirst   = "ROLLOUT_TEST_SESSIONS_FIRST"
	helperLimited = "ROLLOUT_TEST_SESSIONS_LIMITED"
)

// help runs in a process that a test starts.
func help(dir string) {
	if os.Getenv(helperLimited) != "" {
		limited(dir)
		return
	}
	if err := write(dir); err != nil {
		panic(err)
	}
}

// perSession is the number of calls in each session that write ends.
const perSession = 5

// write writes sessions until its standard input ends. It prints each step after it has succeeded:
// the key and the seed of the session, and the number of calls, or "end".
func write(dir string) error {
	s, err := store.Open(store.Config{Dir: dir, SyncEvery: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var mu sync.Mutex
	say := func(key session.Key, seed int, step any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, key, seed, step)
	}
	first, _ := strconv.Atoi(os.Getenv(helperFirst))
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for seed := first + i; ctx.Err() == nil && errs[i] == nil; seed += len(errs) {
				errs[i] = writeSession(s, seed, say)
			}
		})
	}
	all.Wait()
	for _, err := range append(errs, s.Close()) {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeSession(s *store.Store, seed int, say func(key session.Key, seed int, step any)) error {
	key, err := s.Begin(session.Head{})
	if err != nil {
		return err
	}
	say(key, seed, 0)
	x, err := s.Session(key)
	if err != nil {
		return err
	}
	for n := range perSession {
		a, err := x.Admit(nil)
		if err != nil {
			return err
		}
		r := conversation(seed, n)
		if err := r.addTo(a); err != nil {
			return err
		}
		a.Done()
		say(key, seed, n+1)
	}
	if _, err := x.End(context.Background(), session.End{Reward: new(float64(seed))}, false); err != nil {
		return err
	}
	say(key, seed, "end")
	return nil
}

// A told is what a process has printed about a session.
type told struct {
	seed, calls int
	ended       bool
}

// run starts a process that writes, kills it after a number of lines, and returns what it printed.
func run(t *testing.T, dir string, first, lines int) map[session.Key]told {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, helperFirst+"="+strconv.Itoa(first))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := map[session.Key]told{}
	out := bufio.NewScanner(stdout)
	for n := 0; out.Scan(); n++ {
		if n == lines {
			_ = cmd.Process.Kill()
		}
		var key session.Key
		var seed int
		var step string
		if _, err := fmt.Sscan(out.Text(), &key, &seed, &step); err != nil {
			continue // the process was killed while it printed
		}
		s := all[key]
		s.seed = seed
		if step == "end" {
			s.ended = true
		} else if n, err := strconv.Atoi(step); err == nil {
			s.calls = n
		}
		all[key] = s
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
	return all
}

// TestKill kills a writing process at random moments. Whatever the process has reported is in the
// store afterwards: each session, each call once and unchanged, and each end. The open sessions
// continue in the next process.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := 12
	if testing.Short() {
		kills = 3
	}
	dir := t.TempDir()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(32, seed))
	sealed, continued, calls := map[string]int{}, 0, 0
	undelivered := map[string]int{} // the call of each session whose delivery is not in the file
	for p := range kills {
		all := run(t, dir, 1_000_000*(p+1), 1+r.IntN(400))
		s := open(t, store.Config{Dir: dir})
		for key, told := range all {
			x := find(t, s, key)
			rec := read(t, s, x.ID())
			n := len(rec.Calls)
			if n < told.calls || n > told.calls+1 || told.ended && rec.End == nil {
				t.Fatalf("seed %d: the process reported %+v; the record has %d calls, end %v", seed, told, n, rec.End)
			}
			for i := range n {
				want := conversation(told.seed, i)
				if i == told.calls && want.call.Delivered && !rec.Calls[i].Delivered { // killed before Delivered
					want.call.Delivered = false
					undelivered[x.ID()] = i
				}
				same(t, rec, i, want)
			}
			calls += n
			if rec.End == nil { // continue the session
				for ; n < perSession; n++ {
					if got := add(t, x, conversation(told.seed, n)); got != n+1 {
						t.Fatalf("seed %d: the call %d has the number %d", seed, n+1, got)
					}
				}
				end(t, x, session.End{Reward: new(float64(told.seed))})
				continued++
			}
			sealed[x.ID()] = told.seed
		}
		if st := s.Stats(); st.Damaged > 0 || st.Errors > 0 {
			t.Fatalf("seed %d: %+v", seed, st)
		}
		shut(t, s)
	}
	s := open(t, store.Config{Dir: dir})
	entries, err := s.Sealed("")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		rec := read(t, s, e.ID)
		seed, ok := sealed[e.ID]
		if !ok { // killed before the process could report the session
			seed = int(*rec.End.Reward)
		}
		if len(rec.Calls) != perSession || *rec.End.Reward != float64(seed) || seen[e.ID] {
			t.Fatalf("session %s has %d calls, reward %v", e.ID, len(rec.Calls), *rec.End.Reward)
		}
		for i := range rec.Calls {
			want := conversation(seed, i)
			if lost, ok := undelivered[e.ID]; ok && lost == i {
				want.call.Delivered = false
			}
			same(t, rec, i, want)
		}
		seen[e.ID] = true
	}
	for id := range sealed {
		if !seen[id] {
			t.Errorf("session %s is missing", id)
		}
	}
	t.Logf("%d sessions, %d calls before the kills, %d sessions continued", len(entries), calls, continued)
}
