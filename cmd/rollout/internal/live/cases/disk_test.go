//go:build linux

package cases_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onDisk runs a command with a small private file system in the folder. It needs root or user
// namespaces.
func onDisk(cmd *exec.Cmd, folder string) {
	cmd.Args = append([]string{"sh", "-euc", `mount -t tmpfs -o size=4m none "$0"; exec "$@"`, folder, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	a := cmd.SysProcAttr
	a.Cloneflags, a.Unshareflags = syscall.CLONE_NEWNS, syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}

// newTapOnDisk returns a tap whose disk can be filled. If no file system can be mounted, the tap's
// files are kept from growing instead. Collections read the tap over HTTP.
func (w *world) newTapOnDisk(t *testing.T, name string) *tapped {
	t.Helper()
	folder := t.TempDir()
	p := &tapped{w: w, spool: filepath.Join(folder, "spool"), disk: folder}
	try := exec.CommandContext(t.Context(), "true")
	onDisk(try, folder)
	if out, err := try.CombinedOutput(); err != nil {
		t.Logf("no file system for the tap: %v: %s; its files are limited instead", err, bytes.TrimSpace(out))
		p.disk = ""
	}
	p.start(t)
	p.reads, p.handle = p.url, w.l.Provider(t, name, p.url)
	return p
}

func (p *tapped) fill(t *testing.T) {
	t.Helper()
	if p.disk == "" {
		p.limit(t, 0)
		return
	}
	f, err := os.Create(p.filler())
	noError(t, err)
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<12); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func (p *tapped) free(t *testing.T) {
	t.Helper()
	if p.disk == "" {
		p.limit(t, unix.RLIM_INFINITY)
		return
	}
	noError(t, os.Remove(p.filler()))
}

// filler returns the path, for other processes, of a file on the disk that only the tap sees.
func (p *tapped) filler() string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, filepath.Join(p.disk, "filler"))
}

func (p *tapped) limit(t *testing.T, size uint64) {
	t.Helper()
	var now unix.Rlimit
	noError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &now))
	noError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(size, now.Max), Max: now.Max}, nil))
}

func (p *tapped) metric(t *testing.T, name string) float64 {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/tap/metrics", nil))(t)
	resp := must(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	page := must(io.ReadAll(resp.Body))(t)
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return must(strconv.ParseFloat(strings.TrimSpace(value), 64))(t)
		}
	}
	t.Fatalf("no metric %s in\n%s", name, page)
	return 0
}

// fullDisk fills the disk of a tap during a run. The engine's answers still pass. The rows are
// proven by other means, because their agents have one tool. With room again, the tap writes the
// calls that it kept meanwhile.
func (p *tapped) fullDisk(t *testing.T) {
	c := p.through(faulted("disk of the tap full", 5))
	c.weaker = true
	for i := range c.tasks {
		c.tasks[i] = c.tasks[i].uses("add")
	}
	res := p.w.hit(t, &c, func() { p.fill(t) })
	if n := res.Grades["exact"]; n == res.Rows {
		t.Errorf("all %d rows are exact, so this case shows nothing", n)
	}
	failed, waiting := p.metric(t, "rollout_tap_spool_errors_total"), p.metric(t, "rollout_tap_spool_queued_bytes")
	if failed == 0 || waiting == 0 {
		t.Errorf("%v writes failed, %v bytes wait", failed, waiting)
	}
	p.free(t)
	for began := time.Now(); p.metric(t, "rollout_tap_spool_queued_bytes") > 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("there is room, and the tap does not write")
		}
	}
	p.freed = time.Now()
}

// freedDisk collects after the time in which calls can be missing. Every row is exact.
func (p *tapped) freedDisk(t *testing.T) {
	slack := 15 * time.Second // tap.IndexConfig: allowed difference of clocks
	awaits(t, time.Until(p.freed.Add(slack+time.Second)))
	p.w.collect(t, p.through(faulted("disk of the tap free again", 3)))
}
