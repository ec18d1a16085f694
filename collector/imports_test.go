package collector_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/rollout-rl/rollout/"

// borders lists the packages that a package and its subpackages must not depend on, and why. The
// linter has the same rules.
var borders = []struct {
	pkg    string
	deny   []string
	allow  []string // exceptions from deny
	why    string
	except string // a package below pkg with its own border
}{
	{"tokenize", []string{module}, []string{module + "tokenize"}, "tokenize is the leaf: it imports nothing else of ours", ""},
	{"tokenize", []string{"net", "net/http", "os/exec", "log/slog"}, nil, "tokenize is pure computation: it returns errors and counts", ""},
	{"sink", []string{module + "collector"}, nil, "the sink must not know where samples come from", ""},
	{"collector", []string{module + "sink"}, []string{module + "sink/frame", module + "sink/durable"}, "the collector writes to its own Sink interface; the spool of the tap shares the framing and the syncing of files with the sink", "collector/journal"},
	{"collector/tap", []string{module}, []string{module + "sink/frame", module + "sink/durable", module + "collector/tap", module + "tokenize", module + "collector/letta", module + "collector/wait"}, "the tap knows no rollouts", "collector/tap/proxy"},
	{"collector/tap/proxy", []string{module}, []string{module + "sink/frame", module + "sink/durable", module + "collector/tap", module + "collector/session", module + "tokenize", module + "collector/letta", module + "collector/wait"}, "the proxy knows sessions and no rollouts", ""},
	{"collector/journal", []string{module + "sink"}, []string{module + "sink/frame", module + "sink/durable", module + "sink/failpoint"}, "the journal shares the framing and the syncing of files with the sink, and nothing else", ""},
	{"collector/letta", []string{module + "tokenize/bpe", module + "tokenize/chat"}, nil, "collector/prompt knows tokenizers and chat templates", "collector/letta/lettasim/enginesim"},
	{"collector/agent", []string{module + "collector/prompt", module + "tokenize/bpe", module + "tokenize/chat"}, nil, "main plugs the prompter in", ""},
	{"collector/record", []string{module + "collector/agent", module + "collector/prompt", module + "tokenize/bpe", module + "tokenize/chat"}, nil, "a record is what a server keeps: it knows no attempts and no prompts", ""},
	{"collector/letta", []string{module}, []string{module + "tokenize", module + "collector/letta", module + "collector/wait"}, "the client knows the API and nothing else of ours", "collector/letta/lettasim/enginesim"},
	{"collector/policy", []string{module}, []string{module + "tokenize", module + "collector/policy", module + "collector/wait"}, "a page tells a number: nothing of ours is needed to read it", ""},
	{"collector/harness", []string{module + "collector/letta", module + "collector/agent", module + "collector/tap/proxy"}, nil, "a command talks to the proxy itself: this package needs only the sessions", ""},
	{"collector/subprocess", []string{module}, []string{module + "collector/subprocess"}, "to kill processes, nothing of ours is needed", ""},
	{"collector/reward", []string{module + "collector/letta"}, nil, "a scorer judges a Reply, whoever made it", ""},
}

// exactly lists borders of single packages, without their subpackages.
var exactly = []struct{ pkg, deny, why string }{
	{"collector/limit", module, "the controller is pure: it imports nothing of ours"},
	{"collector/limit", "net/http", "the controller is pure"},
	{"collector/breaker", module, "the breaker is pure: it imports nothing of ours"},
	{"collector/breaker", "net/http", "the breaker is pure"},
	{"collector/pace", module, "the pacer is pure: it imports nothing of ours"},
	{"collector", module + "collector/", "main chooses the backend, the prompter and the scorer"},
	{"collector", "net/http", "the collector knows no wire"},
	{"collector", module + "sink/", "the collector writes to its own Sink interface"},
}

func TestImports(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	// One line per package: its path, then all its dependencies.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}{{range .Deps}} {{.}}{{end}}`, module+"...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		path, deps := fields[0], fields[1:]
		for _, b := range borders {
			if !below(path, module+b.pkg) || b.except != "" && below(path, module+b.except) {
				continue
			}
			seen++
			for _, dep := range deps {
				if denied(dep, b.deny) && !denied(dep, b.allow) {
					t.Errorf("%s depends on %s: %s", path, dep, b.why)
				}
			}
		}
		for _, e := range exactly {
			if path != module+e.pkg {
				continue
			}
			seen++
			for _, dep := range deps {
				if path == module+"collector" && (dep == module+"collector/limit" || dep == module+"collector/breaker" || dep == module+"collector/pace" || dep == module+"collector/wait") {
					continue // it is part of the collector
				}
				if dep == e.deny || strings.HasSuffix(e.deny, "/") && strings.HasPrefix(dep, e.deny) {
					t.Errorf("%s depends on %s: %s", path, dep, e.why)
				}
			}
		}
	}
	if seen < len(borders)+len(exactly) {
		t.Errorf("%d borders checked, want at least %d: go list printed\n%s", seen, len(borders)+len(exactly), out)
	}
}

func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func denied(dep string, roots []string) bool {
	for _, r := range roots {
		if below(dep, strings.TrimSuffix(r, "/")) && (strings.HasPrefix(r, module) || dep == r) {
			return true
		}
	}
	return false
}

func TestMapsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	const root = ".."
	there, docs := map[string]bool{}, []string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		there[d.Name()] = true
		if d.Name() == "doc.go" && strings.HasPrefix(path, filepath.Join(root, "collector")) {
			docs = append(docs, path)
		}
		return nil
	})
	if err != nil || len(docs) < 8 {
		t.Fatalf("%d package comments: %v", len(docs), err)
	}
	names := regexp.MustCompile(`[\w*]+\.go\b`)
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.FindAllString(string(text), -1) {
			if !there[name] && !strings.Contains(name, "*") && name != "from_X.go" {
				t.Errorf("%s mentions %s, which does not exist", doc, name)
			}
		}
	}
}
