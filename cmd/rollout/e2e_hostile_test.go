package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// hostileText must never reach a terminal or a page unescaped: a title, colors in C0 and C1,
// right-to-left text, separators, a line that looks like our own, and invisible characters.
const hostileText = "\x1b]0;owned\a\x1b[31m\u009b1m\u202eexe\u2066x\u200f\u061c\u2028\u2029\r\nrollout: forged\tx\x00\x7f\ufeff\U000e0041<marquee>"

// assertTame fails the test if shown text contains unescaped hostile text.
func assertTame(t *testing.T, where, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "rollout: forged") {
			t.Errorf("%s: a line that looks like ours: %q", where, line)
			return
		}
		for i, r := range line {
			bad := !unicode.IsGraphic(r) && r != '\t' && r != '\u200c' && r != '\u200d'
			if _, size := utf8.DecodeRuneInString(line[i:]); bad || r == utf8.RuneError && size == 1 {
				t.Errorf("%s: %U in %.300q", where, r, line)
				return
			}
		}
		if len(line) > 100_000 {
			t.Errorf("%s: a line of %d bytes", where, len(line))
		}
	}
}

func assertJSON(t *testing.T, where, text string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	for err := error(nil); err != io.EOF; {
		var v any
		if err = dec.Decode(&v); err != nil && err != io.EOF {
			t.Errorf("%s: %v in %.300q", where, err, text)
			return
		}
	}
}

// A viewer runs verbs, which must show hostile text escaped.
type viewer struct {
	t     *testing.T
	where string
	codes []int // of the verbs so far
}

func (v *viewer) text(args ...string) ran {
	v.t.Helper()
	r := invoke(v.t.Context(), args...)
	v.codes = append(v.codes, r.code)
	assertTame(v.t, fmt.Sprintf("%s: %q", v.where, args), r.stdout+r.stderr)
	return r
}

// json is text for a verb that prints lines of JSON.
func (v *viewer) json(args ...string) ran {
	v.t.Helper()
	r := v.text(append(args, "--json")...)
	assertJSON(v.t, fmt.Sprintf("%s: %q", v.where, args), r.stdout)
	return r
}

// folder runs every verb that only reads the folder of a run.
func (v *viewer) folder(run string) {
	v.t.Helper()
	for _, verb := range [][]string{
		{"inspect", run},
		{"inspect", run, "--row", "0"},
		{"inspect", run, "--row", "0", "--whole"},
		{"inspect", run, "--failures"},
		{"inspect", run, "--failures", "--whole"},
		{"inspect", run, "--failures", "--row", "0"},
		{"inspect", run, "--failures", "--row", "1"},
		{"failures", run},
		{"failures", run, "--all"},
		{"report", run},
		{"verify", run},
		{"clean", run, "--dry-run"},
	} {
		v.text(verb...)
		v.json(verb...)
	}
	v.text("report", run, "--html", "-")
	v.text("verify", run, "--repair", "--dry-run")
	// With colors on, the only escape sequences are our own.
	for _, more := range [][]string{{"--row", "0"}, {"--failures", "--row", "0"}} {
		r := invoke(v.t.Context(), append([]string{"inspect", run, "--color", "always"}, more...)...)
		assertTame(v.t, v.where+": with colours", ownColours(r.stdout))
	}
}

// files checks the logs and the page of a run.
func (v *viewer) files(run string) {
	v.t.Helper()
	for name, text := range treeOf(v.t, run) {
		where := v.where + ": " + name
		switch {
		case strings.HasPrefix(name, "logs/"):
			assertJSON(v.t, where, text)
			assertTame(v.t, where, text)
		case name == runfolder.ReportPage:
			assertTame(v.t, where, text)
			if strings.Contains(text, "<marquee>") {
				v.t.Errorf("%s: markup of a server in the page", where)
			}
		}
	}
}

// resumed is folder for a run that can also be resumed.
func (v *viewer) resumed(run string) {
	v.t.Helper()
	v.text("collect", "--resume", "--dry-run", "--out", run)
	v.text("collect", "--resume", "--out", run)
	v.folder(run)
}

