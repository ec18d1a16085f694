package main

import (
	"log/slog"
	"strings"
	"testing"
)

// TestContinuityWithRender checks that --continuity also applies to calls outside sessions if the tap renders
// prompts. A template that these calls need but sessions do not is a warning.
func TestContinuityWithRender(t *testing.T) {
	t.Parallel()
	for tokenizer, supported := range map[string]bool{qwen3Dir: true, "simulated": false} {
		for _, render := range []bool{true, false} {
			var log strings.Builder
			o := tapOptions{
				listen: "127.0.0.1:0", spool: t.TempDir(), engines: []string{"http://127.0.0.1:1"}, spoolBytes: "1MiB", healthEvery: 1,
				sessions: true, continuity: true, render: render, tokenizer: tokenizer, maxPrompt: 100,
			}
			cfg, _, _, err := o.config(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			if (err == nil) != (supported || render) {
				t.Errorf("%s, --render %v: %v", tokenizer, render, err)
			}
			if err != nil {
				continue
			}
			warned := strings.Contains(log.String(), "--continuity applies only to sessions")
			if (cfg.Continuer != nil) != supported || warned == supported || (cfg.Renderer != nil) != render || !cfg.Continuity {
				t.Errorf("%s, --render %v: the configuration is %+v, and the log %q", tokenizer, render, cfg, log.String())
			}
		}
	}
}
