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

// onDisk makes a command run with a small file system of its own in the folder, which it alone
// sees. It needs root or user namespaces.
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

// newTapOnDisk is a tap whose disk can be filled. Where no file system can be had for it, its
// files are forbidden to grow instead. Collections read it over HTTP.
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
	p.serve(t, name)
	p.reads = p.url
	return p
}

// fill fills the disk of the tap.
func (p *tapped) fill(t *testing.T) {
	t.Helper()
	if p.disk == "" {
		p.limit(t, 0)
		return
	}
	f, err := os.Create(p.filler())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<12); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// free makes room again.
func (p *tapped) free(t *testing.T) {
	t.Helper()
	if p.disk == "" {
		p.limit(t, unix.RLIM_INFINITY)
		return
	}
	if err := os.Remove(p.filler()); err != nil {
		t.Fatal(err)
	}
}

// filler is a file on the disk that only the tap sees, by a path for others.
func (p *tapped) filler() string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, filepath.Join(p.disk, "filler"))
}

// limit is the size that files of the tap may have.
func (p *tapped) limit(t *testing.T, size uint64) {
	t.Helper()
	var now unix.Rlimit
	err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &now)
	if err == nil {
		err = unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(size, now.Max), Max: now.Max}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// metric is a number that the tap tells.
func (p *tapped) metric(t *testing.T, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/tap/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s in\n%s", name, page)
	return 0
}

// fullDisk fills the disk of a tap in mid-run. The engine's answers pass all the same; the rows
// are proven otherwise, because their agents have one tool. With room again the tap writes what
// it kept meanwhile.
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

// freedDisk collects once the time is over in which calls may be missing: every row is exact.
func (p *tapped) freedDisk(t *testing.T) {
	slack := 15 * time.Second // tap.IndexConfig: by how much clocks may differ
	awaits(t, time.Until(p.freed.Add(slack+time.Second)))
	p.w.collect(t, p.through(faulted("disk of the tap free again", 3)))
}