// A spoiler is a proxy that adds hostile text to every string under some keys of every answer, or
// answers with an error.
type spoiler struct {
	next http.Handler
	keys []string // "*error": refuses every POST with a hostile body

	mu   sync.Mutex
	seen map[string]bool // keys with a string value
}

func (s *spoiler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if slices.Contains(s.keys, "*error") && r.Method == http.MethodPost {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(map[string]any{"detail": hostileText + strings.Repeat("x", 100_000)})
		return
	}
	rec := httptest.NewRecorder()
	s.next.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		var b bytes.Buffer
		_ = json.NewEncoder(&b).Encode(s.spoil("", v))
		body = b.Bytes()
	}
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

func (s *spoiler) spoil(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = s.spoil(k, e)
		}
	case []any:
		for i, e := range v {
			v[i] = s.spoil(key, e)
		}
	case string:
		s.mu.Lock()
		s.seen[key] = true
		s.mu.Unlock()
		if slices.Contains(s.keys, key) {
			return v + hostileText
		}
	}
	return v
}

// alone are the keys of a server's answers that fail a verb, each in its own way.
var alone = []string{
	"*error", "agent_id", "agent_type", "detail", "content", "date", "handle", "id", "message_type", "name", "role", "status", "stop_reason", "version",
}

// If a server fills any field of its answers with control characters, every verb shows them as text
// and its JSON stays valid. So do the logs and the page of the run. Keys are tried together until a
// verb fails, and then apart, because a failure can keep the text of the others from being shown. A
// text that hides another one without a failure is not noticed.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	quick := writeFile(t, "quick.yaml", []byte("run: {retries: 0, attempt_timeout: 10s}\n"))
	visit := func(keys ...string) (seen []string, codes []int) {
		s := &spoiler{next: sim.HTTPServer().Handler, keys: keys, seen: map[string]bool{}}
		v := &viewer{t: t, where: fmt.Sprint(keys)}
		url := serve(t, &http.Server{Handler: s, ReadHeaderTimeout: time.Minute})
		run := filepath.Join(t.TempDir(), "run")
		doctor := []string{"doctor", "--server", url, "--model", simModel, "-c", quick}
		collect := append([]string{"collect", "--tasks", tasks, "--out", run, "--keep-agents", "--fail-on-error", "2"}, doctor[1:]...)
		v.text(doctor...)
		v.text(collect...)
		var row, step struct {
			ID      string
			AgentID string `json:"agent_id"`
		}
		_ = json.Unmarshal([]byte(v.json("inspect", run, "--row", "0").stdout), &row)
		list := []string{"steps", "list", "--server", url, "--agent", row.AgentID}
		v.text(list...)
		r := v.json(list...)
		_ = json.NewDecoder(strings.NewReader(r.stdout)).Decode(&step)
		if keys == nil && step.ID == "" {
			t.Fatalf("no step: %s%s", r.stdout, r.stderr)
		}
		for _, verb := range []string{"get", "metrics", "trace", "messages"} {
			v.text("steps", verb, "--server", url, step.ID)
			v.json("steps", verb, "--server", url, step.ID)
		}
		v.json(doctor...)
		v.json(append(collect, "--resume", "--retry-failed")...)
		if _, err := os.Stat(run); err == nil {
			v.folder(run)
			v.files(run)
		} else if keys == nil {
			t.Fatal(err)
		}
		v.json("clean", run)
		return slices.Sorted(maps.Keys(s.seen)), v.codes
	}
	keys, right := visit()
	if len(keys) < 50 || !slices.Contains(keys, "version") || !slices.Contains(keys, "content") {
		t.Fatalf("%d keys %q: the test looks at too little", len(keys), keys)
	}
	if testing.Short() {
		keys = []string{"message", "model"}
	}
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	var try func(keys []string)
	try = func(keys []string) {
		all.Go(func() {
			places <- struct{}{}
			_, codes := visit(keys...)
			<-places
			if n := len(keys); n > 1 && !slices.Equal(codes, right) {
				t.Logf("%q fail a verb", keys)
				try(keys[:n/2])
				try(keys[n/2:])
			}
		})
	}
	for _, key := range alone {
		try([]string{key})
	}
	for part := range slices.Chunk(slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(alone, key) }), 8) {
		try(part)
	}
	all.Wait()
}

