package reward

import (
	"bufio"
	"cmp"
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
	"github.com/rollout-rl/rollout/collector/subprocess"
)

// CommandConfig configures a Command.
type CommandConfig struct {
	// Args contains the program and its arguments. The program is started without a shell.
	Args []string
	// Env is the environment. Nil means the environment of this process.
	Env []string
	// Dir is the working directory. Empty means the directory of this process.
	Dir string
	// Processes is the number of concurrent processes. Default 1.
	Processes int
	// Timeout bounds the time to score one rollout. Default 1m.
	Timeout time.Duration
	// Stderr receives the standard error of the processes, up to 256 kB from each process. If
	// Stderr is nil, the standard error is discarded.
	Stderr io.Writer
}

// Command scores rollouts with an external program that keeps running during the run. For each
// rollout, the program reads one line from its standard input:
//
//	{"id":7,"task_id":"t1","messages":["…"],"answer":"…","metadata":{…},"output":"…","reasoning":"…","text":"…","conversation":[…],"stop_reason":"end_turn","exit_code":0,"workdir":"…","trial":false}
//
// The members answer, metadata, conversation, stop_reason, exit_code and workdir can be null. The member messages
// contains the user messages of the task, and conversation all messages of the rollout. The member
// output is the model's answer, reasoning is the text before the answer, and text is the whole text
// that the model wrote.
// The member stop_reason is the column of the same name; it is null in the trial sample.
// If the agent is a command, exit_code is its exit code, or -1 if a signal ended it, and workdir is
// the folder in which it ran. The folder is removed after the program has answered. In the trial
// sample, both are null.
// The member trial is true for the trial sample (see [Try]). The program writes one line to its
// standard output:
//
//	{"reward":0.5,"details":{…}}    a finite number, or null: not scored; details is an
//	                                optional object; id is optional
//	{"error":"…"}                   the program cannot score the rollout
//
// A process gets the next line only after it has answered the previous line. A process is killed
// and replaced if it exits, times out, or writes an invalid answer, a wrong id or more than one
// line. The rollout then gets no reward, because the state of the program is unknown. A line that
// was not requested is detected before the next request, so no rollout gets the reward of another
// rollout.
//
// When a process is killed, its process group is killed too. The group includes all its children,
// except children that created their own group.
//
// A Command is safe for concurrent use. Rollouts wait for a free process.
type Command struct {
	cfg  CommandConfig
	free chan *process // a nil element stands for a process that has not yet been started

	closeOnce, killOnce sync.Once
	closed, killed      chan struct{}

	mu    sync.Mutex
	alive map[*process]bool
	asked int64
}

// Defaults of [CommandConfig].
const (
	DefaultProcesses = 1
	DefaultTimeout   = time.Minute
)

// NewCommand returns a Command. Processes start on first use.
func NewCommand(cfg CommandConfig) (*Command, error) {
	if len(cfg.Args) == 0 {
		return nil, errors.New("reward: no command")
	}
	if cfg.Processes < 0 || cfg.Timeout < 0 {
		return nil, errors.New("reward: processes and timeout must not be negative")
	}
	cfg.Processes = cmp.Or(cfg.Processes, DefaultProcesses)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	c := &Command{
		cfg: cfg, free: make(chan *process, cfg.Processes),
		closed: make(chan struct{}), killed: make(chan struct{}), alive: make(map[*process]bool),
	}
	for range cfg.Processes {
		c.free <- nil
	}
	return c, nil
}

type question struct {
	ID           int64           `json:"id"`
	TaskID       string          `json:"task_id"`
	Messages     []string        `json:"messages"`
	Answer       *string         `json:"answer"`
	Metadata     json.RawMessage `json:"metadata"`
	Output       string          `json:"output"`
	Reasoning    string          `json:"reasoning"`
	Text         string          `json:"text"`
	Conversation json.RawMessage `json:"conversation"`
	StopReason   *string         `json:"stop_reason"`
	ExitCode     *int            `json:"exit_code"`
	Workdir      *string         `json:"workdir"`
	Trial        bool            `json:"trial"`
}

type verdict struct {
	ID      *int64          `json:"id"`
	Reward  json.RawMessage `json:"reward"`
	Details json.RawMessage `json:"details"`
	Error   string          `json:"error"`
}

// Score sends the rollout to a free process and waits for its answer.
func (c *Command) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	id := c.nextID()
	var workdir *string
	if r.Workdir != "" {
		workdir = &r.Workdir
	}
	var stop *string
	if n := len(r.Sends); n > 0 {
		stop = &r.Sends[n-1].StopReason
	}
	line, err := json.Marshal(question{
		id, t.ID, t.Messages, t.Answer, t.Metadata, r.Output, r.Reasoning, r.Text, r.Messages, stop, r.ExitCode, workdir, r.Trial,
	})
	if err != nil {
		return collector.Reward{}, fmt.Errorf("reward: task %s: %w", t.ID, err)
	}
	var p *process
	select {
	case p = <-c.free:
	case <-c.closed:
		return collector.Reward{}, errClosed
	case <-c.killed:
		return collector.Reward{}, errClosed
	case <-ctx.Done():
		return collector.Reward{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, fmt.Errorf("no answer within %v", c.cfg.Timeout))
	defer cancel()
	v, p, err := c.scoreLine(ctx, p, id, append(line, '\n'))
	c.free <- p // never blocks, because the channel has room for every process
	switch {
	case err != nil:
		return collector.Reward{}, fmt.Errorf("reward: %s: %w", c.cfg.Args[0], err)
	case v.Error != "":
		return collector.Reward{}, fmt.Errorf("reward: %s: %s", c.cfg.Args[0], v.Error)
	}
	reward, err := v.read()
	if err != nil {
		return collector.Reward{}, fmt.Errorf("reward: %s: %w", c.cfg.Args[0], err)
	}
	return reward, nil
}

