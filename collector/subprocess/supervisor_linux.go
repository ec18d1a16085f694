package subprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const canSupervise = true

// mainVerb is the argument by which Main recognizes that this process is a supervisor. The
// arguments of the program follow.
const mainVerb = "internal-supervise"

// controlFD is the file descriptor of a supervisor's connection to the process that called Run. At
// the end of its input, the supervisor kills everything. It then writes a report as JSON.
const controlFD = 3

// A report is the only message of a supervisor.
type report struct {
	Exit   int    `json:"exit"`
	Signal string `json:"signal,omitempty"`
	Left   int    `json:"left,omitempty"`
	// Errno is the error with which the program could not be started, or 0.
	Errno syscall.Errno `json:"errno,omitempty"`
}

func supervisorArgs(supervisor, args []string) []string {
	return slices.Concat(supervisor, []string{mainVerb}, args)
}

// A control is the connection to a supervisor. A nil control has no supervisor. The connection is a
// pair of sockets. A program of the same user can open a pipe of its supervisor in /proc and write a
// false report to it. Linux does not let it open a socket.
type control struct {
	ours, theirs *os.File
}

func newControl(cmd *exec.Cmd) (*control, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	_ = unix.SetNonblock(fds[0], true) // makes read deadlines work; cannot fail
	c := &control{ours: os.NewFile(uintptr(fds[0]), "control"), theirs: os.NewFile(uintptr(fds[1]), "control")}
	cmd.ExtraFiles = []*os.File{c.theirs} // controlFD
	return c, nil
}

func (c *control) started() {
	if c != nil {
		_ = c.theirs.Close()
	}
}

// end makes the supervisor kill everything.
func (c *control) end() {
	raw, err := c.ours.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) }) // fails if the supervisor has exited
	}
}

func (c *control) close() {
	if c != nil {
		_, _ = c.theirs.Close(), c.ours.Close()
	}
}

// maxReport limits the size of a report, in bytes.
const maxReport = 4 << 10

// result reads the report of a supervisor that has exited. It returns true if the report states that
// no process is left. Only a supervisor that exits with code 0 has written its whole report.
func (c *control) result(args []string, ended error, r *Result) (proven bool, err error) {
	var from report
	_ = c.ours.SetReadDeadline(time.Now().Add(outputAfter)) // needed only if a stranger has the socket
	text, err := io.ReadAll(io.LimitReader(c.ours, maxReport))
	if err == nil {
		err = json.Unmarshal(text, &from) // refuses a second report
	}
	switch {
	case err != nil || ended != nil:
		r.Exit = -1
		exit, signal := status(ended)
		r.Signal = signal
		if r.Signal == "" {
			return false, fmt.Errorf("the supervisor ended without a report, with exit code %d", exit)
		}
		return false, nil // the program, or another process, killed the supervisor
	case from.Errno != 0:
		r.Exit = -1
		return true, startError(args, from.Errno)
	}
	r.Exit, r.Signal, r.Left = from.Exit, from.Signal, from.Left
	return from.Left == 0, nil
}

// Main is the supervisor. A main function must call Main with os.Args before it does anything
// else. If ok is true, this process was a supervisor, and must exit with the returned code.
func Main(args []string) (code int, ok bool) {
	at := slices.Index(args, mainVerb)
	if at < 1 || at > 2 || at+1 >= len(args) || os.Getenv(MarkVar) == "" {
		return 0, false
	}
	// The handler drops these signals. An ignored signal would stay ignored in the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	control := os.NewFile(controlFD, "control")
	r := supervise(args[at+1:], control)
	if err := json.NewEncoder(control).Encode(r); err != nil {
		return 1, true
	}
	return 0, true
}

// A reaper waits for the children of a supervisor, including the orphans that it inherits.
type reaper struct {
	// mu is locked while a child is released, because the number of a child that has not been
	// released belongs to no other process.
	mu      sync.Mutex
	program int
	exited  chan syscall.WaitStatus // receives the status of the program
	none    chan struct{}           // closed when there are no more children
}

// supervise runs the program and kills everything below this process when the program exits or the
// input of the control ends.
func supervise(args []string, control *os.File) report {
	syscall.CloseOnExec(controlFD)
	// The program gets no other file either, even if this process inherited one, such as the lock of
	// a script. Linux before 5.11 refuses the call.
	_ = unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{Exit: -1, Errno: errnoOf(err)}
	}
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		_, _ = control.Read(make([]byte, 1)) // returns at the end of the input
	}()
	// The program gets a session of its own, so that kill 0 in a shell does not reach this process.
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return report{Exit: -1, Errno: errnoOf(err)}
	}
	c := &reaper{program: pid, exited: make(chan syscall.WaitStatus, 1), none: make(chan struct{})}
	go c.run()
	r := report{Exit: -1}
	select {
	case w := <-c.exited:
		r = reportOf(w)
	case <-orphaned:
	}
	r.Left = c.killAll()
	return r
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return syscall.EINVAL // an argument contains a zero byte
}

func reportOf(w syscall.WaitStatus) report {
	if w.Signaled() {
		return report{Exit: -1, Signal: w.Signal().String()}
	}
	return report{Exit: w.ExitStatus()}
}

func (c *reaper) run() {
	defer close(c.none)
	for {
		var info unix.Siginfo
		switch err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err {
		case unix.ECHILD:
			return
		case nil:
			c.release()
		}
	}
}

// release releases a child that has exited.
func (c *reaper) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var w syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG, nil)
	if err == nil && pid == c.program {
		c.exited <- w
		c.program = 0 // an orphan can get the same number
	}
}

// killAll kills the children of this process until there are none. The children of a killed process
// become children of this process. It returns the number of processes that are still alive after
// killWithin.
func (c *reaper) killAll() (left int) {
	pause := 50 * time.Microsecond
	for end := time.Now().Add(killWithin); ; {
		left = c.killChildren()
		select {
		case <-c.none:
			return 0
		case <-time.After(pause):
		}
		if time.Now().After(end) {
			return left
		}
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// killChildren kills the children of this process and their groups. The kernel kills a group as a
// whole, so a process in it cannot escape by forking.
func (c *reaper) killChildren() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, _ := unix.Getsid(0)
	children := children()
	for _, pid := range children {
		session, err := unix.Getsid(pid)
		if group, err2 := unix.Getpgid(pid); err == nil && err2 == nil && group > 1 && session != own {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(children)
}

// children lists the children of this process. The kernel lists them per thread. A kernel without
// such lists (CONFIG_PROC_CHILDREN) makes it necessary to read all of /proc.
func children() (list []int) {
	threads, _ := os.ReadDir("/proc/self/task")
	listed := false
	for _, thread := range threads {
		b, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		listed = listed || err == nil
		for text := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(text); err == nil {
				list = append(list, pid)
			}
		}
	}
	if listed {
		return list
	}
	all, _ := processes()
	for i := range all {
		if all[i].parent == os.Getpid() {
			list = append(list, all[i].pid)
		}
	}
	return list
}
