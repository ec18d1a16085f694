package cases_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Build builds the program into a temporary folder of the test, and returns its path.
func Build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollout")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "github.com/rollout-rl/rollout/cmd/rollout")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build rollout: %v\n%s", err, out)
	}
	return path
}

// A Run is the result of a finished program.
type Run struct {
	Code           int
	Stdout, Stderr string
	CPU            time.Duration
}

// Run runs the program with [Letta.Command] and waits for it. A nonzero exit code does not fail the
// test.
func (l *Letta) Run(t *testing.T, program string, args ...string) Run {
	t.Helper()
	cmd := l.Command(t.Context(), program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			t.Fatal(err)
		}
	}
	s := cmd.ProcessState
	return Run{s.ExitCode(), stdout.String(), stderr.String(), s.UserTime() + s.SystemTime()}
}

// MustRun is like Run, but fails the test unless the program exits with code.
func (l *Letta) MustRun(t *testing.T, code int, program string, args ...string) Run {
	t.Helper()
	r := l.Run(t, program, args...)
	if r.Code != code {
		t.Fatalf("rollout %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.Code, code, r.Stdout, r.Stderr)
	}
	return r
}

// Command returns a command that runs the program with this Letta's password. Other settings of the
// program in the environment are removed.
func (l *Letta) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ROLLOUT_") && !strings.HasPrefix(v, "LETTA_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if l.cfg.Password != "" {
		cmd.Env = append(cmd.Env, "LETTA_PASSWORD="+l.cfg.Password, "ROLLOUT_SERVER_PASSWORD=${env:LETTA_PASSWORD}")
	}
	return cmd
}
