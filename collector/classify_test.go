package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// causes has an error of an attempt for every class except those that only the run makes.
var causes = map[collector.Class]error{
	collector.ClassTimeoutTotal:    collector.ErrTimeout,
	collector.ClassTimeoutIdle:     collector.ErrIdle,
	collector.ClassRateLimited:     collector.ErrBusy,
	collector.ClassUnavailable:     collector.ErrUnavailable,
	collector.ClassConnection:      collector.ErrConnection,
	collector.ClassServerError:     collector.ErrServer,
	collector.ClassAborted:         collector.ErrAborted,
	collector.ClassBadRequest:      collector.ErrRejected,
	collector.ClassMalformedCall:   collector.ErrMalformedCall,
	collector.ClassContextOverflow: collector.ErrContextOverflow,
	collector.ClassAgentError:      collector.ErrAgent,
	collector.ClassToolError:       collector.ErrTool,
	collector.ClassNoCalls:         collector.ErrNoCalls,
	collector.ClassEmptyAnswer:     collector.ErrEmptyAnswer,
	collector.ClassForeign:         collector.ErrForeign,
	collector.ClassDecode:          &tokenize.DecodeError{Err: tokenize.ErrSyntax},
	collector.ClassNoTurns:         collector.ErrNoTurns,
	collector.ClassNoPrompt:        &tokenize.AlignError{Reason: tokenize.ReasonNoPrompt, Err: tokenize.ErrNoPrompt},
	collector.ClassTokenMismatch:   &tokenize.AlignError{Reason: tokenize.ReasonIDMismatch, Err: tokenize.ErrIDMismatch},
	collector.ClassUntrained:       &tokenize.AlignError{Reason: tokenize.ReasonAuxiliary, Err: errPlain},
	collector.ClassInternal:        errPlain,
	collector.ClassLost:            collector.ErrGone,
	collector.ClassCensored:        collector.ErrCensored,
	collector.ClassAuth:            collector.ErrAuth,
	collector.ClassUnusable:        collector.ErrUnusable,
	collector.ClassStorage:         collector.ErrStorage,
}

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want collector.Class
	}{
		{"nil", nil, collector.ClassNone},
		{"cancelled", context.Canceled, collector.ClassCancelled},
		{"deadline", context.DeadlineExceeded, collector.ClassTimeoutTotal},
		{"a backend that knows better than the deadline", fmt.Errorf("%w: %w", collector.ErrIdle, context.DeadlineExceeded), collector.ClassTimeoutIdle},
		{"body cut short", &tokenize.ReadError{Err: io.ErrUnexpectedEOF}, collector.ClassConnection},
		{"body cut short cleanly", &tokenize.DecodeError{Err: io.ErrUnexpectedEOF}, collector.ClassConnection},
		{"read fails", &tokenize.ReadError{Err: errPlain}, collector.ClassConnection},
		{"too large", &tokenize.DecodeError{Err: tokenize.ErrTooLarge}, collector.ClassDecode},
		{"broken invariant", &tokenize.AlignError{Err: tokenize.ErrInvariant}, collector.ClassInternal},
		{"fatal wins", errors.Join(collector.ErrConnection, collector.ErrAuth), collector.ClassAuth},
		{"attempt error", &collector.AttemptError{Err: fmt.Errorf("x: %w", collector.ErrTool)}, collector.ClassToolError},
	}
	for class, err := range causes {
		tests = append(tests, struct {
			name string
			err  error
			want collector.Class
		}{class.String(), fmt.Errorf("task: %w", err), class})
	}
	for _, tt := range tests {
		if got := collector.Classify(tt.err); got != tt.want {
			t.Errorf("%s: Classify = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestClassesAreClosed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range collector.Classes() {
		if seen[c.String()] || c.String() == "" {
			t.Errorf("class %d: word %q is empty or taken", uint8(c), c)
		}
		seen[c.String()] = true
		if got, ok := collector.ParseClass(c.String()); got != c || !ok {
			t.Errorf("ParseClass(%q) = %v, %v", c, got, ok)
		}
		if _, ok := causes[c]; !ok && c != collector.ClassCancelled {
			t.Errorf("%v: nothing makes it", c)
		}
	}
	for r := tokenize.ReasonNoPrompt; r <= tokenize.ReasonAmbiguousRetry; r++ {
		if c := collector.Classify(&tokenize.AlignError{Reason: r}); c == collector.ClassInternal || c.Retryable() || c.Fatal() {
			t.Errorf("class of reason %v is %v, want a failure of the data", r, c)
		}
	}
}

func TestAttemptErrorReadsAloud(t *testing.T) {
	t.Parallel()
	err := &collector.AttemptError{Task: "7f3a", Index: 3, Attempt: 2, Stage: collector.StageRun, Err: errPlain}
	if got, want := err.Error(), "task 7f3a, sample 3, attempt 2: run: plain"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

type redactedError struct{ error }

func (redactedError) Redacted() string { return "in short" }

// Redacted shows only text that no server could have written.
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
	bothWays(t, func(r *rig, listens bool) {
		var log strings.Builder
		told := 0
		r.b.script = always(step{closeErr: errPlain})
		r.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if listens {
			r.cfg.Events.CloseFailed = func(collector.Attempt, string, error) { told++ }
		}
		r.finish(tasks(1))
		is(r, "events and lines of the log", told+strings.Count(log.String(), "agent not removed"), 1)
		is(r, "reported by the event", told == 1, listens)
	})
}
