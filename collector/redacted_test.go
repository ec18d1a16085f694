package collector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

type redactedError struct{ error }

func (redactedError) Redacted() string { return "in short" }

// Redacted shows only text that no server can have written.
func TestRedacted(t *testing.T) {
	t.Parallel()
	const prose = "canary prose"
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"none", nil, ""},
		{"its own, wherever it is", fmt.Errorf("run: %w", redactedError{fmt.Errorf("%w: %s", collector.ErrServer, prose)}), "in short"},
		{"also of a class that is shown", fmt.Errorf("run: %w", redactedError{fmt.Errorf("%w: %s", collector.ErrConnection, prose)}), "in short"},
		{"a lost connection", &collector.AttemptError{Task: prose, Err: fmt.Errorf("%w: reset", collector.ErrConnection)}, "collector: connection failed: reset"},
		{"a server's text", fmt.Errorf("%w: %s", collector.ErrServer, prose), ""},
		{"no one knows whose", errors.New(prose), ""},
	} {
		if got := collector.Redacted(tt.err); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// An agent that is not removed is reported once: to CloseFailed, or by default to the logger.
func TestRemovalFailureReportedOnce(t *testing.T) {
	t.Parallel()
	for _, listens := range []bool{false, true} {
		var log strings.Builder
		told := 0
		b := &scripted{script: func(collector.Attempt) step { return step{closeErr: errPlain} }}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if listens {
				cfg.Events.CloseFailed = func(collector.Attempt, string, error) { told++ }
			}
		})
		if err := c.Run(context.Background(), tasks(1)); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Count(log.String(), "agent not removed"); told+logged != 1 || (told == 1) != listens {
			t.Errorf("listens %v: the event fired %d times, %d lines\n%s", listens, told, logged, log.String())
		}
	}
}
