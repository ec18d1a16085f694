package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// An unread is a collector with --stream whose events are not read.
type unread struct {
	*process
	t      *testing.T
	dir    string
	tasks  []byte
	events *os.File // a pipe with the least possible capacity
	client *ctl.Client
}

// The events of unreadGroups groups of unreadSamples samples exceed the capacity of the pipe many
// times.
const unreadGroups, unreadSamples = 60, 2

func startUnread(t *testing.T, args ...string) *unread {
	t.Helper()
	u := openUnread(t, func(*exec.Cmd) {}, args...)
	u.collectAll()
	return u
}

// openUnread starts a collector. set can change its command.
func openUnread(t *testing.T, set func(*exec.Cmd), args ...string) *unread {
	t.Helper()
	sim := newSim(t, lettasim.Config{InputIDs: true, BodyCache: 64, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}}})
	u := &unread{t: t, dir: filepath.Join(t.TempDir(), "run")}
	events, w := pipe(t)
	u.events = events
	must(unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096))(t)
	u.tasks = sim.Tasks(lettasim.TaskOptions{Scripted: unreadGroups})
	u.process = newProcess(t, "rollout", nil, append([]string{
		"collect", "--stream", "--json", "--out", u.dir, "--server", serveSim(t, sim), "--model", simModel,
		"--samples", fmt.Sprint(unreadSamples),
	}, args...)...)
	u.cmd.Stdout = w
	set(u.cmd)
	u.start(t)
	_ = w.Close() // the process has its own copy
	t.Cleanup(func() {
		u.kill()
		_ = u.events.Close()
	})
	waitFor(t, "the socket", func() bool {
		client, err := ctl.Dial(t.Context(), u.dir)
		u.client = client
		return err == nil
	})
	return u
}

func (u *unread) collectAll() {
	u.t.Helper()
	for line := range bytes.Lines(u.tasks) {
		u.do(ctl.Request{Op: ctl.OpTask, Task: line}, nil)
	}
	u.waitFor("all samples to be committed", func(s *ctl.Status) bool { return s.Committed == unreadGroups*unreadSamples })
}

func (u *unread) waitFor(what string, is func(s *ctl.Status) bool) {
	u.t.Helper()
	waitFor(u.t, what, func() bool {
		var s ctl.Status
		u.do(ctl.Request{Op: ctl.OpStatus}, &s)
		return is(&s)
	})
}

func (u *unread) waitForLog(text string) {
	u.t.Helper()
	waitFor(u.t, text, func() bool {
		log, err := os.ReadFile(filepath.Join(u.dir, runfolder.LogName(1)))
		return err == nil && strings.Contains(string(log), text)
	})
}

func (u *unread) do(r ctl.Request, answer any) {
	u.t.Helper()
	if err := u.client.Do(r, answer); err != nil {
		u.t.Fatalf("%s: %v\n%s", r.Op, err, u.stderr.String())
	}
}

func (u *unread) endsWell() {
	u.t.Helper()
	u.ends(u.t, time.Minute, exit.OK)
	mustRun(u.t, exit.OK, "verify", u.dir)
}

// While the events are unread, groups are committed and requests are carried out. A later reader
// gets every event in order.
func TestUnreadEvents(t *testing.T) {
	t.Parallel()
	u := startUnread(t)
	for _, r := range []ctl.Request{
		{Op: ctl.OpPause},
		{Op: ctl.OpResume},
		{Op: ctl.OpSetVersion, Version: new(int32(1))},
		{Op: ctl.OpAck, Seq: new(int64(1)), Groups: new(1)},
		{Op: ctl.OpDrain},
	} {
		u.do(r, nil)
	}
	type event struct {
		Event, Group, Why string
		Seq               int64
		N                 int
	}
	count := map[string]int{}
	samples := map[string]int{}
	var last event
	var seq int64
	n := 0
	for lines := bufio.NewScanner(u.events); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		count[e.Event]++
		switch e.Event {
		case "sample":
			samples[e.Group]++
		case "group":
			if samples[e.Group] != unreadSamples {
				t.Errorf("group %s is reported after %d of its samples", e.Group, samples[e.Group])
			}
			if e.Seq < seq || e.Seq == seq && e.N != n+1 || e.Seq > seq && e.N != 1 {
				t.Errorf("group %d of commit %d comes after group %d of commit %d", e.N, e.Seq, n, seq)
			}
			seq, n = e.Seq, e.N
		case "done":
			if last.Event != "drained" || last.Why != "drain" {
				t.Errorf("before the end comes %+v", last)
			}
		}
		last = e
	}
	u.endsWell()
	delete(count, "status")
	for name, want := range map[string]int{
		"launch": 1, "accepted": unreadGroups, "begun": unreadGroups, "sample": unreadGroups * unreadSamples, "group": unreadGroups,
		"paused": 1, "resumed": 1, "version": 1, "drained": 1, "done": 1,
	} {
		if count[name] != want {
			t.Errorf("%d events %s, want %d", count[name], name, want)
		}
	}
	if last.Event != "done" {
		t.Errorf("the last event is %s", last.Event)
	}
}

// Interrupts end a process whose events are unread: the second one, or one after the end of the
// run.
func TestUnreadEventsInterrupted(t *testing.T) {
	t.Parallel()
	u := startUnread(t)
	u.signal(t, os.Interrupt, "draining: ")
	u.signal(t, os.Interrupt, "")
	u.endsWell()

	u = startUnread(t)
	u.do(ctl.Request{Op: ctl.OpDrain}, nil)
	waitFor(t, "the end of the run", func() bool {
		return strings.Contains(u.stderr.String(), "is waiting for its standard output to be read")
	})
	u.signal(t, os.Interrupt, "")
	u.endsWell()
}

