package reward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/subprocess"
)

// scoreLine sends a line to the process p, which it starts if p is nil. It returns the answer and
// the process to keep, or a nil process if the process can no longer be trusted.
func (c *Command) scoreLine(ctx context.Context, p *process, id int64, line []byte) (verdict, *process, error) {
	if p != nil && c.preamble == nil { // worker.py writes nothing else
		if line := p.unrequested(); line != "" {
			p.kill()
			_ = c.end(p) // the exit status does not matter
			return verdict{}, nil, fmt.Errorf("the program wrote %.80q before it received a request", line)
		}
	}
	if p != nil {
		p.talk.forget()
	} else {
		var err error
		if p, err = c.start(); err != nil {
			return verdict{}, nil, err
		}
	}
	stop := context.AfterFunc(ctx, p.kill) // unblocks a read that would never return
	answer, err := p.exchange(line)
	if !stop() && err == nil {
		err = io.ErrUnexpectedEOF // the process was killed just after its answer
	}
	var v verdict
	if err == nil {
		v, err = c.decode(p, id, answer)
	}
	c.answered(err == nil)
	if err == nil {
		return v, p, nil
	}
	// A program that closed its output might be exiting. The exit status is then more informative
	// than err.
	killed := false
	if errors.Is(err, io.EOF) && ctx.Err() == nil {
		select {
		case <-p.exited():
		case <-time.After(exitWait):
			killed = true
		}
	}
	p.kill()
	ended := c.end(p)
	switch {
	case ctx.Err() != nil:
		return v, nil, context.Cause(ctx)
	case c.isKilled():
		return v, nil, errClosed
	case killed:
		return v, nil, errors.New("the program did not answer: it closed its standard input or output and kept running")
	case errors.Is(err, io.EOF) && ended != nil:
		return v, nil, fmt.Errorf("the program exited without answering: %w%s", ended, p.talk.last())
	case errors.Is(err, io.EOF):
		return v, nil, fmt.Errorf("the program exited without answering%s", p.talk.last())
	}
	return v, nil, err
}

// decode decodes the answer to a request. It returns an error if the answer is not valid, belongs to another request,
// or is not the only line that the program wrote.
func (c *Command) decode(p *process, id int64, answer []byte) (v verdict, err error) {
	if err := json.Unmarshal(answer, &v); err != nil {
		return v, fmt.Errorf("cannot decode answer %.80q: %w", answer, err)
	}
	switch {
	case c.preamble != nil && v.ID == nil:
		err = fmt.Errorf("answer %.80q has no id", answer)
	case v.ID != nil && *v.ID != id:
		err = fmt.Errorf("answer %.80q is for request %d, want %d", answer, *v.ID, id)
	case p.r.Buffered() > 0:
		rest, _ := p.r.Peek(p.r.Buffered())
		err = fmt.Errorf("the program wrote more than one line: %.80q after %.80q", rest, answer)
	}
	return v, err
}

// exitWait bounds the wait for the exit of a program that closed its output.
const exitWait = 200 * time.Millisecond

type process struct {
	cmd  *exec.Cmd
	talk *talk
	// preamble is written before the first line.
	preamble []byte
	in       io.WriteCloser
	out      *os.File
	r        *bufio.Reader

	killOnce, waitOnce sync.Once
	done               chan struct{} // closed when the process has exited
	ended              error         // the exit error, valid after done
}

// maxAnswer bounds the size of one line from a program. A reward and its details are small.
const maxAnswer = 1 << 20

func start(cfg *CommandConfig, name string, preamble []byte) (*process, error) {
	cmd := exec.Command(cfg.Args[0], cfg.Args[1:]...) //nolint:noctx // it outlives every context: Close ends it
	cmd.Env, cmd.Dir = cfg.Env, cfg.Dir
	subprocess.OwnGroup(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // not StdoutPipe: closing this pipe unblocks a read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	said := &talk{to: cfg.Stderr, name: name, left: maxTalk}
	if err = said.connect(cmd); err == nil {
		err = cmd.Start()
		said.started(err == nil)
	}
	_ = w.Close() // the program has its own copy of this end
	if err != nil {
		_ = out.Close()
		_ = in.Close()
		return nil, err
	}
	return &process{cmd: cmd, talk: said, preamble: preamble, in: in, out: out, r: bufio.NewReaderSize(out, 64<<10), done: make(chan struct{})}, nil
}

// unrequested returns the output of the program since its last answer.
func (p *process) unrequested() string {
	if p.r.Buffered() == 0 {
		if p.out.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
			return "" // the pipe has no deadlines
		}
		_, _ = p.r.Peek(1) // ignores EOF, because the next request detects it
		_ = p.out.SetReadDeadline(time.Time{})
	}
	b, _ := p.r.Peek(p.r.Buffered())
	return string(b)
}

// exchange writes a line and reads a line. If the program exits or closes its input without reading
// the line, the write fails, and any answer is ignored.
func (p *process) exchange(line []byte) ([]byte, error) {
	if p.preamble != nil {
		line, p.preamble = append(slices.Clip(p.preamble), line...), nil
	}
	if _, err := p.in.Write(line); err != nil {
		return nil, io.EOF
	}
	var answer []byte
	for {
		part, err := p.r.ReadSlice('\n')
		answer = append(answer, part...)
		switch {
		case err == nil:
			return answer, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(answer) > maxAnswer:
			return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
		}
	}
}

// kill kills the program and its children. It can be called at any time and more than once.
func (p *process) kill() {
	p.killOnce.Do(func() {
		subprocess.KillGroup(p.cmd)
		_ = p.in.Close()
		_ = p.out.Close()
	})
}

// exited returns a channel that is closed when the program exits.
func (p *process) exited() <-chan struct{} {
	p.waitOnce.Do(func() {
		go func() {
			defer close(p.done)
			p.ended = p.cmd.Wait()
			p.talk.close()
		}()
	})
	return p.done
}

func (p *process) wait() error {
	<-p.exited()
	_ = p.out.Close()
	return p.ended
}
