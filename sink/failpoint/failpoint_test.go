//go:build failpoint

package failpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink/failpoint"
)

// TestHit tests that only the chosen hit of the chosen step kills, in copies of the test binary.
func TestHit(t *testing.T) {
	if os.Getenv(failpoint.Variable) != "" {
		for range 5 {
			os.Stdout.WriteString("at ")
			failpoint.Hit(failpoint.WALAcked)
			failpoint.Hit(failpoint.WALSynced)
		}
		os.Stdout.WriteString("end")
		return
	}
	for _, tt := range []struct {
		choice string
		killed bool
		out    string
	}{
		{"wal.synced:3", true, "at at at "},
		{"wal.synced", true, "at "},
		{"wal.synced:6", false, "at at at at at end"},
		{"wal.snyced", false, "panic: failpoint"},
		{"wal.synced:x", false, "panic: failpoint"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHit$")
		cmd.Env = append(os.Environ(), failpoint.Variable+"="+tt.choice)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if killed != tt.killed || !strings.Contains(string(out), tt.out) || tt.killed && strings.HasPrefix(string(out), tt.out+"at") {
			t.Errorf("%s: killed is %t (%v), output %q", tt.choice, killed, err, out)
		}
	}
}
