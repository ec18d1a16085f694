package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	full := &sink.ShardError{Path: "x", Op: "write", Err: &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, exit.OK},
		{"anything", errors.New("x"), exit.Internal},
		{"usage", exit.Usagef("x"), exit.Usage},
		{"wrapped usage", fmt.Errorf("y: %w", exit.Usagef("x")), exit.Usage},
		{"the inner code is kept", exit.With(exit.Storage, exit.Usagef("x")), exit.Usage},
		{"a hint changes no code", exit.Hint(exit.With(exit.Folder, errors.New("x")), "h"), exit.Folder},
		{"disk full", full, exit.Storage},
		{"disk full in a run", fmt.Errorf("%w: %w", collector.ErrStorage, full), exit.Storage},
		{"read only", &os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, exit.Storage},
		{"auth", fmt.Errorf("x: %w", collector.ErrAuth), exit.Unusable},
		{"no endpoint", fmt.Errorf("x: %w", collector.ErrUnavailable), exit.Unusable},
		{"tolerance", collector.ErrTolerance, exit.Tolerance},
		{"interrupted", context.Canceled, exit.Interrupted},
		{"silent", exit.SilentError(exit.Verify), exit.Verify},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := &program{stderr: termsafe.NewWriter(&stderr)}
			if got := p.report(tt.err); got != tt.want {
				t.Errorf("exit code of %v = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"one line", errors.New("x"), "rollout: x\n"},
		{"a hint", exit.Hint(exit.Usagef("x"), "do y"), "rollout: x\nhint: do y\n"},
		{"the inner hint is kept", exit.Hint(fmt.Errorf("z: %w", exit.Hint(exit.Usagef("x"), "do y")), "do w"), "rollout: z: x\nhint: do y\n"},
		{"complaints", exit.Refuse(exit.Usage, exit.Complaints{errors.New("x"), errors.New("y")}, "mend"), "rollout: x\nrollout: y\nhint: mend\n"},
		{"joined", exit.Hint(errors.Join(errors.New("x"), exit.Usagef("y")), "do z"), "rollout: x\nrollout: y\nhint: do z\n"},
		{"two causes", fmt.Errorf("%w: %w", errors.New("x"), errors.New("y")), "rollout: x: y\n"},
		{"lines of a server", fmt.Errorf("x: %w", errors.New("\x1b[2J\r\nrollout: all is well\n")), `rollout: x: \u001b[2J rollout: all is well` + "\n"},
		{"silent", exit.SilentError(3), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := &program{stderr: termsafe.NewWriter(&stderr)}
			p.report(tt.err)
			if got := stderr.String(); got != tt.want {
				t.Errorf("report:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

// Two runs of the program in one process share no state.
func TestRunIsAFunction(t *testing.T) {
	t.Parallel()
	for range 2 {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), []string{"config", "show", "--samples", "3"}, nil, &stdout, &stderr, func(string) string { return "" })
		if code != 0 || !strings.Contains(stdout.String(), "tasks.samples                3\n") || stderr.Len() != 0 {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
		}
	}
}
