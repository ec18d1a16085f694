package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// Single calls that are missing in samples with rows are listed, but do not count as failed
// samples.
func TestFailuresOfSingleCalls(t *testing.T) {
	t.Parallel()
	lost := func(call int32) tokenize.Failure {
		return tokenize.Failure{Class: "no_prompt", Stage: "prompt", Reason: "prompt_unavailable", Error: "unknown", Call: call}
	}
	run := func(t *testing.T, withFailure bool) string {
		t.Helper()
		b, dir := sinktest.NewBuilder(1), t.TempDir()
		whole, partial, more := b.Sample(b.Row(4, 3)), b.Sample(b.Row(4, 3)), b.Sample(b.Row(4, 3))
		partial.Failures = []tokenize.Failure{lost(1), lost(2)}
		more.Failures = []tokenize.Failure{lost(0)}
		samples := []*tokenize.Sample{whole, partial, more}
		if withFailure {
			samples = append(samples, b.Failure(3))
		}
		sinktest.Write(t, dir, sink.Config{}, samples)
		if err := os.WriteFile(filepath.Join(dir, runfolder.RunFile), resummed([]byte("{\n  \"version\": 1,\n  \"sha256\": \""+strings.Repeat("0", 64)+"\"\n}\n")), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const calls = "3 single calls in 2 samples with rows; --all lists them\nsamples  calls  class"
	for _, tt := range []struct {
		name    string
		failure bool
		args    []string
		out     string // text in stdout; with a leading "!", text that must not be in stdout
		err     string
	}{
		{"only those", false, nil, calls, ": no failed samples\n"},
		{"of a class", false, []string{"--class", "no_prompt"}, calls, ": no failed samples\n"},
		{"of another class", false, []string{"--class", "no_turns"}, "!single", ": no failures\n"},
		{"beside a sample", true, nil, "\n\n" + calls, ""},
		{"all of it", true, []string{"--all"}, "!single", ""},
		{"for programs", false, []string{"--json"}, "!no_prompt", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, exit.OK, append([]string{"failures", run(t, tt.failure)}, tt.args...)...)
			want, not := strings.CutPrefix(tt.out, "!")
			if strings.Contains(r.stdout, want) == not || !strings.HasSuffix(r.stderr, tt.err) {
				t.Errorf("want %q and %q:\n%s%s", tt.out, tt.err, r.stdout, r.stderr)
			}
		})
	}
}
