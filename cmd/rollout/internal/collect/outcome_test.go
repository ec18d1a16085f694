package collect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A run whose commit log becomes unreadable ends with the exit code that its message promises.
func TestUnreadableCommitLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "_commits"), 0o700), os.WriteFile(filepath.Join(dir, "_commits", "00000000000000000001.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	d := show.NewDisplay(termsafe.NewWriter(io.Discard), termsafe.NewWriter(&said), func(string) string { return "" }, false, false)
	p := &Plan{host: &Host{Observer: &show.Observer{Display: d, Log: show.DiscardLog()}}, config: new(config.Config)}
	p.config.Output.Dir = dir
	r := &Running{host: p.host, plan: p}
	r.checkBeside(t.Context())
	sum := &show.Summary{Outcome: "finished", Committed: 1}
	end := withDamage(dir, sum, r.damage.Found(), nil)
	d.Finish(sum)
	d.Flush(lastWords)
	if exit.Code(end) != exit.Verify || strings.Count(end.Error(), dir) != 1 || !strings.Contains(said.String(), "will end with exit status 9") || strings.Contains(said.String(), "next:") {
		t.Errorf("the run ends with %v; it said %q", end, said.String())
	}
}

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
