package collect

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// connectSessions opens the sessions of a tap.
func (p *planning) connectSessions(ctx context.Context) (err error) {
	c := p.config
	where := c.Tasks.FromSessions
	if !strings.Contains(where, "://") { // the folder of the tap, or the folder of its sessions
		if _, no := os.Stat(filepath.Join(where, runfolder.SessionsDir)); no == nil {
			where = filepath.Join(where, runfolder.SessionsDir)
		}
	}
	if p.sessions, err = store.OpenSource(ctx, where, c.Tokens.TapToken.Reveal()); err != nil {
		return unreadable(c.Tasks.FromSessions, err)
	}
	p.host.atClose(p.sessions.Close)
	build := session.Config{TrainAuxiliary: c.Tokens.ChainsAll}
	p.backends = []collector.Backend{harness.NewReader(p.sessions, build)}
	p.checks = []preflight.Server{{URL: c.Tasks.FromSessions, Ask: func(context.Context) (runfolder.Server, error) {
		return runfolder.Server{URL: c.Tasks.FromSessions}, nil // OpenSource has asked
	}}}
	return nil
}

// unreadable adds an exit code and a hint to an error from a source of sessions.
func unreadable(where string, err error) error {
	hint := "pass the --spool folder of rollout tap --sessions, or its URL"
	if strings.Contains(where, "://") {
		hint = "check that rollout tap --sessions runs there"
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			hint = "if the tap has a private certificate, set the environment variable SSL_CERT_FILE to it"
		} else if strings.Contains(err.Error(), "pass the tap's token") {
			hint = "set tokens.tap_token, or the environment variable ROLLOUT_TOKENS_TAP_TOKEN, to the token in the tap's --token-file"
		}
	}
	return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("tasks.from_sessions: %w", err)), hint)
}

// A sessionFeed yields the sealed sessions of a source in the order they were sealed.
type sessionFeed struct {
	plan   *Plan
	known  func(id string) bool
	ahead  int // number of listed sessions that have not been yielded
	counts serverruns.Counts
}

func newSessionFeed(p *Plan, known func(id string) bool) *sessionFeed {
	return &sessionFeed{plan: p, known: known}
}

func (f *sessionFeed) Counts() serverruns.Counts { return f.counts }
func (f *sessionFeed) Ready() bool               { return f.ahead > 0 }

// Tasks yields each sealed session that is not yet a task. With tasks.follow, it waits for more until
// ctx is done.
func (f *sessionFeed) Tasks(ctx context.Context) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		if err := f.each(ctx, yield); err != nil && ctx.Err() == nil {
			yield(collector.Task{}, err)
		}
	}
}

func (f *sessionFeed) each(ctx context.Context, yield func(collector.Task, error) bool) error {
	follow := f.plan.config.Tasks.Follow && !f.plan.options.DryRun
	source := f.plan.sessions
	for after := ""; ; {
		entries, err := source.Sealed(ctx, after)
		if err != nil {
			return err
		}
		f.ahead = len(entries)
		for _, e := range entries {
			f.ahead--
			after = e.Name
			if f.known(e.ID) {
				f.counts.Known++
				continue
			}
			task, err := f.task(ctx, e)
			if errors.Is(err, store.ErrUnknown) {
				continue // removed since it was listed
			} else if err != nil {
				return err
			}
			f.counts.Given++
			if !yield(task, nil) {
				return nil
			}
		}
		switch {
		case len(entries) > 0:
		case !follow:
			return nil
		default:
			if err := source.Wait(ctx, after); err != nil {
				return err
			}
		}
	}
}

// task returns the task of a session. It reads the session only if the list lacks the task. The session
// of a damaged file becomes a task too, and then a failure.
func (f *sessionFeed) task(ctx context.Context, e store.Entry) (collector.Task, error) {
	task := collector.Task{ID: e.ID, Samples: 1, Recorded: &collector.Recorded{Run: e.ID}}
	about := e.About
	if about == nil {
		record, err := f.plan.sessions.Read(ctx, e.ID)
		if errors.Is(err, store.ErrDamaged) {
			return task, nil
		} else if err != nil {
			return task, err
		}
		about = &store.About{Task: record.Head.Task, Metadata: record.End.Metadata}
	}
	if t := about.Task; t != nil {
		task.Recorded.TaskID, task.Answer = t.ID, t.Answer
		if t.Prompt != "" {
			task.Messages = []string{t.Prompt}
		}
		task.Metadata = t.Metadata
	}
	task.Metadata = mergedMetadata(task.Metadata, about.Metadata)
	return task, nil
}

// mergedMetadata returns the metadata of the task with the members of the metadata of the end. If
// either is not an object, the metadata of the end wins, unless it is empty.
func mergedMetadata(task, end json.RawMessage) json.RawMessage {
	if len(end) == 0 {
		return task
	}
	var a, b map[string]json.RawMessage
	if json.Unmarshal(task, &a) != nil || json.Unmarshal(end, &b) != nil || a == nil {
		return end
	}
	maps.Copy(a, b)
	raw, err := json.Marshal(a)
	if err != nil {
		return end
	}
	return raw
}