// One interrupt ends such a process after the grace time.
func TestUnreadEventsGrace(t *testing.T) {
	t.Parallel()
	u := startUnread(t, "-c", writeFile(t, "run.yaml", []byte("run: {grace: 2s}\n")))
	u.signal(t, os.Interrupt, "")
	u.endsWell()
}

// flood writes invalid lines until it is enough, and then sends their number.
func flood(w *os.File, enough *atomic.Bool) <-chan int {
	given := make(chan int, 1)
	go func() {
		defer w.Close()
		n := 0
		for err := error(nil); err == nil && !enough.Load(); n++ {
			_, err = w.WriteString(`{"id":"a","prompt":7}` + "\n")
		}
		given <- n
	}()
	return given
}

// Unread events use bounded memory: no more tasks are accepted and no sample begins until they are
// read.
func TestUnreadEventsBounded(t *testing.T) {
	t.Parallel()
	stdin, w := pipe(t)
	u := openUnread(t, func(cmd *exec.Cmd) { cmd.Stdin = stdin })
	_ = stdin.Close()
	u.do(ctl.Request{Op: ctl.OpPause}, nil)
	for line := range bytes.Lines(u.tasks) {
		u.do(ctl.Request{Op: ctl.OpTask, Task: line}, nil)
		break
	}
	var enough atomic.Bool
	given := flood(w, &enough)
	u.waitForLog(`"msg":"events unread","held":true`)
	u.do(ctl.Request{Op: ctl.OpResume}, nil)
	waitFor(t, "a sample that is held", func() bool {
		noError(t, u.cmd.Process.Signal(syscall.SIGUSR1))
		return strings.Contains(u.stderr.String(), "waiting for the events to be read")
	})
	enough.Store(true)
	var s ctl.Status
	if u.do(ctl.Request{Op: ctl.OpStatus}, &s); s.Paused {
		t.Error("it reports a pause")
	}
	refused, groups := 0, 0
	for lines := bufio.NewScanner(u.events); lines.Scan(); {
		refused += bytes.Count(lines.Bytes(), []byte(`"event":"refused"`))
		groups += bytes.Count(lines.Bytes(), []byte(`"event":"group"`))
	}
	if code := u.wait(t, time.Minute); code != exit.OK || groups != 1 {
		t.Errorf("exit code %d, %d groups\n%s", code, groups, u.stderr.String())
	}
	if n := <-given; refused != n {
		t.Errorf("%d lines were refused, want %d", refused, n)
	}
}

// Interrupts also end a process that has begun to hold back and whose messages are unread too.
func TestUnreadEverything(t *testing.T) {
	t.Parallel()
	stdin, w := pipe(t)
	u := openUnread(t, func(cmd *exec.Cmd) { cmd.Stdin, cmd.Stderr = stdin, cmd.Stdout })
	_ = stdin.Close()
	flood(w, new(atomic.Bool)) // until the process has ended
	u.waitForLog(`"msg":"events unread","held":true`)
	u.signal(t, os.Interrupt, "")
	u.waitForLog(`"msg":"drain"`)
	u.signal(t, os.Interrupt, "")
	if code := u.wait(t, time.Minute); code != exit.OK && code != exit.Tolerance { // there is no row
		t.Errorf("exit code %d", code)
	}
	mustRun(t, exit.OK, "verify", u.dir)
}

// If the reader exits, the run continues: it drains on request and its exit code is its own.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	u := openUnread(t, func(cmd *exec.Cmd) { cmd.Stderr = cmd.Stdout }, "--until-groups", "100")
	noError(t, u.events.Close())
	u.collectAll()
	u.do(ctl.Request{Op: ctl.OpDrain}, nil)
	u.ends(t, time.Minute, exit.Tolerance) // too few groups; reported at the very end
	mustRun(t, exit.OK, "verify", u.dir)
}

// A scorer with much output is not blocked by an unread standard error.
func TestUnreadScorer(t *testing.T) {
	t.Parallel()
	messages, w := pipe(t)
	const config = `reward: {kind: command, timeout: 30s, command: [sh, -c, "while read -r line; do head -c 200000 /dev/zero | tr '\\0' x >&2; echo '{\"reward\":1}'; done"]}`
	u := openUnread(t, func(cmd *exec.Cmd) { cmd.Stderr = w }, "-c", writeFile(t, "run.yaml", []byte(config+"\n")))
	_ = w.Close()
	go func() { _, _ = io.Copy(io.Discard, u.events) }()
	u.do(ctl.Request{Op: ctl.OpTask, Task: u.tasks[:bytes.IndexByte(u.tasks, '\n')]}, nil)
	u.waitFor("the samples to be committed", func(s *ctl.Status) bool { return s.Committed == unreadSamples })
	u.do(ctl.Request{Op: ctl.OpDrain}, nil)
	said, _ := io.ReadAll(messages)
	if n := bytes.Count(said, []byte("x")); n < 200_000 {
		t.Errorf("%d bytes of the scorer are shown, want all of its first answer", n)
	}
	if code := u.wait(t, time.Minute); code != exit.OK {
		t.Errorf("exit code %d\n%s", code, bytes.Trim(said, "x"))
	}
}
