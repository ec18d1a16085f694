package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// taps holds the readers of the configured taps and the calls that they saw. Nil means that no tap
// is configured.
type taps struct {
	readers []*tap.Reader
	calls   *tap.Index
}

// openTaps opens the taps. It skips calls that ended before the time that since returns; the zero
// time skips none.
func openTaps(c *config.Config, since func() time.Time) (*taps, error) {
	if len(c.Tokens.Tap) == 0 {
		return nil, nil
	}
	t := &taps{}
	from := since()
	var feeds []tap.Feed
	for _, where := range c.Tokens.Tap {
		r, err := tap.OpenReader(where)
		if err != nil {
			t.close()
			return nil, exit.Hint(exit.With(exit.Unusable, fmt.Errorf("tokens.tap: %w", err)), tapHint(where, err))
		}
		r.Since(from)
		t.readers, feeds = append(t.readers, r), append(feeds, r)
	}
	cfg := tap.IndexConfig{Since: from}
	if c.Tasks.FromRuns != nil { // server runs can be of any age
		cfg.MaxAge, cfg.MaxBytes = 365*24*time.Hour, 1<<30
	}
	t.calls = tap.NewIndex(cfg, feeds...)
	return t, nil
}

// hostPort matches a URL that lacks its scheme.
var hostPort = regexp.MustCompile(`^[^/\\]+:[0-9]+/?$`)

func tapHint(where string, err error) string {
	const without = "Without --tap, prompts come from other sources, and rows lack the parameters that the tap sets"
	switch {
	case errors.Is(err, frame.ErrNewer):
		return "use the rollout version of the tap, or a newer one"
	case strings.Contains(where, "://"):
		return "is rollout tap running there? " + without
	case hostPort.MatchString(where):
		return "if rollout tap listens there, use its URL: --tap http://" + strings.TrimSuffix(where, "/")
	}
	return "--tap takes the spool folder of a tap, with files such as 1763912345678.tap. Start the tap with rollout tap --engine URL --spool DIR, " +
		"and use that DIR, or the URL of the tap if it runs on another machine. " + without
}

func (t *taps) index() *tap.Index {
	if t == nil {
		return nil
	}
	return t.calls
}

// follow starts reading the taps. The returned function stops it. note reports a tap that can no
// longer be read.
func (t *taps) follow(note func(format string, args ...any)) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := t.calls.Run(ctx); err != nil {
			note("the tap can no longer be read; prompts come from other sources: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
		t.close()
	}
}

func (t *taps) close() {
	for _, r := range t.readers {
		r.Close()
	}
}

// tappedBefore is a margin: taps are read from this long before the start of the run.
const tappedBefore = time.Minute

// tappedSince returns the earliest time of a call that can belong to the run: the start of this
// process, or of the oldest attempt that an earlier process left open. For server runs it is
// tasks.from_runs since.
func (c *collection) tappedSince() time.Time {
	if runs := c.config.Tasks.FromRuns; runs != nil {
		return runs.Since
	}
	since := time.Now()
	if c.earlier != nil {
		since = openSince(filepath.Join(c.dir(), runfolder.JournalDir), since)
	}
	return since.Add(-tappedBefore)
}

// openSince returns when the oldest attempt without an end in the journal began, or now. It ignores
// damage; opening the journal reports it.
func openSince(dir string, now time.Time) time.Time {
	type attempt struct {
		key string
		n   int
	}
	open := map[attempt]time.Time{}
	for e, err := range journal.Read(dir) {
		if err != nil {
			continue
		}
		switch a := (attempt{e.Key, e.Attempt}); e.Op {
		case journal.OpBegin:
			open[a] = e.Time
		case journal.OpEnd:
			delete(open, a)
		default:
		}
	}
	for _, t := range open {
		if t.Before(now) {
			now = t
		}
	}
	return now
}
