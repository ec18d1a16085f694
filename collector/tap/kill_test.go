package tap_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// The environment of the process that TestKill kills.
const (
	helperDir   = "ROLLOUT_TEST_TAP_DIR"
	helperFirst = "ROLLOUT_TEST_TAP_FIRST"
)

// write runs in the process that TestKill kills. It adds calls from a number on, and prints each
// number after adding its call. It returns when its standard input ends.
func write(dir string) {
	s, err := tap.OpenSpool(tap.SpoolConfig{Dir: dir, SegmentBytes: 64 << 10})
	if err != nil {
		panic(err)
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	n, _ := strconv.Atoi(os.Getenv(helperFirst))
	out := bufio.NewWriter(os.Stdout)
	for ; ; n++ {
		select {
		case <-stop:
			if err := s.Close(); err != nil {
				panic(err)
			}
			_ = out.Flush()
			return
		default:
		}
		if s.Add(call(n)) {
			fmt.Fprintln(out, n)
		} else {
			n--
		}
		if n%16 == 0 {
			_ = out.Flush()
		}
	}
}

const apart = 10_000_000

// TestKill kills a tap at random moments and restarts it. For each process a reader gets a prefix
// of the added calls, in order, each once and unchanged. For a process that ended normally it gets
// all. A reader that followed gets the same calls as a later one.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := 12
	if testing.Short() {
		kills = 3
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(14, uint64(time.Now().UnixNano())))
	var follower *tap.Reader
	var followed []int
	said := 0
	for p := range kills + 1 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), helperDir+"="+dir, helperFirst+"="+strconv.Itoa(p*apart))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for until := r.IntN(2000); until > 0 && lines.Scan(); until-- {
			if said, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		if follower == nil {
			follower = reader(t, dir)
		}
		if p < kills {
			_ = cmd.Process.Kill()
		} else {
			stdin.Close()
		}
		for lines.Scan() {
			said, _ = strconv.Atoi(lines.Text())
		}
		if err := cmd.Wait(); p == kills && err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Millisecond)
		for {
			c, err := follower.Next(ctx)
			if err != nil {
				break
			}
			followed = append(followed, number(c))
		}
		cancel()
	}
	seal(t, dir)
	followed = append(followed, rest(t, follower)...)
	later := reader(t, dir)
	if got := rest(t, later); !slices.Equal(got, followed) {
		t.Errorf("a later reader has %d calls, the one that followed %d", len(got), len(followed))
	}
	next, processes := followed[0]/apart*apart, 0
	for i, n := range followed {
		if i > 0 && n/apart != followed[i-1]/apart {
			next = n / apart * apart
			processes++
		}
		if n != next {
			t.Fatalf("call %d is %d, want %d", i, n, next)
		}
		next++
	}
	if end := followed[len(followed)-1]; end != said {
		t.Errorf("the last process ended in order after call %d, and call %d is the last", said, end)
	}
	if st := follower.Stats(); st.Damaged+st.Lost+st.Orphans+st.Dropped+st.Removed+st.Errors > 0 || st.Torn < int64(processes)-1 {
		t.Errorf("%d processes: %+v", processes, st)
	}
	t.Logf("%d calls of %d processes, %d torn", len(followed), processes+1, follower.Stats().Torn)
}
