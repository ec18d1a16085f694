package collect

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A storage failure is reported once, even if the user was interrupting the run.
func TestWhyStopped(t *testing.T) {
	t.Parallel()
	full := &sink.ShardError{Path: "p", Op: "write", Err: syscall.ENOSPC}
	for _, tt := range []struct {
		name            string
		runErr, sinkErr error
		code            int
		text            string
	}{
		{"nothing", nil, nil, exit.OK, ""},
		{"storage, which stopped the run", fmt.Errorf("%w: %w", collector.ErrStorage, full), full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage at the end", nil, full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage while interrupted", signals.ErrInterrupted, full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage after another end", collector.ErrAuth, full, exit.Storage, "collector: not authorized\nstorage failed: p: write: no space left on device"},
		{"something else", collector.ErrAuth, nil, exit.Unusable, "collector: not authorized"},
	} {
		err := whyStopped("run1", tt.runErr, tt.sinkErr)
		if tt.text == "" && err != nil || tt.text != "" && (err == nil || err.Error() != tt.text) || exit.Code(err) != tt.code || interrupted(err) {
			t.Errorf("%s: whyStopped() = %v with code %d, want %q with %d", tt.name, err, exit.Code(err), tt.text, tt.code)
		}
		if (exit.HintOf(err) != "") != (tt.sinkErr != nil) {
			t.Errorf("%s: hint %q", tt.name, exit.HintOf(err))
		}
	}
}