func (v *verdict) read() (collector.Reward, error) {
	out := collector.Reward{Details: v.Details}
	switch {
	case string(v.Details) == "null":
		out.Details = nil
	case len(v.Details) > 0 && v.Details[0] != '{':
		return collector.Reward{}, fmt.Errorf("details %.80q are not a JSON object", v.Details)
	}
	switch {
	case v.Reward == nil:
		return collector.Reward{}, errors.New(`the answer has no member "reward"`)
	case string(v.Reward) == "null":
		return out, nil
	}
	if err := json.Unmarshal(v.Reward, &out.Value); err != nil {
		return collector.Reward{}, fmt.Errorf("reward %.80q is not a finite number", v.Reward)
	}
	return out, nil
}

var errClosed = errors.New("reward: command is closed")

func (c *Command) nextID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.asked
}

// start starts a process unless Kill was called.
func (c *Command) start() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.killed:
		return nil, errClosed
	default:
	}
	p, err := start(&c.cfg)
	if err == nil {
		c.alive[p] = true
	}
	return p, err
}

func (c *Command) end(p *process) error {
	err := p.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.alive, p)
	return err
}

// Kill kills all processes and their children. Calls of Score in progress fail, and no new process
// starts. The caller must still call Close.
func (c *Command) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killOnce.Do(func() { close(c.killed) })
	for p := range c.alive {
		p.kill()
	}
}

// scoreLine sends a line to the process p, which it starts if p is nil. It returns the answer and
// the process to keep, or a nil process if the process can no longer be trusted.
func (c *Command) scoreLine(ctx context.Context, p *process, id int64, line []byte) (verdict, *process, error) {
	if p != nil {
		if line := p.unrequested(); line != "" {
			p.kill()
			_ = c.end(p) // the exit status does not matter
			return verdict{}, nil, fmt.Errorf("the program wrote %.80q before it received a request", line)
		}
	}
	if p == nil {
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
		if err = json.Unmarshal(answer, &v); err != nil {
			err = fmt.Errorf("cannot decode answer %.80q: %w", answer, err)
		}
	}
	switch {
	case err != nil:
	case v.ID != nil && *v.ID != id:
		err = fmt.Errorf("answer %.80q is for request %d, want %d", answer, *v.ID, id)
	case p.r.Buffered() > 0:
		rest, _ := p.r.Peek(p.r.Buffered())
		err = fmt.Errorf("the program wrote more than one line: %.80q after %.80q", rest, answer)
	}
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

// exitWait bounds the wait for the exit of a program that closed its output.
const exitWait = 200 * time.Millisecond

func (c *Command) isKilled() bool {
	select {
	case <-c.killed:
		return true
	default:
		return false
	}
}

// closeWithin bounds the wait for the exit of all processes after their input is closed.
const closeWithin = 5 * time.Second

// Close waits until all calls of Score have returned and then closes the input of the processes. It
// kills processes that are still running after five seconds, or after Timeout if that is shorter.
func (c *Command) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		var all []*process
		for range c.cfg.Processes {
			if p := <-c.free; p != nil {
				_ = p.in.Close()
				all = append(all, p)
			}
		}
		timer := time.AfterFunc(min(closeWithin, c.cfg.Timeout), c.Kill)
		defer timer.Stop()
		for _, p := range all {
			_ = c.end(p)                // the exit status no longer matters
			subprocess.KillGroup(p.cmd) // kills the remaining children of the process
		}
	})
	return nil
}

type process struct {
	cmd  *exec.Cmd
	talk *talk
	in   io.WriteCloser
	out  *os.File
	r    *bufio.Reader

	killOnce, waitOnce sync.Once
	done               chan struct{} // closed when the process has exited
	ended              error         // the exit error, valid after done
}

// maxAnswer bounds the size of one line from a program. A reward and its details are small.
const maxAnswer = 1 << 20

func start(cfg *CommandConfig) (*process, error) {
	cmd := exec.Command(cfg.Args[0], cfg.Args[1:]...) //nolint:noctx // it outlives every context: Close ends it
	cmd.Env, cmd.Dir = cfg.Env, cfg.Dir
	said := &talk{to: cfg.Stderr, name: cfg.Args[0], left: maxTalk}
	cmd.Stderr = said
	subprocess.OwnGroup(cmd)
	cmd.WaitDelay = time.Second // needed if a grandchild keeps stderr open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // not StdoutPipe: closing this pipe unblocks a read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err = cmd.Start()
	_ = w.Close() // the program has its own copy of this end
	if err != nil {
		_ = out.Close()
		_ = in.Close()
		return nil, err
	}
	return &process{cmd: cmd, talk: said, in: in, out: out, r: bufio.NewReaderSize(out, 64<<10), done: make(chan struct{})}, nil
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
		}()
	})
	return p.done
}

func (p *process) wait() error {
	<-p.exited()
	_ = p.out.Close()
	return p.ended
}
