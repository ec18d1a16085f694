// Package taps reads the configured taps.
package taps

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// Taps contains the readers of the configured taps, and the calls that they have read. A nil *Taps
// means that no tap is configured.
type Taps struct {
	readers []*tap.Reader
	calls   *tap.Index
}

// Open opens the taps. It skips the calls that ended before the time returned by since. If since
// returns the zero time, Open skips no calls.
func Open(c *config.Config, since func() time.Time) (*Taps, error) {
	if len(c.Tokens.Tap) == 0 {
		return nil, nil
	}
	t := &Taps{}
	from := since()
	var feeds []tap.Feed
	for _, where := range c.Tokens.Tap {
		r, err := tap.OpenReader(where, c.Tokens.TapToken.Reveal())
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

// hostPort matches a URL without a scheme.
var hostPort = regexp.MustCompile(`^[^/\\]+:[0-9]+/?$`)

func tapHint(where string, err error) string {
	const without = "Without --tap, prompts come from other sources, and rows do not record the sampling parameters that the tap sets"
	switch {
	case errors.Is(err, frame.ErrNewer):
		return "use the tap's version of rollout, or a newer version"
	case strings.Contains(err.Error(), "401 Unauthorized"):
		return "set tokens.tap_token, or the environment variable ROLLOUT_TOKENS_TAP_TOKEN, to the token in the tap's --token-file"
	case strings.Contains(where, "://"):
		return "check that rollout tap is running there. " + without
	case hostPort.MatchString(where):
		return "if rollout tap listens there, use its URL: --tap http://" + strings.TrimSuffix(where, "/")
	}
	return "--tap takes the spool folder of a tap (it contains files such as 1763912345678.tap). Start the tap with rollout tap --engine URL --spool DIR, " +
		"and use that DIR, or the URL of the tap if it runs on another machine. " + without
}

// Index returns the calls that the taps saw. It returns nil if no tap is configured.
func (t *Taps) Index() *tap.Index {
	if t == nil {
		return nil
	}
	return t.calls
}

// Follow starts reading the taps. The returned function stops the reading. Follow calls note if the
// taps can no longer be read.
func (t *Taps) Follow(note func(format string, args ...any)) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := t.calls.Run(ctx); err != nil {
			note("the tap can no longer be read, so prompts now come from other sources: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
		t.close()
	}
}

func (t *Taps) close() {
	for _, r := range t.readers {
		r.Close()
	}
}

// Before is a safety margin: taps are read from one minute before the start of the run.
const Before = time.Minute
