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
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// CommandConfig says which program scores.
type CommandConfig struct {
	// Args is the program and its arguments; no shell is involved.
	Args []string
	// Env is the environment; nil means that of this process.
	Env []string
	// Dir is the working folder; empty means that of this process.
	Dir string
	// Processes is how many of them run at a time. Default 1.
	Processes int
	// Timeout bounds one score. Default 1m.
	Timeout time.Duration
	// Stderr takes what the program says to people. Default nil: nothing does.
	Stderr io.Writer
}

// Command scores by a program that lives as long as the run. For each rollout it
// gets one line on its standard input,
//
//	{"task_id":"t1","messages":["…"],"answer":"…","metadata":{…},"output":"…","conversation":[…]}
//
// where answer, metadata and conversation are null when there is none, and answers
// with one line on its standard output:
//
//	{"reward":0.5,"details":{…}}    reward null: not scored; details may be left out,
//	                                else they are an object
//	{"error":"…"}                   it cannot judge
//
// A process gets the next line only after it answered. One that ends, answers
// something else, or takes too long is killed and replaced; that rollout stays
// without a reward, because nobody knows what the program did with it.
//
// A Command is safe for concurrent use; rollouts wait for a free process.
type Command struct {
	cfg  CommandConfig
	free chan *process // nil: a process that is yet to be started

	closeOnce sync.Once
	closed    chan struct{}
}

// NewCommand makes a Command; processes start when they are first needed.
func NewCommand(cfg CommandConfig) (*Command, error) {
	if len(cfg.Args) == 0 {
		return nil, errors.New("reward: no command given")
	}
	if cfg.Processes < 0 || cfg.Timeout < 0 {
		return nil, errors.New("reward: processes and timeout must not be negative")
	}
	if cfg.Processes == 0 {
		cfg.Processes = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	c := &Command{cfg: cfg, free: make(chan *process, cfg.Processes), closed: make(chan struct{})}
	for range cfg.Processes {
		c.free <- nil
	}
	return c, nil
}

type question struct {
	TaskID       string          `json:"task_id"`
	Messages     []string        `json:"messages"`
	Answer       *string         `json:"answer"`
	Metadata     json.RawMessage `json:"metadata"`
	Output       string          `json:"output"`
	Conversation json.RawMessage `json:"conversation"`
}

type verdict struct {
	Reward  *float64        `json:"reward"`
	Details json.RawMessage `json:"details"`
	Error   string          `json:"error"`
}

// Score asks a process.
func (c *Command) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	line, err := json.Marshal(question{t.ID, t.Messages, t.Answer, t.Metadata, r.Output, r.Messages})
	if err != nil {
		return collector.Reward{}, fmt.Errorf("reward: task %s: %w", t.ID, err)
	}
	var p *process
	select {
	case p = <-c.free:
	case <-c.closed:
		return collector.Reward{}, errors.New("reward: command is closed")
	case <-ctx.Done():
		return collector.Reward{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, fmt.Errorf("no answer within %v", c.cfg.Timeout))
	defer cancel()
	v, p, err := c.ask(ctx, p, append(line, '\n'))
	c.free <- p // never blocks: it has room for every process
	switch {
	case err != nil:
		return collector.Reward{}, fmt.Errorf("reward: %s: %w", c.cfg.Args[0], err)
	case v.Error != "":
		return collector.Reward{}, fmt.Errorf("reward: %s: %s", c.cfg.Args[0], v.Error)
	}
	switch {
	case string(v.Details) == "null":
		v.Details = nil
	case len(v.Details) > 0 && v.Details[0] != '{':
		return collector.Reward{}, fmt.Errorf("reward: %s: details %.80q are no JSON object", c.cfg.Args[0], v.Details)
	}
	return collector.Reward{Value: v.Reward, Details: v.Details}, nil
}

// ask returns the process to keep: nil after one that cannot be trusted any more.
func (c *Command) ask(ctx context.Context, p *process, line []byte) (verdict, *process, error) {
	if p == nil {
		var err error
		if p, err = start(&c.cfg); err != nil {
			return verdict{}, nil, err
		}
	}
	stop := context.AfterFunc(ctx, p.kill) // ends a read that would never return
	answer, err := p.exchange(line)
	if !stop() && err == nil {
		err = io.ErrUnexpectedEOF // killed at the last moment
	}
	var v verdict
	if err == nil {
		if err = json.Unmarshal(answer, &v); err != nil {
			err = fmt.Errorf("answer %.80q: %w", answer, err)
		}
	}
	if err != nil {
		p.kill()
		ended := p.wait()
		if ctx.Err() != nil {
			return v, nil, context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) && ended != nil {
			err = fmt.Errorf("ended without an answer: %w", ended)
		}
		return v, nil, err
	}
	return v, p, nil
}

// Close ends the processes: it closes their input, and kills what is still there
// after the timeout. It waits for scores in progress.
func (c *Command) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		for range c.cfg.Processes {
			p := <-c.free
			if p == nil {
				continue
			}
			timer := time.AfterFunc(c.cfg.Timeout, p.kill)
			_ = p.in.Close()
			_ = p.wait() // its exit status says nothing about any reward
			timer.Stop()
		}
	})
	return nil
}

// A process is one running program.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *os.File
	r   *bufio.Reader

	killOnce sync.Once
}

// maxAnswer bounds one line of a program: a reward and its details are small.
const maxAnswer = 1 << 20

func start(cfg *CommandConfig) (*process, error) {
	cmd := exec.Command(cfg.Args[0], cfg.Args[1:]...) //nolint:noctx // it outlives every context: Close ends it
	cmd.Env, cmd.Dir, cmd.Stderr = cfg.Env, cfg.Dir, cfg.Stderr
	cmd.WaitDelay = time.Second // for a grandchild that holds stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // our own, so that closing it ends a read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err = cmd.Start()
	_ = w.Close() // the program has its copy
	if err != nil {
		_ = out.Close()
		_ = in.Close()
		return nil, err
	}
	return &process{cmd: cmd, in: in, out: out, r: bufio.NewReaderSize(out, 64<<10)}, nil
}

// exchange writes a line and reads one. A program that answers without reading its
// input, or dies, makes the write fail: then its answer, if any, does not count.
func (p *process) exchange(line []byte) ([]byte, error) {
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
			return nil, fmt.Errorf("answer is longer than %d bytes", maxAnswer)
		}
	}
}

// kill ends the program at once. It may be called at any time, and twice.
func (p *process) kill() {
	p.killOnce.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.in.Close()
		_ = p.out.Close()
	})
}

// wait returns how the program ended, and frees what it held.
func (p *process) wait() error {
	err := p.cmd.Wait()
	_ = p.out.Close()
	return err
}
