package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
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
	noError(t, filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err == nil {
			indented(strings.TrimPrefix(path, "../../"), strings.Split(f.Doc.Text(), "\n"))
		}
		return err
	}))
	return all
}

// elsewhere maps the beginnings of lines that do not run here to the reason.
var elsewhere = map[string]string{
	"make demo":                           "it runs the program of the source for 15 seconds, with commands that are tested elsewhere",
	"pip install dist/*.whl":              "the program is this one; .ci/firstrow.sh and .ci/anyagent.sh begin with it",
	"make test":                           "this is one of its tests",
	"mkdir image && tar ":                 "the machine can lack crane; make image pushes the image",
	"kubectl ":                            "it needs an API server; make e2e-k8s runs the same commands",
	"STORE=s3://bucket/run1 sbatch ":      "it needs Slurm; make e2e-slurm submits the script",
	"squeue ":                             "as above",
	"python -m rollout log-to ":           "the machine can lack the trackers; make trackers runs the same command",
	"sh create.sh ":                       "the machine can lack Letta Code; TestHarnessesMemory runs the page",
	"TMPDIR=$PWD/attempts ":               "as above",
	"python3 next.py ":                    "as above",
	"rollout collect -c collect.yaml ":    "as above",
	"ray start ":                          "it needs Ray; make raytest runs the script on a cluster",
	"rollout collect --harness opencode ": "the machine can lack opencode; README.md runs another harness",
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
	testdata := must(filepath.Abs(filepath.Join("..", "..", "testdata")))(t)
	for name, text := range map[string]string{
		"tasks.jsonl":       string(sim.Tasks(lettasim.TaskOptions{Scripted: 6})),
		"run.yaml":          "server: {urls: [" + failing + "]}\nagent: {model: " + simModel + "}\ntasks: {file: tasks.jsonl}\noutput: {dir: run1}\ntokens: {tokenizer: simulated}\nrun: {fail_on_error: 1}\n",
		"rewards.yaml":      "reward: {kind: contains}\n",
		"score.py":          "def score(sample):\n    return 1\n",
		"rank.py":           "def rank(samples):\n    return [1] * len(samples)\n",
		"conversation.json": `[{"role": "user", "content": "Hi"}]`,
		"text":              "Hello, world",
	} {
		noError(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o600))
	}
	noError(t, errors.Join(os.Symlink(testdata, filepath.Join(base, "testdata")), os.Symlink(filepath.Join(testdata, "tokenizers"), filepath.Join(base, "models"))))
	shell(t, base, exit.Failures, "rollout collect -c run.yaml --quiet")
	path := harnessPath(t) + ":'" + filepath.Dir(must(filepath.Abs(findPython(t)))(t)) + "'" // python3 of the system first

	for i, b := range blocks {
		t.Run(fmt.Sprintf("%d %s", i, strings.Fields(b.from)[0]), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "here")
			shell(t, base, 0, "cp -a . "+dir)
			servers := map[string]string{"http://127.0.0.1:8283": url} // by the URL on the page
			out, collected, printed := "run1", false, ""
			for _, line := range b.lines {
				if reason := named(line); reason != "" {
					t.Logf("%s: %s: not here: %s", b.from, line, reason)
					continue
				}
				for written, url := range servers {
					line = strings.ReplaceAll(line, written, url)
				}
				line, _, _ = strings.Cut(line, "| jq ") // jq can be missing
				switch {
				case strings.HasPrefix(line, "rollout simulate "), strings.HasPrefix(line, "rollout tap "):
					servers[documentedURL(line)] = startServer(t, dir, line)
					continue
				case strings.HasPrefix(line, "rollout view ") && !strings.Contains(line, "--out"):
					p, _ := startView(t, dir, nil, strings.Fields(line)[1:]...)
					noError(t, p.cmd.Process.Signal(os.Interrupt))
					p.ends(t, time.Minute, exit.OK)
					continue
				case strings.HasPrefix(line, "rollout collect "):
					if strings.Contains(line, "--from-sessions") {
						oneSession(t, servers["http://127.0.0.1:30001"])
					}
					collected = true
					if _, rest, ok := strings.Cut(line, "--out "); ok {
						out, _, _ = strings.Cut(rest, " ")
					}
					if !strings.Contains(line, "--resume") && !strings.Contains(line, "--retry-failed") {
						noError(t, os.RemoveAll(filepath.Join(dir, out)))
					}
				}
				want := 0
				if line == "rollout collect -c run.yaml" || strings.Contains(line, "--resume") {
					want = exit.Failures // the failed sample is within the tolerance
				}
				printed += shell(t, dir, want, "export PATH="+path+"; "+line)
			}
			contains(t, printed, b.shown...)
			if has, err := runfolder.HasRows(filepath.Join(dir, out)); collected && (!has || err != nil) {
				t.Errorf("%s: %q: rows: %v, %v", b.from, b.lines, has, err)
			}
		})
	}
}

