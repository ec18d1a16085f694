package reward

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// the folder in which it ran. The folder is removed after the program has answered. Otherwise, both
// are null. In the trial sample, exit_code is 0 and the folder is empty.
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
// If several requests in a row fail, each restart waits up to 250 ms.
//
// When a process is killed, its process group is killed too. The group includes all its children,
// except children that created their own group. If this process itself is killed, no process is killed. The
// program then reaches the end of its standard input, and must exit.
//
// A Command is safe for concurrent use. Rollouts wait for a free process.
type Command struct {
	cfg  CommandConfig
	name string // of the program, in errors
	// preamble is what each process reads before its first line. It is nil if the program is not
	// worker.py.
	preamble []byte
	free     chan *process // a nil element stands for a process that has not yet been started

	closeOnce, killOnce sync.Once
	closed, killed      chan struct{}

	mu     sync.Mutex
	alive  map[*process]bool
	asked  int64
	failed int // number of requests without an answer since the last answer
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
		cfg: cfg, name: cfg.Args[0], free: make(chan *process, cfg.Processes),
		closed: make(chan struct{}), killed: make(chan struct{}), alive: make(map[*process]bool),
	}
	for range cfg.Processes {
		c.free <- nil
	}
	return c, nil
}

// Score sends the rollout to a free process and waits for its answer.
func (c *Command) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	q := questionOf(t, r)
	q.ID = c.nextID()
	v, err := c.ask(ctx, q.ID, q)
	if err != nil {
		return collector.Reward{}, fmt.Errorf("reward: %s: %w", c.name, err)
	}
	reward, err := v.read()
	if err != nil {
		return collector.Reward{}, fmt.Errorf("reward: %s: %w", c.name, err)
	}
	return reward, nil
}

// ask sends a request to a free process, as one line of JSON, and waits for the answer.
func (c *Command) ask(ctx context.Context, id int64, request any) (verdict, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return verdict{}, err
	}
	var p *process
	select {
	case p = <-c.free:
	case <-c.closed:
		return verdict{}, errClosed
	case <-c.killed:
		return verdict{}, errClosed
	case <-ctx.Done():
		return verdict{}, context.Cause(ctx)
	}
	if p == nil {
		if err := c.pause(ctx); err != nil {
			c.free <- nil
			return verdict{}, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, fmt.Errorf("no answer within %v", c.cfg.Timeout))
	defer cancel()
	v, p, err := c.scoreLine(ctx, p, id, append(line, '\n'))
	c.free <- p // never blocks, because the channel has room for every process
	if err == nil && v.Error != "" {
		err = errors.New(v.Error)
	}
	return v, err
}

// A program that fails on every request is started again after a pause. The pause begins at minPause and
// doubles with each failure, up to maxPause.
const (
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// pause waits before a process is started, if earlier requests had no answer.
func (c *Command) pause(ctx context.Context) error {
	c.mu.Lock()
	n := c.failed
	c.mu.Unlock()
	if n < 2 { // one crash is not a pattern
		return nil
	}
	timer := time.NewTimer(min(minPause<<min(n-2, 10), maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.killed:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
	p, err := start(&c.cfg, c.name, c.preamble)
	if err == nil {
		c.alive[p] = true
	}
	return p, err
}

// answered counts the requests without an answer.
func (c *Command) answered(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed++; ok {
		c.failed = 0
	}
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
