package store_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// limited writes a session while the system refuses files above a size, as a full disk does. Then it
// raises the limit and continues the session.
func limited(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	limit := func(n uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: 1 << 40})
	}
	added, refused := 0, 0
	fill := func(key session.Key) error {
		x, err := s.Session(key)
		for n := 0; err == nil && n < 25; n++ {
			a, admitErr := x.Admit(nil)
			if err = admitErr; err != nil {
				return err
			}
			r := conversation(1, added)
			addErr := a.Add(&r.call, r.messages, r.tools)
			if addErr == nil {
				added++
			} else if refused++; !strings.Contains(addErr.Error(), dir) {
				err = fmt.Errorf("the error does not name the folder: %w", addErr)
			}
			if x.Refused() != addErr {
				err = fmt.Errorf("Refused returned %w after %w", x.Refused(), addErr)
			}
			a.Done()
		}
		return err
	}
	key, beginErr := s.Begin(session.Head{})
	x, findErr := s.Session(key)
	errs := []error{beginErr, findErr}
	for _, n := range []uint64{4_001, 8_001, 12_001} {
		errs = append(errs, limit(n), fill(key))
		info, err := os.Stat(filepath.Join(dir, "open", x.ID()+".session"))
		if errs = append(errs, err); err == nil && uint64(info.Size()) == n {
			fmt.Fprintln(os.Stdout, "a part of a call is left in the file")
			return
		}
	}
	for _, err := range errs {
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			return
		}
	}
	big := session.End{FinalText: new(strings.Repeat("a", 30_000))}
	if _, err := x.End(context.Background(), big, false); err == nil {
		fmt.Fprintln(os.Stdout, "the end was written")
		return
	}
	if err := limit(10); err == nil {
		if _, err = s.Begin(session.Head{}); err == nil {
			fmt.Fprintln(os.Stdout, "a session began on a full disk")
			return
		}
	}
	if files, err := os.ReadDir(filepath.Join(dir, "open")); err != nil || len(files) != 1 {
		fmt.Fprintln(os.Stdout, "files are left in open:", files, err)
		return
	}
	if s.Stats().Err == nil {
		fmt.Fprintln(os.Stdout, "the stats report no error")
		return
	}
	err = limit(1 << 40)
	e, endErr := x.End(context.Background(), big, false)
	again, beginErr := s.Begin(session.Head{})
	fmt.Fprintln(os.Stdout, "done", x.ID(), added, refused, e.Calls, again.ID(), err, endErr, beginErr, s.Stats().Err, s.Close())
}

// TestFullDisk proves that a call that cannot be written causes an error and leaves nothing in the
// file, and that the session continues when the disk has room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, helperLimited+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var id, other string
	var added, refused, calls int
	if n, _ := fmt.Sscanf(string(out), "done %s %d %d %d %s <nil> <nil> <nil> <nil> <nil>", &id, &added, &refused, &calls, &other); n != 5 || added < 3 || refused < 3 || calls != added {
		t.Fatalf("%s", out)
	}
	s := open(t, store.Config{Dir: dir})
	var want []request
	for n := range added {
		r := conversation(1, n)
		r.call.Delivered = false
		want = append(want, r)
	}
	rec := read(t, s, id)
	check(t, rec, want...)
	if len(*rec.End.FinalText) != 30_000 {
		t.Errorf("the end is %+v", rec.End)
	}
	check(t, read(t, s, other))
}