func named(line string) string {
	if strings.Contains(line, "s3://") {
		return "a test must not reach a real cloud; e2e_fleet_test.go has a bucket"
	}
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
	_, url = startServing(t, dir, nil, append(strings.Fields(line)[1:], "--listen", "127.0.0.1:0")...)
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

// repository is the root of the repository.
var repository = filepath.Join("..", "..")

// pages returns the documentation pages, from testdata/pages.txt. The tests of the Python package
// read the same list.
func pages(t *testing.T) []string {
	t.Helper()
	return strings.Fields(string(must(os.ReadFile(filepath.Join("testdata", "pages.txt")))(t)))
}

// page returns the text of a page.
func page(t *testing.T, name string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(repository, filepath.FromSlash(name))))(t))
}

// A fence is a code block of a page.
type fence struct {
	language string
	lines    []string
}

// fences returns the code blocks of a page.
func fences(t *testing.T, name string) []fence {
	t.Helper()
	var all []fence
	open := false
	for line := range strings.Lines(page(t, name)) {
		line = strings.TrimRight(line, "\n")
		switch language, mark := strings.CutPrefix(line, "```"); {
		case mark && open && language != "":
			t.Fatalf("%s: %q opens a block inside a block", name, line)
		case mark && open:
			open = false
		case mark:
			open = true
			all = append(all, fence{language: language})
		case open:
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	if open {
		t.Fatalf("%s: the last block is not closed", name)
	}
	return all
}

// runners maps the language of a code block to the test that runs it.
var runners = map[string]string{
	"sh":     "TestDocumentedCommands",
	"text":   "TestDocumentedCommands compares it with the output of the block before it",
	"python": "test_docs.py",
	"yaml":   "TestHarnessPage and TestRewardPage",
	"sql":    "test_scores.py",
	"py":     "a test of its own, see fragments",
	"":       "none: the block contains no program",
}

// fragments maps the first lines of blocks that are not whole programs to the tests that run them.
var fragments = map[string]string{
	"import json":                              "TestThoughtsAreNotScored, as a scorer",
	"def score(sample):":                       "TestRewardPage",
	"def rank(samples):":                       "TestRewardPage",
	"import sys":                               "TestHarnessPage, as an agent",
	"def logprobs_of(ids):":                    "test_toy.py",
	"import pyarrow.compute as pc":             "test_scores.py",
	`row = rollout.Dataset("run1")[0].rows[0]`: "test_text.py",
	`dataset = rollout.Dataset("s3://bucket/run1?region=eu-north-1")                           # or ?endpoint_override=http://host:9000`: "test_bucket.py",
}

// command matches a line that a block without a language must not contain.
var command = regexp.MustCompile(`^\$? *(rollout|make|pip|docker|go|python3?|import|from|curl) `)

// Every page is in the list, and a test runs every code block of every page.
func TestEveryBlockOfEveryPageRuns(t *testing.T) {
	t.Parallel()
	var found []string
	noError(t, filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(file, "_commits")); err == nil { // a run's folder has a card
				return filepath.SkipDir
			}
			if name := d.Name(); len(name) > 2 && strings.HasPrefix(name, ".") || name == "testdata" || name == "dist" {
				return filepath.SkipDir
			}
		} else if strings.HasSuffix(file, ".md") {
			name, err := filepath.Rel(repository, file)
			found = append(found, filepath.ToSlash(name))
			return err
		}
		return nil
	}))
	listed := pages(t)
	slices.Sort(listed)
	slices.Sort(found)
	if !slices.Equal(listed, found) {
		t.Errorf("testdata/pages.txt lists %q, the repository has %q", listed, found)
	}
	seen := map[string]bool{}
	for _, name := range listed {
		before := ""
		for _, f := range fences(t, name) {
			_, known := runners[f.language]
			switch {
			case !known:
				t.Errorf("%s: no test runs the blocks of %q", name, f.language)
			case len(f.lines) == 0:
				t.Errorf("%s: an empty block", name)
			case f.language == "text" && before != "sh":
				t.Errorf("%s: no test compares the output %q, because no block of sh is before it", name, f.lines[0])
			case f.language == "py" && fragments[f.lines[0]] == "":
				t.Errorf("%s: no test runs the fragment %q", name, f.lines[0])
			case f.language == "py":
				seen[f.lines[0]] = true
			case f.language == "" && slices.ContainsFunc(f.lines, command.MatchString):
				t.Errorf("%s: no test runs the block %q, because it has no language", name, f.lines[0])
			}
			before = f.language
		}
		if m := regexp.MustCompile(`\n\n {4}\S.*`).FindString(outside(page(t, name))); m != "" {
			t.Errorf("%s: no test runs %q: use a fence", name, strings.TrimSpace(m))
		}
	}
	if len(seen) != len(fragments) {
		t.Errorf("the pages have %d fragments, want %d", len(seen), len(fragments))
	}
}

