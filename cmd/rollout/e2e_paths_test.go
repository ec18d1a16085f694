package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// hostileNames are folder names that a user can choose. beside is a folder that the name would
// match as a pattern, as a shell word or in another interpretation.
var hostileNames = []struct{ name, run, beside string }{
	{"class", "run[1]", "run1"},
	{"open class", "exp[v2", "expv"},
	{"star", "run*", "running"},
	{"question mark", "run?", "run1"},
	{"braces", "run{1,2}", "run1"},
	{"backslash", `run\a`, "runa"},
	{"escaped star", `run\*`, "run*"},
	{"space", "my run", "my"},
	{"quotes", `it's "a" run`, "its"},
	{"newline", "run\nrollout: done", "run"},
	{"escape", "run\x1b[31m\u202e", "run"},
	{"shell", "$(touch pwned)`touch pwned`;&|", "pwned-not"},
	{"format", "run%s%d%!", "run"},
	{"address", "file:run?a=b#c", "file:run"},
	{"letters", "ünïcødé-数据-😀", "unicode"},
	{"no letters", "run\xff\xfe", "run"},
	{"home", "~", "home"},
	{"dash", "-run", "run"},
	{"flag", "--resume", "resume"},
	{"dots", "run...", "run"},
	{"longest", strings.Repeat("r", 255), strings.Repeat("r", 254)},
}

// A folder is always the named one, whatever its name contains. A run in it can be collected,
// resumed, verified, shown and cleaned, and the folder beside it does not change.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Faults: mustFaults(t, "short-logprobs@scripted-0001/0/1")})
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks [1]*.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	for _, tt := range hostileNames {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			const unfinished, log = "journal/00000001.journal.tmp", "logs/collect-0001.jsonl"
			put(t, filepath.Join(top, tt.beside, unfinished), "beside")
			put(t, filepath.Join(top, tt.beside, log), `{"time":"2026-03-01T12:00:00Z","msg":"launch"}`+"\n"+`{"time":"2026-03-01T12:00:09Z","msg":"end","outcome":"the other run"}`+"\n")
			before := treeOf(t, top)

			rollout := func(code int, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "rollout", args...) // in the folder, so that names keep their beginning
				cmd.Dir = top
				out, _ := cmd.CombinedOutput()
				if got := cmd.ProcessState.ExitCode(); got != code {
					t.Fatalf("rollout %q: exit code %d, want %d\n%s", args, got, code, out)
				}
				return string(out)
			}
			collect := []string{"collect", "--server", url, "--model", simModel, "--tasks", tasks, "--fail-on-error", "1", "--out", tt.run}
			rollout(exit.Failures, append(collect, "--keep-agents")...)
			put(t, filepath.Join(top, tt.run, unfinished), "cut off")
			rollout(exit.OK, append(collect, "--keep-agents", "--resume", "--retry-failed")...)
			if _, err := os.Stat(filepath.Join(top, tt.run, unfinished)); err == nil {
				t.Error("what a compaction left that was cut off is still in the run's own journal")
			}
			rollout(exit.OK, "verify", "--", tt.run)
			rollout(exit.OK, "inspect", "--", tt.run)
			rollout(exit.OK, "failures", "--", tt.run)
			page := strings.ReplaceAll(tt.run, "/", "-")
			if len(page) == 255 {
				page = page[:255-len(".html")] + ".html"
			} else {
				page += ".html"
			}
			rollout(exit.OK, "report", "--html", page, "--", tt.run)
			text, err := os.ReadFile(filepath.Join(top, page))
			if err != nil {
				t.Fatal(err)
			}
			if html := string(text); !strings.Contains(html, "collect-0002.jsonl") || strings.Contains(html, "the other run") {
				t.Error("the page shows other logs than those of the run")
			}
			if out := rollout(exit.OK, "clean", "--", tt.run); strings.Count(out, "agent-") < 2 {
				t.Errorf("the agents of the run were not removed:\n%s", out)
			}

			after := treeOf(t, top)
			for name, was := range before {
				if is, there := after[name]; !there || is != was {
					t.Errorf("%s, beside the run, is gone or another: %q, was %q", name, is, was)
				}
				delete(after, name)
			}
			for name := range after {
				if name != page && name != tt.run && !strings.HasPrefix(name, tt.run+"/") {
					t.Errorf("%q was made beside the run", name)
				}
			}
		})
	}
}

func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		tree[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// A command in a hint can be copied into a shell.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for _, tt := range hostileNames {
		word := format.Shell(tt.run)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+word).Output()
		if got := strings.TrimPrefix(string(out), "./"); err != nil || got != tt.run {
			t.Errorf("%s: %s is %q to a shell (%v)", tt.name, word, got, err)
		}
		for _, r := range word {
			if !unicode.IsGraphic(r) {
				t.Errorf("%s: %q holds %U", tt.name, word, r)
			}
		}
	}
}
