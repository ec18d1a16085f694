package cases_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A killed test leaves neither processes nor files behind, whatever started them and in which
// group.
func TestKeeper(t *testing.T) {
	if os.Getenv("LIVE_KEEPER_TEST") != "" {
		keptUntilKilled(t)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKeeper$")
			cmd.Env = append(os.Environ(), "LIVE_KEEPER_TEST=1", "TMPDIR="+t.TempDir())
			out := must(cmd.StdoutPipe())(t)
			noError(t, cmd.Start())
			line := must(bufio.NewReader(out).ReadString('\n'))(t)
			said := strings.Fields(line) // the folder, and the leader of a group
			pid, err := strconv.Atoi(said[1])
			if err != nil {
				t.Fatal(line)
			}
			group := append(descendants(pid), pid)
			if len(group) != 2 || !anyAlive(group) {
				t.Fatalf("processes %v: want a shell and what it started", group)
			}
			noError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			if err := waitFor(time.Minute, func() (bool, error) {
				_, err := os.Stat(said[0])
				return errors.Is(err, fs.ErrNotExist) && !anyAlive(group), nil
			}); err != nil {
				t.Errorf("folder or processes %v are left: %v", group, err)
			}
		})
	}
}

func keptUntilKilled(t *testing.T) {
	t.Helper()
	dir := newFolder(t)
	keep(t, dir)
	p := startProcess(t, dir, "one", exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 1000 & echo up; wait"))
	noError(t, waitFor(time.Minute, func() (bool, error) { return strings.Contains(p.tail(1), "up"), nil }))
	fmt.Fprintln(os.Stdout, dir, p.cmd.Process.Pid)
	select {}
}

// The CPU time of a process and its children is counted while they run and afterwards. Killing it
// leaves no process, even if a child has its own group.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"logs", "groups"} {
		noError(t, os.Mkdir(filepath.Join(dir, sub), 0o777))
	}
	// The first child ends, the second stays.
	p := startProcess(t, dir, "busy", exec.CommandContext(t.Context(), "/bin/sh", "-c",
		`sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; setsid sleep 1000 & echo up; wait`))
	var tree []int
	noError(t, waitFor(time.Minute, p.unlessEnded(func() bool {
		tree = descendants(p.cmd.Process.Pid)
		return strings.Contains(p.tail(1), "up") && len(tree) > 0
	})))
	running := p.cpu()
	noError(t, p.kill())
	if running == 0 || p.cpu() == 0 {
		t.Errorf("CPU time %v while it ran, %v afterwards", running, p.cpu())
	}
	if anyAlive(append(tree, p.cmd.Process.Pid)) {
		t.Errorf("one of %v is left", tree)
	}
	if _, err := os.Stat(p.pids); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the keeper still knows the group: %v", err)
	}
	if err := waitFor(time.Second, p.unlessEnded(func() bool { return true })); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("waiting for a process that has ended: %v", err)
	}
}