// outside returns a page without its code blocks.
func outside(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// Every link of a page leads to a file of the repository, and to a heading if it names one.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	links := 0
	for _, name := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(outside(page(t, name)), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			if target == "" {
				target = name
			} else {
				target = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(repository, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link %q: %v", name, m[1], err)
			} else if heading != "" && !slices.Contains(anchors(page(t, target)), heading) {
				t.Errorf("%s: the link %q: %s has no such heading", name, m[1], target)
			}
		}
	}
	if links < 30 {
		t.Errorf("%d links were found: where are the others?", links)
	}
}

// Every page that a message names is in the repository, and has the section that it names.
func TestPagesOfMessages(t *testing.T) {
	t.Parallel()
	b := must(os.ReadFile(filepath.Join("internal", "words", "testdata", "messages.txt")))(t)
	named := regexp.MustCompile(`(?:(A [a-z ]+), in )?\b([a-z]+/[a-z/]*README\.md)`).FindAllStringSubmatch(string(b), -1)
	for _, m := range named {
		if text := page(t, m[2]); m[1] != "" && !strings.Contains(text, "\n## "+m[1]+"\n") {
			t.Errorf("%s has no section %q, which a message names", m[2], m[1])
		}
	}
	if len(named) < 3 {
		t.Errorf("%d messages name pages: where are the others?", len(named))
	}
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(outside(text), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}

// A new user reads the README in a few minutes, and the changelog at a glance.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	if n := len(strings.Fields(page(t, "README.md"))); n > 1500 {
		t.Errorf("README.md has %d words, want at most 1,500: move details to the page of their folder", n)
	}
	if n := strings.Count(page(t, "CHANGELOG.md"), "\n"); n > 60 {
		t.Errorf("CHANGELOG.md has %d lines, want at most 60", n)
	}
}

// The tables of the pages list exactly the reasons for quarantining a call, and the reasons why a
// tap refuses a prompt.
func TestPagesNameReasons(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, name := range pages(t) {
		text.WriteString(page(t, name))
	}
	var reasons, refusals []string
	phrases := map[string]string{} // the beginning of the second cell
	for r := tokenize.ReasonNone + 1; ; r++ {
		word, err := r.MarshalText()
		if err != nil {
			break
		}
		reasons = append(reasons, string(word))
	}
	for _, r := range tap.Refusals() {
		refusals = append(refusals, r.Word())
		phrases[r.Word()] = " " + r.String()
	}
	for head, want := range map[string][]string{"| reason | why the call is not in `data/` |": reasons, "| word | why the call has no prompt from the tap |": refusals} {
		_, table, found := strings.Cut(text.String(), head+"\n|---|---|\n")
		table, _, _ = strings.Cut(table, "\n\n")
		var got []string
		for line := range strings.SplitSeq(table, "\n") {
			cells := strings.Split(line, "|")
			for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[min(1, len(cells)-1)], -1) {
				got = append(got, word[1])
				if phrase := phrases[word[1]]; !strings.HasPrefix(cells[2], phrase) {
					t.Errorf("the table explains %s with %q, the program with %q", word[1], cells[2], phrase)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !found || !slices.Equal(got, want) {
			t.Errorf("the table %q names %q, want %q", head, got, want)
		}
	}
}
