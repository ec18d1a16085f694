package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/subprocess"
	"github.com/rollout-rl/rollout/tokenize"
)

// An agent is the command of one attempt. It implements collector.Agent.
type agent struct {
	cfg     Config
	program string
	mark    string // see markOf
	id      string // the id of the session
	values         // if an earlier process ran the command, only the folder is set
	secrets *redactor

	end    *ending // nil until the command has ended
	sealed bool    // End was called with success
	record *session.Record
	calls  []tokenize.Call
}

// An ending describes how a command ended. It is the metadata of the end of the session, so that the
// next process can take over the attempt.
type ending struct {
	subprocess.Result
	TimedOut bool      `json:"timed_out,omitempty"`
	Stopped  bool      `json:"stopped,omitempty"` // the attempt was cut off or canceled
	Began    time.Time `json:"began"`
	// NoAnswer is the reason why the final answer could not be read. It is empty if the final answer
	// was read.
	NoAnswer string `json:"no_answer,omitempty"`
	// LastLine is the last line that the command wrote, in a form that follows an error.
	LastLine string `json:"last_line,omitempty"`
	// Answer is the final answer. The final text of the session is the answer without secrets. If the
	// two differ, Redacted is true, and the folder of the attempt contains the answer until it is scored.
	Answer   string `json:"-"`
	Redacted bool   `json:"redacted,omitempty"`
}

func (g *agent) ID() string { return g.id }

// Run runs the command, kills its processes, seals the session, and reads it. The command ends at
// Config.Timeout or when ctx is done.
func (g *agent) Run(ctx context.Context) (*collector.Reply, error) {
	if g.end == nil {
		if err := g.execute(ctx); err != nil {
			return nil, err
		}
		if err := g.seal(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", collector.ErrStorage, err)
		}
	}
	rollout, err := session.Build(g.record, g.cfg.Build)
	reply := g.reply(rollout)
	if rollout != nil {
		g.calls = rollout.Calls
	}
	if ctx.Err() != nil {
		return reply, context.Cause(ctx)
	}
	var down error
	if g.end.TimedOut {
		down = g.cfg.Check(ctx)
	}
	return reply, g.failure(rollout, err, down)
}

// errTimeout ends a command at Config.Timeout.
var errTimeout = errors.New("the command timed out")

// execute runs the command to its end.
func (g *agent) execute(ctx context.Context) error {
	timed, cancel := context.WithTimeoutCause(ctx, g.cfg.Timeout, errTimeout)
	defer cancel()
	args := make([]string, len(g.cfg.Command))
	for i, a := range g.cfg.Command {
		args[i] = g.expand(a)
	}
	args[0] = g.program
	stdout, stderr := &tail{max: maxOutput, secrets: g.secrets}, &tail{max: maxErrors, secrets: g.secrets}
	began := time.Now()
	r, err := subprocess.Run(timed, subprocess.Program{
		Args: args, Env: g.environ(g.cfg.Env), Dir: g.work(), Mark: g.mark, Stdin: g.expand(g.cfg.Stdin),
		Stdout: stdout, Stderr: stderr, Supervisor: g.cfg.Supervisor,
	})
	if err != nil && timed.Err() == nil {
		return startError(err)
	}
	g.end = &ending{
		Result: r, Began: began,
		TimedOut: errors.Is(err, errTimeout), Stopped: err != nil && !errors.Is(err, errTimeout),
	}
	g.end.LastLine = stderr.last()
	if g.end.LastLine == "" {
		g.end.LastLine = stdout.last()
	}
	if g.cfg.Output.kind != outputSession {
		g.end.Answer, err = g.cfg.Output.read(g.folder, stdout)
		if err != nil {
			g.end.NoAnswer = g.secrets.text(err.Error())
		}
	}
	return nil
}

// maxErrors limits the size of the standard error that is kept, in bytes. Only its last line is
// used.
const maxErrors = 64 << 10

// startError classifies the error of a command that did not start.
func startError(err error) error {
	switch {
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: %w", collector.ErrRejected, err) // because of the prompt
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: %w", collector.ErrUnusable, err)
	}
	return fmt.Errorf("%w: %w", collector.ErrUnavailable, err) // no memory, too many processes or files
}

// sealWithin limits the time to seal a session if the context has already ended.
const sealWithin = 30 * time.Second

// seal seals the session and reads it.
func (g *agent) seal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealWithin)
	defer cancel()
	end := session.End{}
	if g.end != nil {
		if g.cfg.Output.kind != outputSession {
			end.FinalText = new(g.secrets.text(g.end.Answer))
			if g.end.Redacted = *end.FinalText != g.end.Answer; g.end.Redacted {
				_ = writeAnswer(g.folder, g.end.Answer) // on an error, the attempt cannot be taken over
			}
		}
		end.Metadata, _ = json.Marshal(g.end) // cannot fail
	}
	if err := g.cfg.Sessions.End(ctx, g.key, end); err != nil {
		return err
	}
	g.sealed = true
	var err error
	g.record, err = g.cfg.Sessions.Read(g.id)
	return err
}

// Prompts returns the calls of the session in the order of the Reply.
func (g *agent) Prompts(context.Context, *collector.Reply) ([]tokenize.Call, error) {
	return g.calls, nil
}

// Close removes the folder of the attempt and its session. If Run was not called, Close first seals
// the session.
func (g *agent) Close(ctx context.Context) error {
	var err error
	if g.key != "" && !g.sealed {
		err = g.seal(ctx)
	}
	g.record, g.calls = nil, nil
	if err == nil {
		err = g.cfg.Sessions.Remove(g.id)
	}
	if g.cfg.Keep {
		_ = os.Remove(filepath.Join(g.folder, answerFile)) // it rarely exists
	} else {
		err = errors.Join(err, removeFolder(g.folder))
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", g.id, err)
	}
	return nil
}

// discard kills the processes of an attempt that cannot be run or taken over. It removes its session
// and, unless keep is set, its folder.
func (g *agent) discard(keep bool) {
	_ = clearAttempt(g.cfg.Dir, g.mark, keep) // Clean tries it again
	if g.key != "" {
		_ = g.seal(context.Background())
	}
	if g.id != "" {
		_ = g.cfg.Sessions.Remove(g.id)
	}
}
