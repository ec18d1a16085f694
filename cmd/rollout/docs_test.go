package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

type docBlock struct {
	from  string // README.md, rollout collect --help, sink/doc.go
	lines []string
	shown []string // the output that the document shows
}

// docBlocks finds every block of commands in the pages, in all help texts and in the package
// comments.
func docBlocks(t *testing.T) []docBlock {
	t.Helper()
	var all []docBlock
	// In help texts and comments, a block is indented and begins with the program.
	indented := func(from string, lines []string) {
		open := false
		for _, line := range lines {
			text := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			is := line != strings.TrimLeft(line, " \t") && (strings.HasPrefix(text, "rollout ") || strings.Contains(text, "| rollout "))
			if is && !open {
				all = append(all, docBlock{from: from})
			}
			if open = is; is {
				b := &all[len(all)-1]
				b.lines = append(b.lines, text)
			}
		}
	}
	for _, name := range pages(t) {
		before := ""
		for _, f := range fences(t, name) {
			lines := slices.DeleteFunc(f.lines, func(line string) bool { return f.language == "sh" && strings.TrimSpace(line) == "" })
			switch {
			case f.language == "sh":
				all = append(all, docBlock{from: name, lines: lines})
			case f.language == "text" && before == "sh":
				all[len(all)-1].shown = lines // the output of these commands
			}
			before = f.language
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		from := cmd.CommandPath() + " --help"
		indented(from, strings.Split(cmd.Long, "\n"))
		for line := range strings.SplitSeq(cmd.Example, "\n") { // each line is a block
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, docBlock{from: from, lines: []string{line}})
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&program{getenv: func(string) string { return "" }}).rootCmd())
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var comment []string
		for s := bufio.NewScanner(f); s.Scan(); {
			line := s.Text()
			if strings.HasPrefix(line, "package ") {
				indented(strings.TrimPrefix(path, "../../"), comment)
				return nil
			}
			comment = append(comment, strings.TrimPrefix(strings.TrimPrefix(line, "//"), " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// elsewhere maps the beginnings of lines that do not run here to the reason.
var elsewhere = map[string]string{
	"make demo":              "it runs the program of the source for 15 seconds, with commands that are tested elsewhere",
	"pip install dist/*.whl": "the program is this one; .ci/firstrow.sh begins with it",
	"make test":              "this is one of its tests",
	"docker ":                "the machine can lack docker; .ci/release builds the image and runs it",
	"producer | rollout collect -c run.yaml --stream ":                                     "producer and trainer are programs of the reader; stream.txtar has both ends",
	"rollout collect --server http://127.0.0.1:8283 --tokenizer models/qwen3 --from-runs ": "its server runs are those of another program; from_runs.txtar reads some",
	"rollout ctl run1 ":                   "a collector must be at work; cmd_ctl_test.go and ctl.txtar tell one the same",
	"rollout steps list --agent agent-… ": "agent-… stands for an id; steps_clean.txtar lists those of a real agent",
	"rollout steps get step-… ":           "step-… stands for an id; steps_clean.txtar asks about a real one, with each verb",
	"rollout steps metrics step-… ":       "as above",
	"rollout steps trace step-… ":         "as above",
	"rollout steps messages step-… ":      "as above",
	"rollout steps feedback step-… ":      "as above",
}

// Every command in a document or a help text exits with 0 when run verbatim, in a folder with the
// files that it names. A block that collects leaves rows. Only addresses are replaced, and commands
// that the machine can lack are removed.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	blocks := docBlocks(t)
	if len(blocks) < 35 {
		t.Fatalf("%d blocks were found: where are the others?", len(blocks))
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Seed: 1}) // the tasks of rollout simulate
	url := serveSim(t, sim)
	// The existing run has a failure; the second attempt at that sample succeeds.
	failing := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, Seed: 1, Faults: mustFaults(t, "short-logprobs@scripted-0002/0/1")}))
	base := t.TempDir()
	testdata, err := filepath.Abs(filepath.Join("..", "..", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"tasks.jsonl":       string(sim.Tasks(lettasim.TaskOptions{Scripted: 6})),
		"run.yaml":          "server: {urls: [" + failing + "]}\nagent: {model: " + simModel + "}\ntasks: {file: tasks.jsonl}\noutput: {dir: run1}\nrun: {fail_on_error: 1}\n",
		"conversation.json": `[{"role": "user", "content": "Hi"}]`,
		"text":              "Hello, world",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(testdata, filepath.Join(base, "testdata")), os.Symlink(filepath.Join(testdata, "tokenizers"), filepath.Join(base, "models"))); err != nil {
		t.Fatal(err)
	}
	shell(t, base, exit.Failures, "rollout collect -c run.yaml --quiet")

	for i, b := range blocks {
		t.Run(fmt.Sprintf("%d %s", i, strings.Fields(b.from)[0]), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "here")
			shell(t, base, 0, "cp -a . "+dir)
			server, collected, printed := url, false, ""
			for _, line := range b.lines {
				if reason := named(line); reason != "" {
					t.Logf("%s: %s: not here: %s", b.from, line, reason)
					continue
				}
				line = strings.ReplaceAll(line, "http://127.0.0.1:8283", server)
				line, _, _ = strings.Cut(line, "| jq ") // jq can be missing
				switch {
				case strings.HasPrefix(line, "rollout simulate "):
					server = startServer(t, dir, line)
					continue
				case strings.HasPrefix(line, "rollout tap "):
					startServer(t, dir, line)
					continue
				case strings.HasPrefix(line, "rollout collect "):
					collected = true
					if !strings.Contains(line, "--resume") && !strings.Contains(line, "--retry-failed") {
						if err := os.RemoveAll(filepath.Join(dir, "run1")); err != nil {
							t.Fatal(err)
						}
					}
				}
				want := 0
				if line == "rollout collect -c run.yaml" || strings.Contains(line, "--resume") {
					want = exit.Failures // the failed sample is within the tolerance
				}
				printed += shell(t, dir, want, line)
			}
			for _, line := range b.shown {
				if !strings.Contains(printed, line) {
					t.Errorf("%s: %q do not print %q but\n%s", b.from, b.lines, line, printed)
				}
			}
			if has, err := runfolder.HasRows(filepath.Join(dir, "run1")); collected && (!has || err != nil) {
				t.Errorf("%s: %q: rows: %v, %v", b.from, b.lines, has, err)
			}
		})
	}
}

