package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// An interrupt ends an import from a silent pipe, at its beginning and later, and leaves no files.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", `{"sample_key":"a","attempt":1,"group_id":"a","group_size":1,"sample_index":0}` + "\n"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		stdin, to := io.Pipe()
		go func() {
			_, _ = io.WriteString(to, line) // the test hangs if it is not read
			cancel()
		}()
		var said strings.Builder
		if code := run(ctx, []string{"import", "-", "--out", filepath.Join(dir, "run")}, stdin, io.Discard, &said, os.Getenv); code != exit.Interrupted {
			t.Errorf("after %q: exit status %d, want %d: %s", line, code, exit.Interrupted, said.String())
		}
		_ = to.Close()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("after %q: %v is left, %v", line, left, err)
		}
	}
}

// The folder of a killed import is removed by the next import to the same run. Folders of running
// imports and of other runs stay. If two imports write the same run, the first to finish creates it
// and the second changes nothing.
func TestImportAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const line = `{"sample_key":"a","attempt":1,"group_id":"a","group_size":1,"sample_index":0}` + "\n"
	folders := func() []string { return must(filepath.Glob(filepath.Join(dir, ".tmp-import-*")))(t) }
	// begin starts an import from a pipe that stays open, and returns its folder.
	begin := func(out string) (*exec.Cmd, io.WriteCloser, string) {
		cmd := exec.CommandContext(t.Context(), "rollout", "import", "-", "--out", filepath.Join(dir, out))
		stdin := must(cmd.StdinPipe())(t)
		noError(t, cmd.Start())
		must(io.WriteString(stdin, line))(t)
		var folder string
		waitFor(t, "the import to be at work", func() bool {
			for _, folder = range folders() {
				if h, held := runfolder.Locked(folder); held && h.PID == cmd.Process.Pid {
					return true
				}
			}
			return false
		})
		return cmd, stdin, folder
	}
	kill := func(cmd *exec.Cmd) {
		t.Helper()
		noError(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("the import ended by itself")
		}
	}
	dead, _, first := begin("run")
	kill(dead)
	dead, _, other := begin("run2")
	kill(dead)
	live, stdin, second := begin("run")
	if got := folders(); slices.Contains(got, first) || !slices.Contains(got, other) || len(got) != 2 {
		t.Errorf("there are %v, want %s of the other run and %s", got, other, second)
	}
	run := filepath.Join(dir, "run")
	if said := mustRun(t, exit.OK, "import", writeFile(t, "one.jsonl", []byte(line)), "--out", run).stderr; strings.Count(said, "\n") != 1 {
		t.Errorf("the import printed %q", said)
	}
	if got := folders(); !slices.Contains(got, second) {
		t.Errorf("the folder of a running import is gone: %v", got)
	}
	noError(t, stdin.Close())
	if err := live.Wait(); live.ProcessState.ExitCode() != exit.Folder {
		t.Errorf("the import of a run that is there: %v, want exit status %d", err, exit.Folder)
	}
	if got := folders(); !slices.Equal(got, []string{other}) {
		t.Errorf("there are %v, want %s", got, other)
	}
	if _, err := os.Stat(filepath.Join(run, runfolder.TasksFile)); err != nil {
		t.Error(err)
	}
	mustRun(t, exit.OK, "verify", run)
}

// If lines of two samples are mixed or repeated, in any order, the error explains the order of
// lines. So does the error for a sample count that is too large.
func TestImportOfMixedLines(t *testing.T) {
	t.Parallel()
	dir, again := t.TempDir(), filepath.Join(t.TempDir(), "again")
	b := sinktest.NewBuilder(7)
	sinktest.Write(t, dir, sink.Config{}, []*tokenize.Sample{
		b.Sample(b.Row(3, 4), b.Row(5, 6)), b.Sample(b.Row(7, 8), b.Row(9, 4)),
	})
	var text bytes.Buffer
	w := rowjson.NewWriter(&text)
	for part := range each(t, must(sink.ReadLog(dir))(t).Stored()) {
		noError(t, w.Write(part))
	}
	lines := strings.SplitAfter(text.String(), "\n")
	for _, order := range [][]int{{0, 2, 1, 3}, {0, 1, 2, 3, 0, 1}, {0, 1, 0, 1, 2, 3}, {0, 0, 1}, {1, 0}, {0, 2}} {
		mixed := ""
		for _, i := range order {
			mixed += lines[i]
		}
		r := mustRun(t, exit.Usage, "import", writeFile(t, "mixed.jsonl", []byte(mixed)), "--out", again)
		contains(t, r.stderr, "hint: "+together)
	}
	err := importedAll(&rowjson.Header{Rows: 1, Failures: 1, Samples: 1}, &sink.Stats{Rows: 1, Failures: 1, Samples: 2}, "x")
	if exit.HintOf(err) != together {
		t.Error(err)
	}
}

// If a sample without a key is refused before it ends, the error names its own line.
func TestImportRefusesFirst(t *testing.T) {
	t.Parallel()
	in := &importer{now: sampleLines{lines: []string{"x.jsonl: line 1"}}}
	err := in.failed(&sink.SampleError{Row: 0, Err: errors.New("too large")})
	if err == nil || !strings.HasPrefix(err.Error(), "x.jsonl: line 1: ") {
		t.Error(err)
	}
}

// Single calls that are missing in samples with rows are listed, but do not count as failed
// samples. Valid calls that are not trained on are listed only with --all or --class.
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
		aside := lost(1)
		aside.Reason = "superseded"
		more.Failures = []tokenize.Failure{lost(0), aside}
		samples := []*tokenize.Sample{whole, partial, more}
		if withFailure {
			samples = append(samples, b.Failure(3))
		}
		sinktest.Write(t, dir, sink.Config{}, samples)
		noError(t, os.WriteFile(filepath.Join(dir, runfolder.RunFile), resummed([]byte("{\n  \"version\": 1,\n  \"sha256\": \""+strings.Repeat("0", 64)+"\"\n}\n")), 0o666))
		return dir
	}
	const calls = "3 calls failed in 2 samples with rows; --all lists these calls\nsamples  calls  class"
	for _, tt := range []struct {
		name    string
		failure bool
		args    []string
		out     string // text in stdout; with a leading "!", text that must not be in stdout
		err     string
	}{
		{"only those", false, nil, calls, ": no failed samples\n"},
		{"of a class", false, []string{"--class", "no_prompt"}, "\n\n" + calls, ""},
		{"untrained calls of a class", false, []string{"--class", "no_prompt"}, " superseded ", ""},
		{"not untrained calls", true, nil, "!superseded", ""},
		{"untrained calls", false, []string{"--all"}, " superseded ", ""},
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
