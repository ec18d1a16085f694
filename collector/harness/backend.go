package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
)

// A Backend runs a command for each attempt. It implements [collector.Backend],
// [collector.Reattacher] and [collector.Checker].
type Backend struct {
	cfg     Config
	program string // absolute path of the command's program
}

var (
	_ collector.Backend    = (*Backend)(nil)
	_ collector.Reattacher = (*Backend)(nil)
	_ collector.Checker    = (*Backend)(nil)
)

// NewBackend returns a backend. It returns an error if the configuration is invalid, the program of
// the command does not exist, or the work folder does not exist. The error wraps
// [collector.ErrUnusable].
func NewBackend(cfg Config) (*Backend, error) {
	cfg = cfg.withDefaults()
	err := cfg.Validate()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrUnusable, err)
	}
	program, err := cfg.program()
	if err = errors.Join(err, checkWorkdir(cfg.Workdir)); err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrUnusable, err)
	}
	return &Backend{cfg: cfg, program: program}, nil
}

// Serve sets Config.Served and Config.Context. It must be called before the first attempt. It returns
// an error if the configuration needs the context length and the context is 0.
func (b *Backend) Serve(model string, context int64) error {
	b.cfg.Served, b.cfg.Context = model, context
	if context == 0 && (b.cfg.mentions("{context}") || b.cfg.mentions("{max_output}")) {
		return fmt.Errorf("%w: the engine does not state the context length of its model (max_model_len in GET /v1/models), "+
			"but the settings of the harness contain {context} or {max_output}; use an engine that states it, or write a number", collector.ErrUnusable)
	}
	return nil
}

// overrides are the settings that a task can override.
type overrides struct {
	Workdir string            `json:"workdir"`
	Env     map[string]string `json:"env"`
}

// CheckTask returns an error if the backend cannot run the task. The error wraps
// [collector.ErrRejected].
func (b *Backend) CheckTask(t *collector.Task) error {
	_, err := b.overridden(t)
	return err
}

func (b *Backend) overridden(t *collector.Task) (Config, error) {
	cfg := b.cfg
	refuse := func(format string, args ...any) (Config, error) {
		return cfg, fmt.Errorf("%w: "+format, append([]any{collector.ErrRejected}, args...)...)
	}
	if t.Recorded != nil || len(t.Messages) != 1 {
		return refuse("the task has %d messages, but a command receives exactly one", len(t.Messages))
	}
	if len(t.Agent) == 0 {
		return cfg, nil
	}
	var o overrides
	d := json.NewDecoder(bytes.NewReader(t.Agent))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return refuse("agent: a command has only the settings workdir and env: %w", err)
	}
	if o.Workdir != "" {
		cfg.Workdir = o.Workdir
		if err := checkWorkdir(o.Workdir); err != nil {
			return refuse("%w", err)
		}
	}
	for name, value := range o.Env {
		if IsSecret(name, value) {
			return refuse("agent: env: %s: the value can be a secret, so set it in harness.env as a reference", name)
		}
	}
	cfg.Env = merged(cfg.Env, o.Env)
	return cfg, nil
}

// Open makes the folder of the attempt, copies the work folder, and begins the session. The command
// starts in Run. Open blocks until the files are copied. If it fails, it leaves nothing behind.
func (b *Backend) Open(_ context.Context, a collector.Attempt) (collector.Agent, error) {
	cfg, err := b.overridden(a.Task)
	if err != nil {
		return nil, err
	}
	g := &agent{cfg: cfg, program: b.program, mark: markOf(&a), secrets: newRedactor(&cfg)}
	if err := g.open(a.Task); err != nil {
		g.discard(false)
		return nil, err
	}
	return g, nil
}

func (g *agent) open(t *collector.Task) error {
	// The error is not one of the storage of the run, because the folder is a temporary one.
	unavailable := func(err error) error {
		return fmt.Errorf("%w: the folder of the attempt: %w", collector.ErrUnavailable, err)
	}
	g.values = values{prompt: t.Messages[0], model: g.cfg.Model, baseURL: g.cfg.BaseURL, context: g.cfg.Context}
	var err error
	if g.folder, err = makeFolder(g.cfg.Dir, g.mark, g.cfg.Workdir); err != nil {
		return unavailable(err)
	}
	head := session.Head{Model: g.cfg.Served, Task: &session.Task{ID: t.ID, Prompt: t.Messages[0], Answer: t.Answer, Metadata: t.Metadata}}
	if g.key, err = g.cfg.Sessions.Begin(head); err != nil {
		return fmt.Errorf("%w: begin a session: %w", collector.ErrStorage, err)
	}
	g.id = g.key.ID()
	if err := os.WriteFile(filepath.Join(g.folder, sessionFile), []byte(g.id), 0o600); err != nil {
		return unavailable(err)
	}
	if err := g.writeFiles(g.cfg.Files); err != nil {
		return unavailable(err)
	}
	return nil
}

// Reattach takes over an attempt of a dead process if its command had ended and its session was
// sealed. Otherwise it kills the processes of the attempt, removes its session and, unless Config.Keep
// is set, its folder, and returns an error that wraps [collector.ErrGone].
func (b *Backend) Reattach(_ context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	a.N = left.N
	g := &agent{cfg: b.cfg, program: b.program, mark: markOf(&a), id: left.AgentID, secrets: newRedactor(&b.cfg)}
	g.folder = folderOf(g.cfg.Dir, g.mark)
	if g.id == "" {
		id, _ := os.ReadFile(filepath.Join(g.folder, sessionFile)) // on an error, there is no session
		g.id = string(id)
	}
	if err := g.takeOver(); err != nil {
		g.discard(g.cfg.Keep)
		return nil, fmt.Errorf("%w: %w", collector.ErrGone, err)
	}
	return g, nil
}

// takeOver reads the sealed session of an earlier process.
func (g *agent) takeOver() error {
	if g.id == "" {
		return errors.New("the attempt has no session")
	}
	record, err := g.cfg.Sessions.Read(g.id)
	if err != nil {
		return err
	}
	if record.End == nil {
		return fmt.Errorf("session %s was not sealed", g.id)
	}
	var end ending
	if err := json.Unmarshal(record.End.Metadata, &end); err != nil {
		return fmt.Errorf("session %s was not sealed by this program: %w", g.id, err)
	}
	if end.Stopped {
		return fmt.Errorf("the command of session %s was stopped", g.id)
	}
	if _, err := os.Stat(g.work()); err != nil {
		return err // a scorer needs the folder
	}
	if record.End.FinalText != nil {
		end.Answer = *record.End.FinalText
	}
	if end.Redacted {
		b, err := os.ReadFile(filepath.Join(g.folder, answerFile))
		if err != nil || g.secrets.text(string(b)) != end.Answer {
			return fmt.Errorf("the final answer of session %s is lost: %w", g.id, cmp.Or(err, errors.New("its file has changed")))
		}
		end.Answer = string(b)
	}
	g.record, g.end = record, &end
	return nil
}

// Check calls Config.Check. It does not run the command, because an agent can take minutes and have
// effects.
func (b *Backend) Check(ctx context.Context, _ string) error { return b.cfg.Check(ctx) }
