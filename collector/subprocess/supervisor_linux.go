package subprocess

import (
	"encoding/json"
	"errors"
	"fmt"
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

// These are the file descriptors of a supervisor.
const (
	controlFD = 3 // at its end, the supervisor kills everything
	reportFD  = 4 // receives the report as JSON
)

// A report is the last message of a supervisor.
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

// A control is the connection to a supervisor. A nil control has no supervisor.
type control struct {
	alive, report *os.File   // the ends of this process
	theirs        []*os.File // the ends of the supervisor
}

func newControl(cmd *exec.Cmd) (*control, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		_, _ = r.Close(), w.Close()
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{r, w2} // controlFD and reportFD
	return &control{alive: w, report: r2, theirs: cmd.ExtraFiles}, nil
}

func (c *control) started() {
	if c != nil {
		for _, f := range c.theirs {
			_ = f.Close()
		}
	}
}

// end makes the supervisor kill everything.
func (c *control) end() {
	if c != nil {
		_ = c.alive.Close()
	}
}

func (c *control) close() {
	if c != nil {
		c.started()
		c.end()
		_ = c.report.Close()
	}
}

// result reads the report of a supervisor that has exited. It returns true if the report states that
// no process is left.
func (c *control) result(args []string, ended error, r *Result) (proven bool, err error) {
	var from report
	_ = c.report.SetReadDeadline(time.Now().Add(outputAfter)) // needed only if a stranger has the pipe
	err = json.NewDecoder(c.report).Decode(&from)
	switch {
	case err != nil || ended != nil: // a program can write a report of its own and kill the supervisor
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
	out := os.NewFile(reportFD, "report")
	r := supervise(args[at+1:])
	if err := json.NewEncoder(out).Encode(r); err != nil {
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
// control pipe ends.
func supervise(args []string) report {
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
	// The program gets no other file either, even if this process inherited one, such as the lock of
	// a script. Linux before 5.11 refuses the call.
	_ = unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{Exit: -1, Errno: errnoOf(err)}
	}
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		_, _ = os.NewFile(controlFD, "control").Read(make([]byte, 1)) // returns at the end of the pipe
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