func named(line string) string {
	for begin, reason := range elsewhere {
		if strings.HasPrefix(line, begin) {
			return reason
		}
	}
	return ""
}

// shell runs a line in dir and returns its output. The exit code must be code.
func shell(t *testing.T, dir string, code int, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // the exit code is checked below
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%s: exit code %d, want %d\n%s", line, got, code, out)
	}
	return string(out)
}

// startServer runs the rollout simulate or rollout tap of a line on a free port until the test
// ends.
func startServer(t *testing.T, dir, line string) (url string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " &")
	line = listens.ReplaceAllString(line, "")
	ready := strings.Fields(line)[1] + ".ready"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+line+" --listen 127.0.0.1:0 --ready-file "+ready)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	waitFor(t, "the server of "+line, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, ready))
		url = strings.TrimSpace(string(b))
		return err == nil && cmd.ProcessState == nil
	})
	return url
}

var listens = regexp.MustCompile(`--listen [0-9.:]+`)

// Every verb has a description, an example and exit statuses.
func TestHelpIsComplete(t *testing.T) {
	t.Parallel()
	p := &program{getenv: func(string) string { return "" }}
	root := p.rootCmd()
	root.InitDefaultHelpCmd()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		name, exits := cmd.CommandPath(), cmd.Annotations["exits"]
		if !strings.HasSuffix(strings.TrimSpace(cmd.Long), ".") && !strings.Contains(cmd.Long, "\n  ") {
			t.Errorf("%s --help does not begin with a sentence: %q", name, cmd.Long)
		}
		if first := cmd.Short[:1]; first != strings.ToLower(first) || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text is neither lower case nor without a period: %q", name, cmd.Short)
		}
		if !cmd.HasSubCommands() {
			if !strings.HasPrefix(exits, "Exit status:") || strings.Count(exits, "\n") == 0 && !strings.HasSuffix(exits, ".") {
				t.Errorf("%s --help ends with %q, want its exit statuses", name, exits)
			}
			if !strings.HasPrefix(cmd.Example, "  ") {
				t.Errorf("%s --help has no example", name)
			}
		}
		for line := range strings.Lines(helpText(cmd)) {
			if n := utf8.RuneCountInString(line) - 1; n > helpWidth {
				t.Errorf("%s --help has a line of %d columns, want at most %d: %s", name, n, helpWidth, line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// The help of collect begins with ten flags, and has each of its flags once.
func TestHelpOfCollect(t *testing.T) {
	t.Parallel()
	p := &program{getenv: func(string) string { return "" }}
	cmd := p.collectCmd()
	cmd.InitDefaultHelpFlag()
	var has, want []string
	for i, g := range collectGroups {
		flags := strings.Fields(g.flags)
		if i == 0 && len(flags) != 10 {
			t.Errorf("the help begins with %d flags, want 10", len(flags))
		}
		has = append(has, flags...)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { want = append(want, f.Name) })
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the help has the flags %q, want %q", has, want)
	}
}
