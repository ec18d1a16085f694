package subprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Program describes a program to run.
type Program struct {
	// Args contains the absolute path of the program and its arguments.
	Args []string
	// Env is the whole environment, without MarkVar. Dir is the working directory.
	Env []string
	Dir string
	// Mark identifies the processes of the program. It must be different for each call of Run and
	// not empty. No other program may have a mark that begins with this mark.
	Mark string
	// Stdin is the standard input. The program does not have to read it.
	Stdin string
	// Stdout and Stderr receive the output. Run calls each of them from one goroutine, and not after
	// it has returned. Nil discards the output.
	Stdout, Stderr io.Writer
	// Supervisor contains the path of an executable that calls Main, and arguments that precede the
	// arguments of Main. Nil means that the program runs without a supervisor. It is ignored on
	// platforms other than Linux.
	Supervisor []string
}

// A Result describes how a program ended. Package harness stores it as JSON.
type Result struct {
	// Exit is the exit code, or -1 if a signal ended the program.
	Exit int `json:"exit_code"`
	// Signal is the name of that signal. It is empty if the program exited.
	Signal string `json:"signal,omitempty"`
	// Left is the number of processes that could not be killed. It is not 0 only if a process
	// hangs in the kernel.
	Left int `json:"left,omitempty"`
	// Took is the time from the start of the program to its exit.
	Took time.Duration `json:"took_ns"`
}

// MarkVar is the environment variable that contains Program.Mark.
const MarkVar = "ROLLOUT_ATTEMPT"

// killWithin bounds the time for killing the processes of one program.
const killWithin = 10 * time.Second

// outputAfter bounds the wait for the last output after the processes of the program were killed. A
// process that survived can keep the output open.
const outputAfter = time.Second

// Run runs a program and kills all of its processes when it exits or ctx is done. If the program
// could not be started, Run returns an error. The error is context.Cause(ctx) if ctx was done
// before the program exited. In this case, the Result is valid too.
func Run(ctx context.Context, p Program) (Result, error) {
	if ctx.Err() != nil {
		return Result{Exit: -1}, context.Cause(ctx)
	}
	args := p.Args
	supervised := canSupervise && len(p.Supervisor) > 0
	if supervised {
		args = supervisorArgs(p.Supervisor, p.Args)
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // the whole tree is killed below
	cmd.Env, cmd.Dir = append(slices.Clip(p.Env), MarkVar+"="+p.Mark), p.Dir
	ownSession(cmd)

	out, err := pipes(cmd, p.Stdin, p.Stdout, p.Stderr)
	if err != nil {
		return Result{Exit: -1}, err
	}
	var control *control
	if supervised {
		if control, err = newControl(cmd); err != nil {
			out.abandon()
			return Result{Exit: -1}, err
		}
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		out.abandon()
		control.close()
		return Result{Exit: -1}, startError(p.Args, err)
	}
	out.started()
	control.started()

	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	var ended error
	select {
	case ended = <-exited:
	case <-ctx.Done():
		if supervised {
			control.end() // the supervisor kills all processes and exits
		}
		if !supervised || !within(killWithin+2*outputAfter, exited, &ended) {
			KillGroup(cmd)
			_, _ = KillMarked(p.Mark, killWithin)
			ended = <-exited
		}
	}
	r := Result{Took: time.Since(began)}
	proven := false // true if the supervisor reported that no process is left
	if supervised {
		proven, err = control.result(p.Args, ended, &r)
	} else {
		r.Exit, r.Signal = status(ended)
	}
	if !proven {
		KillGroup(cmd) // fails if the group is empty
		left, _ := KillMarked(p.Mark, killWithin)
		r.Left = max(r.Left, left)
	}
	out.finish()
	control.close()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, err
}

// startError explains why the system refused to start a program.
func startError(args []string, err error) error {
	size := 0
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("start %s: an argument contains a zero byte: %w", args[0], err)
		}
		size = max(size, len(a))
	}
	if isTooLong(err) {
		return fmt.Errorf("start %s: the longest argument has %d bytes, more than the system accepts: %w", args[0], size, err)
	}
	return fmt.Errorf("start %s: %w", args[0], err)
}

func within(d time.Duration, exited <-chan error, ended *error) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case *ended = <-exited:
		return true
	case <-timer.C:
		return false
	}
}

func status(ended error) (exit int, signal string) {
	e, ok := errors.AsType[*exec.ExitError](ended)
	switch {
	case ended == nil:
		return 0, ""
	case ok:
		return e.ExitCode(), signalOf(e)
	}
	return -1, ""
}

// An output copies the standard input, output and error of a program. Unlike package os/exec, it can
// stop while a process keeps the pipes open.
type output struct {
	stdin       string
	in, inEnd   *os.File // the write end and the program's end of the standard input, or nil
	read, write []*os.File
	to          []io.Writer
	copying     sync.WaitGroup
}

func pipes(cmd *exec.Cmd, stdin string, stdout, stderr io.Writer) (*output, error) {
	o := &output{stdin: stdin}
	if stdin != "" {
		var err error
		if o.inEnd, o.in, err = os.Pipe(); err != nil {
			return nil, err
		}
		cmd.Stdin = o.inEnd
	}
	for i, to := range []io.Writer{stdout, stderr} {
		if to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			o.abandon()
			return nil, err
		}
		o.read, o.write, o.to = append(o.read, r), append(o.write, w), append(o.to, to)
		if i == 0 {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
	}
	return o, nil
}

// started closes the ends that the program has, and begins to copy.
func (o *output) started() {
	if o.in != nil {
		_ = o.inEnd.Close()
		o.copying.Go(func() {
			_, _ = io.WriteString(o.in, o.stdin) // fails if the program does not read it
			_ = o.in.Close()
		})
	}
	for i := range o.read {
		_ = o.write[i].Close()
		o.copying.Go(func() { _, _ = io.Copy(o.to[i], o.read[i]) })
	}
}

// finish waits for the last output. A surviving process can delay it by outputAfter.
func (o *output) finish() {
	if o.in != nil {
		_ = o.in.SetWriteDeadline(time.Now())
	}
	for _, r := range o.read {
		_ = r.SetReadDeadline(time.Now().Add(outputAfter))
	}
	o.copying.Wait()
	for _, r := range o.read {
		_ = r.Close()
	}
}

func (o *output) abandon() {
	if o.in != nil {
		_, _ = o.in.Close(), o.inEnd.Close()
	}
	for i := range o.read {
		_ = o.read[i].Close()
		_ = o.write[i].Close()
	}
}