// ownColours removes our own escape sequences.
func ownColours(text string) string { return ourColour.ReplaceAllString(text, "") }

var ourColour = regexp.MustCompile(`\x1b\[(0|1|2|4;2|38;5;(71|107|143|179|173|167))m`)

func spoilStrings(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoilStrings(v.Elem())
		} else if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf(new(`{"text":"` + "\u202e\u2066" + `"}`)))
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() {
				spoilStrings(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoilStrings(v.Index(i))
		}
	case reflect.String:
		v.SetString(v.String() + hostileText)
	default:
	}
}

// Hostile text in rows, failures, run.json, logs, tasks and settings is always shown as text.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	task := map[string]any{
		"id": "a <marquee>", "prompt": "Add 2 and 3. [case:tool]" + hostileName, "answer": hostileName,
		"metadata": map[string]any{hostileName: hostileName},
	}
	run := filepath.Join(t.TempDir(), "run")
	v := &viewer{t: t, where: "tasks"}
	v.text("collect", "--server", url, "--model", simModel, "--samples", "2", "--out", run, "--reward", "contains",
		"--tasks", writeFile(t, "tasks.jsonl", []byte(asText(t, task))))
	if v.codes[0] != exit.OK {
		t.Fatalf("collect: exit code %d", v.codes[0])
	}
	v.resumed(run)
	v.files(run)

	t.Run("rows", func(t *testing.T) {
		dir := copyRun(t, run)
		for _, name := range []string{"_commits", "data", "failures", "wal"} {
			noError(t, os.RemoveAll(filepath.Join(dir, name)))
		}
		b := sinktest.NewBuilder(1)
		samples := []*tokenize.Sample{b.Sample(b.Row(5, 5)), b.Failure(3), b.Sample(b.Row(9, 9))}
		samples[2].Failures = []tokenize.Failure{{Class: "no_prompt", Stage: "prompt", Reason: "compacted", Call: 1}}
		for _, s := range samples {
			status := s.Status
			spoilStrings(reflect.ValueOf(s))
			s.Status = status // the sink accepts only known statuses
		}
		for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
			dir := copyRun(t, dir)
			sinktest.Write(t, dir, sink.Config{Format: format}, samples)
			if out := invoke(t.Context(), "inspect", dir, "--row", "0"); !strings.Contains(out.stdout, `\u202e`) {
				t.Errorf("the row shows nothing of what it holds: the test looks at too little\n%s%s", out.stdout, out.stderr)
			}
			v := &viewer{t: t, where: format.String()}
			v.resumed(dir)
			v.files(dir)
		}
	})
	t.Run("logs", func(t *testing.T) {
		dir := copyRun(t, run)
		path := filepath.Join(dir, "logs", "collect-0001.jsonl")
		b := must(os.ReadFile(path))(t)
		out := ""
		for text := range strings.Lines(string(b)) {
			var v map[string]any
			noError(t, json.Unmarshal([]byte(text), &v))
			for k, e := range v {
				if s, ok := e.(string); ok && k != "time" && k != "msg" {
					v[k] = s + hostileText
				}
			}
			out += asText(t, v)
		}
		put(t, path, out)
		v := &viewer{t: t, where: "logs"}
		contains(t, v.text("report", dir, "--html", "-").stdout, `\u202e`)
		v.resumed(dir)
	})
	t.Run("run.json", func(t *testing.T) {
		b := must(os.ReadFile(filepath.Join(run, runfolder.RunFile)))(t)
		spoil := func(keys ...string) (text string, seen map[string]bool) {
			s := &spoiler{keys: keys, seen: map[string]bool{}}
			var v any
			noError(t, json.Unmarshal(b, &v))
			return asText(t, s.spoil("", v)), s.seen
		}
		_, keys := spoil()
		var all sync.WaitGroup // some wait for a server that does not exist
		for key := range keys {
			dir := copyRun(t, run)
			text, _ := spoil(key)
			put(t, filepath.Join(dir, runfolder.RunFile), text)
			all.Go(func() {
				v := &viewer{t: t, where: "run.json " + key}
				for _, verb := range [][]string{{"report", dir}, {"report", dir, "--html", "-"}, {"inspect", dir}, {"collect", "--resume", "--out", dir}, {"clean", dir, "--dry-run"}} {
					v.text(verb...)
				}
			})
		}
		all.Wait()
		for _, text := range []string{hostileText, `{"version":1,` + "\u202e", "\xff\xfe"} {
			dir := copyRun(t, run)
			put(t, filepath.Join(dir, runfolder.RunFile), text)
			(&viewer{t: t, where: "run.json"}).resumed(dir)
		}
	})
	t.Run("journal", func(t *testing.T) {
		dir := copyRun(t, run)
		for _, name := range []string{"journal/00000001.journal", "wal/" + hostileName + ".wal", "data/" + hostileName, "_commits/" + hostileName, runfolder.LockFile} {
			put(t, filepath.Join(dir, name), hostileText)
		}
		(&viewer{t: t, where: "journal"}).resumed(dir)
	})
	t.Run("settings", func(t *testing.T) {
		for _, text := range []string{
			hostileText, "run: {retries: \"" + hostileText + "\"}", "agent: {model: \"x\\u202e\\u0007\\u009b\"}",
			"\"k\\u202e\\u009b\": 1", "agent: {\"\\u202e\": 1}", "server: {urls: [\"http://x\\u202e/\"]}", "reward: {kind: regex, pattern: \"(\\u202e\"}",
			"agent: &a {x: *b\u202e", "tasks: {file: \"\\u202e\\e[31m\"}", "output: {dir: \"\\u202e\\e[31m\"}",
		} {
			conf := writeFile(t, "c\u202e\x1b[31m.yaml", []byte(text))
			for _, verb := range [][]string{{"config", "check"}, {"config", "show"}, {"config", "show", "--origin"}, {"config", "show", "--json"}, {"collect"}, {"doctor"}} {
				(&viewer{t: t, where: fmt.Sprintf("%q", text)}).text(append(verb, "-c", conf)...)
			}
		}
	})
	t.Run("arguments", func(t *testing.T) {
		for _, args := range [][]string{
			{hostileText},
			{"collect", "--" + hostileText},
			{"collect", "--samples", hostileText},
			{"collect", "--drift", hostileText},
			{"inspect", hostileName},
			{"collect", "--server", hostileText, "--model", hostileText, "--tasks", hostileName, "--out", hostileName},
			{"verify", hostileName},
			{"report", hostileName},
			{"report", run, "--html", hostileName + "/x"},
			{"inspect", run, "--color", hostileText},
			{"inspect", run, "--row", "0", "--tokenizer", hostileName},
			{"steps", "get", hostileText, "--server", url},
			{"steps", "list", "--agent", hostileText, "--server", url},
			{"steps", "feedback", "x", hostileText, "--server", url},
			{"clean", "--run-id", hostileText, "--server", url},
			{"simulate", "--fault", hostileText},
			{"simulate", "--listen", hostileText},
			{"tokenize", "--tokenizer", hostileName},
			{"doctor", "--server", url, "--model", hostileText},
			{"doctor", "--server", url, "--model", simModel, "--prompt", hostileText},
			{"version", hostileText},
		} {
			(&viewer{t: t, where: "arguments"}).text(args...)
		}
	})
}

// hostileName is the part of hostileText that is allowed in a file name.
var hostileName = strings.NewReplacer("\x00", "", "/", "").Replace(hostileText)

func copyRun(t *testing.T, run string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	noError(t, os.CopyFS(dir, os.DirFS(run)))
	_ = os.Chmod(filepath.Join(dir, runfolder.TasksFile), 0o600)
	return dir
}

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
			page = page[:min(len(page), 255-len(".html"))] + ".html"
			rollout(exit.OK, "report", "--html", page, "--", tt.run)
			text := must(os.ReadFile(filepath.Join(top, page)))(t)
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
	noError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	noError(t, os.WriteFile(path, []byte(text), 0o666))
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
