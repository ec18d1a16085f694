package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// assertTameVerbs runs every verb that reads the folder of a run, as text and as JSON.
func assertTameVerbs(t *testing.T, where, run string) {
	t.Helper()
	for _, verb := range [][]string{
		{"inspect", run},
		{"inspect", run, "--row", "0"},
		{"inspect", run, "--row", "0", "--whole"},
		{"inspect", run, "--failures"},
		{"inspect", run, "--failures", "--row", "0"},
		{"inspect", run, "--failures", "--row", "1"},
		{"failures", run},
		{"failures", run, "--all"},
		{"report", run},
		{"report", run, "--html", "-"},
		{"verify", run},
		{"verify", run, "--repair", "--dry-run"},
		{"collect", "--resume", "--dry-run", "--out", run},
		{"collect", "--resume", "--out", run},
		{"clean", run, "--dry-run"},
	} {
		r := invoke(t.Context(), verb...)
		assertTame(t, fmt.Sprintf("%s: %q", where, verb), r.stdout+r.stderr)
		if verb[0] == "collect" || len(verb) > 2 && verb[2] == "--html" || len(verb) > 3 && verb[3] == "--dry-run" {
			continue
		}
		r = invoke(t.Context(), append(verb, "--json")...)
		assertTameJSON(t, fmt.Sprintf("%s: %q --json", where, verb), r.stdout)
		assertTame(t, fmt.Sprintf("%s: %q --json", where, verb), r.stderr)
	}
	// With colors on, the only escape sequences are our own.
	for _, more := range [][]string{{"--row", "0"}, {"--failures", "--row", "0"}} {
		r := invoke(t.Context(), append([]string{"inspect", run, "--color", "always"}, more...)...)
		assertTame(t, where+": with colours", ownColours(r.stdout))
	}
}

func ownColours(text string) string {
	for _, code := range []string{"0", "1", "2", "4;2", "38;5;46", "38;5;118", "38;5;190", "38;5;220", "38;5;208", "38;5;196"} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
	}
	return text
}

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
	line, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	tasks := writeFile(t, "tasks.jsonl", append(line, '\n'))
	run := filepath.Join(t.TempDir(), "run")
	collect := []string{"collect", "--server", url, "--model", simModel, "--samples", "2", "--tasks", tasks, "--out", run}
	r := mustRun(t, exit.OK, append(collect, "--reward", "contains")...)
	assertTame(t, "tasks: collect", r.stdout+r.stderr)
	assertTameVerbs(t, "tasks", run)
	assertTameFiles(t, "tasks", run)

	t.Run("rows", func(t *testing.T) {
		dir := copyRun(t, run)
		for _, name := range []string{"_commits", "data", "failures", "wal"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
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
			assertTameVerbs(t, format.String(), dir)
			assertTameFiles(t, format.String(), dir)
		}
	})
	t.Run("logs", func(t *testing.T) {
		dir := copyRun(t, run)
		path := filepath.Join(dir, "logs", "collect-0001.jsonl")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for text := range strings.Lines(string(b)) {
			var v map[string]any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			for k, e := range v {
				if s, ok := e.(string); ok && k != "time" && k != "msg" {
					v[k] = s + hostileText
				}
			}
			_ = json.NewEncoder(&out).Encode(v)
		}
		put(t, path, out.String())
		html := invoke(t.Context(), "report", dir, "--html", "-")
		if !strings.Contains(html.stdout, `\u202e`) {
			t.Error("the page shows nothing of what the log holds")
		}
		assertTameVerbs(t, "logs", dir)
	})
	t.Run("run.json", func(t *testing.T) {
		b, err := os.ReadFile(filepath.Join(run, runfolder.RunFile))
		if err != nil {
			t.Fatal(err)
		}
		s := &spoiler{key: "-none-", seen: map[string]bool{}}
		spoil := func(s *spoiler) (out bytes.Buffer) {
			var v any
			if err := json.Unmarshal(b, &v); err != nil {
				t.Error(err)
			}
			_ = json.NewEncoder(&out).Encode(s.spoil("", v))
			return out
		}
		spoil(s)
		var all sync.WaitGroup // some wait for a server that does not exist
		for key := range s.seen {
			dir := copyRun(t, run)
			text := spoil(&spoiler{key: key, seen: map[string]bool{}})
			put(t, filepath.Join(dir, runfolder.RunFile), text.String())
			all.Go(func() {
				for _, verb := range [][]string{{"report", dir}, {"report", dir, "--html", "-"}, {"inspect", dir}, {"collect", "--resume", "--out", dir}, {"clean", dir, "--dry-run"}} {
					r := invoke(t.Context(), verb...)
					assertTame(t, fmt.Sprintf("run.json %s: %q", key, verb), r.stdout+r.stderr)
				}
			})
		}
		all.Wait()
		for _, text := range []string{hostileText, `{"version":1,` + "\u202e", "\xff\xfe"} {
			dir := copyRun(t, run)
			put(t, filepath.Join(dir, runfolder.RunFile), text)
			assertTameVerbs(t, "run.json", dir)
		}
	})
	t.Run("journal", func(t *testing.T) {
		dir := copyRun(t, run)
		put(t, filepath.Join(dir, "journal", "00000001.journal"), hostileText)
		put(t, filepath.Join(dir, "wal", hostileName+".wal"), hostileText)
		put(t, filepath.Join(dir, "data", hostileName), hostileText)
		put(t, filepath.Join(dir, "_commits", hostileName), hostileText)
		put(t, filepath.Join(dir, runfolder.LockFile), hostileText)
		assertTameVerbs(t, "journal", dir)
	})
	t.Run("settings", func(t *testing.T) {
		for _, text := range []string{
			hostileText, "run: {retries: \"" + hostileText + "\"}", "agent: {model: \"x\\u202e\\u0007\\u009b\"}",
			"\"k\\u202e\\u009b\": 1", "agent: {\"\\u202e\": 1}", "server: {urls: [\"http://x\\u202e/\"]}", "reward: {kind: regex, pattern: \"(\\u202e\"}",
			"agent: &a {x: *b\u202e", "tasks: {file: \"\\u202e\\e[31m\"}", "output: {dir: \"\\u202e\\e[31m\"}",
		} {
			conf := writeFile(t, "c\u202e\x1b[31m.yaml", []byte(text))
			for _, verb := range [][]string{{"config", "check"}, {"config", "show"}, {"config", "show", "--origin"}, {"config", "show", "--json"}, {"collect"}, {"doctor"}} {
				r := invoke(t.Context(), append(verb, "-c", conf)...)
				assertTame(t, fmt.Sprintf("%q: %q", text, verb), r.stdout+r.stderr)
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
			r := invoke(t.Context(), args...)
			assertTame(t, fmt.Sprintf("%q", args), r.stdout+r.stderr)
		}
	})
}

// hostileName is the part of hostileText that is allowed in a file name.
var hostileName = strings.NewReplacer("\x00", "", "/", "").Replace(hostileText)

func copyRun(t *testing.T, run string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(run)); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(filepath.Join(dir, runfolder.TasksFile), 0o600)
	return dir
}
