package cases_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process is a running program that leads its own process group.
type process struct {
	name string // name of its log and of its file in the keeper's folder
	log  string // path of the file with its output
	cmd  *exec.Cmd
	pids string        // file with its process group, for the keeper
	done chan struct{} // closed when it has ended

	spent time.Duration // CPU time; set before done is closed
}

// startProcess starts a program in dir. Its output is appended to dir/logs/NAME.log.
func startProcess(t *testing.T, dir, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	p.log = filepath.Join(dir, "logs", name+".log")
	p.pids = filepath.Join(dir, "groups", name)
	log := must(os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	noError(t, cmd.Start())
	if err := os.WriteFile(p.pids, fmt.Appendln(nil, cmd.Process.Pid), 0o644); err != nil {
		t.Fatal(errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
	}
	go func() {
		_ = cmd.Wait() // its log shows how it ended
		p.spent = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		_ = os.Remove(p.pids)
		close(p.done)
	}()
	return p
}

func (p *process) signal(s syscall.Signal, group bool) {
	select {
	case <-p.done: // another process can have its id by now
		return
	default:
	}
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	_ = syscall.Kill(pid, s) // fails if it has just ended
}

// kill kills the process and all its descendants, and waits until they are gone.
func (p *process) kill() error {
	tree := descendants(p.cmd.Process.Pid)
	p.signal(syscall.SIGKILL, true)
	<-p.done
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGKILL) // PostgreSQL's children lead their own groups
	}
	return waitFor(30*time.Second, func() (bool, error) { return len(tree) == 0 || !anyAlive(tree), nil })
}

// stop sends a signal to the process, and kills it if it does not end in time.
func (p *process) stop(s syscall.Signal, within time.Duration) error {
	p.signal(s, false)
	select {
	case <-p.done:
	case <-time.After(within):
	}
	return p.kill()
}

// cpu returns the CPU time of the process and all its descendants, including ended ones.
func (p *process) cpu() time.Duration {
	select {
	case <-p.done:
		return p.spent
	default:
	}
	var sum time.Duration
	for _, pid := range append(descendants(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		if s, ok := readStat(pid); ok {
			sum += s.cpu
		}
	}
	return sum
}

// unlessEnded wraps ready for [waitFor]. The result fails if the process has ended.
func (p *process) unlessEnded(ready func() bool) func() (bool, error) {
	return func() (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("it has ended: %v", p.cmd.ProcessState)
		default:
			return ready(), nil
		}
	}
}

func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(text, lines)
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

type stat struct {
	parent int
	state  string
	cpu    time.Duration // its own and the time of the children that it waited for
}

func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	// The second field is a name in parentheses, which can contain any character.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 15 {
		return s, false
	}
	s.state = f[0]
	s.parent, _ = strconv.Atoi(f[1])
	for _, ticks := range f[11:15] {
		n, _ := strconv.ParseInt(ticks, 10, 64)
		s.cpu += time.Duration(n) * (time.Second / 100) // USER_HZ is 100 on every Linux that Go supports
	}
	return s, true
}

func descendants(pid int) []int {
	entries, _ := os.ReadDir("/proc")
	children := map[int][]int{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if s, ok := readStat(n); ok {
				children[s.parent] = append(children[s.parent], n)
			}
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var deeper []int
		for _, n := range next {
			deeper = append(deeper, children[n]...)
		}
		next = deeper
	}
	return all
}

func anyAlive(pids []int) bool {
	for _, pid := range pids {
		if s, ok := readStat(pid); ok && s.state != "Z" {
			return true
		}
	}
	return false
}

func waitFor(within time.Duration, ready func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); ; <-tick.C {
		switch ok, err := ready(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("not ready after %v", within)
		}
	}
}

// A keeper is a shell that cleans up after the test process.
type keeper struct {
	cmd *exec.Cmd
	end io.Closer // standard input of the shell; closing it starts the cleanup
}

// keep starts the keeper of a folder. When the keeper is released, or this process has ended, it
// kills the groups listed in dir/groups and removes dir.
func keep(t *testing.T, dir string) *keeper {
	t.Helper()
	const script = `read -r _; for f in "$1"/groups/*; do read -r g <"$f" && kill -s KILL -- "-$g"; done 2>/dev/null
n=0; until rm -rf -- "$1" 2>/dev/null || [ $n = 100 ]; do n=$((n+1)); sleep 0.1; done # what was killed may write for a moment`
	cmd := exec.Command("/bin/sh", "-c", script, "keeper", dir) // it must outlive every context
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}       // protects it from Ctrl-C
	end := must(cmd.StdinPipe())(t)
	noError(t, cmd.Start())
	return &keeper{cmd, end}
}

func (k *keeper) release() error {
	return errors.Join(k.end.Close(), k.cmd.Wait())
}

// freePort returns a free TCP port of this machine. The package documentation explains why it does
// not ask the system.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			noError(t, l.Close())
			return port
		}
	}
	t.Fatal("no free port between 10000 and 30000")
	return 0
}
