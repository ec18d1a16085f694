package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
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
		{"none", nil, exitOK},
		{"anything", errors.New("x"), exitInternal},
		{"usage", usageError("x"), exitUsage},
		{"wrapped usage", fmt.Errorf("y: %w", usageError("x")), exitUsage},
		{"the inner code is kept", withExit(exitStorage, usageError("x")), exitUsage},
		{"a hint changes no code", withHint(withExit(exitFolder, errors.New("x")), "h"), exitFolder},
		{"disk full", full, exitStorage},
		{"disk full in a run", fmt.Errorf("%w: %w", collector.ErrStorage, full), exitStorage},
		{"read only", &os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, exitStorage},
		{"auth", fmt.Errorf("x: %w", collector.ErrAuth), exitUnusable},
		{"no endpoint", fmt.Errorf("x: %w", collector.ErrUnavailable), exitUnusable},
		{"tolerance", collector.ErrTolerance, exitTolerance},
		{"interrupted", context.Canceled, exitInterrupted},
		{"silent", silentError(exitVerify), exitVerify},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := &program{stderr: tame.NewWriter(&stderr)}
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
		{"a hint", withHint(usageError("x"), "do y"), "rollout: x\nhint: do y\n"},
		{"the inner hint is kept", withHint(fmt.Errorf("z: %w", withHint(usageError("x"), "do y")), "do w"), "rollout: z: x\nhint: do y\n"},
		{"complaints", &exitError{code: exitUsage, err: complaints{errors.New("x"), errors.New("y")}, hint: "mend"}, "rollout: x\nrollout: y\nhint: mend\n"},
		{"joined", withHint(errors.Join(errors.New("x"), usageError("y")), "do z"), "rollout: x\nrollout: y\nhint: do z\n"},
		{"two causes", fmt.Errorf("%w: %w", errors.New("x"), errors.New("y")), "rollout: x: y\n"},
		{"lines of a server", fmt.Errorf("x: %w", errors.New("\x1b[2J\r\nrollout: all is well\n")), `rollout: x: \u001b[2J rollout: all is well` + "\n"},
		{"silent", silentError(3), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := &program{stderr: tame.NewWriter(&stderr)}
			p.report(tt.err)
			if got := stderr.String(); got != tt.want {
				t.Errorf("report:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}
