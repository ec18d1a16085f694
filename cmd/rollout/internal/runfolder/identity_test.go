package runfolder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

// configured returns a loader with the text as configuration file.
func configured(t *testing.T, text string) *config.Loader {
	t.Helper()
	l := config.NewLoader(func(name string) string { return map[string]string{"CANARY": "canary-secret"}[name] })
	must(t, l.File(fileOf(t, "run.yaml", text)))
	must(t, l.Bad.Err())
	return l
}

// described returns run.json of a run with that configuration, after a round trip.
func described(t *testing.T, l *config.Loader, model *Model) *Info {
	t.Helper()
	id := identityOf(t, l, model)
	info, err := Describe(l, nil, id, &TaskSet{}, nil, model)
	must(t, err)
	dir := t.TempDir()
	must(t, (&Folder{Dir: dir}).writeRun(info))
	if info, err = Read(dir); err != nil {
		t.Fatal(err)
	}
	return &info
}

const fullConfig = `
server: {urls: ["http://a", "http://b"], password: "${env:CANARY}", headers: {X-Gate: "${env:CANARY}"}, max_in_flight: 7}
agent:
  model: m
  system: "Be <brief> & kind."
  temperature: 0.7
  client_tools:
    - {name: bash, parameters: {zeta: 1.0, alpha: true}, command: [cat], timeout: 5s}
  create: {zeta: 1, alpha: [1.50, "x"]}
tasks: {samples: 4, limit: 9}
reward: {kind: number, tolerance: 0.001}
run: {fail_on_error: 5%, tail: oversample=1.05, grace: 90s}
output: {shard_bytes: 1MiB, messages: true}
`

// TestSettingsComeBackFromARun checks that a run restores every setting, and that its identity is
// then the same.
func TestSettingsComeBackFromARun(t *testing.T) {
	t.Parallel()
	was := configured(t, fullConfig)
	info := described(t, was, nil)
	again := config.NewLoader(func(name string) string { return map[string]string{"CANARY": "canary-secret"}[name] })
	again.FromRun(info.Config)
	must(t, again.Bad.Err())
	for i, s := range again.Settings {
		if s.Key == "output.dir" {
			continue
		}
		if got, want := s.Text(), was.Settings[i].Text(); got != want {
			t.Errorf("%s = %s, was %s", s.Key, got, want)
		}
	}
	if again.Config.Server.Password.Reveal() != "canary-secret" || again.Config.Server.Headers.Reveal().Get("X-Gate") != "canary-secret" {
		t.Error("a reference was not followed")
	}
	id := identityOf(t, again, nil)
	if id.SHA256 != info.Identity.SHA256 {
		t.Error("the identity is another one")
	}
	if bad := Changes(again, info, id, nil, true); bad != nil {
		t.Errorf("changes: %v", bad)
	}
}

// TestIdentity checks that exactly the settings that rows depend on are compared. tokens.* can change
// while the run has no rows, and a run without a tokenizer can get one.
func TestIdentity(t *testing.T) {
	t.Parallel()
	agentFile := fileOf(t, "agent.af", "{}")
	qwen := &Model{TokenizerSHA256: "aaaaaaaaaaaaaaaa", ChatTemplateSHA256: "cccc"}
	llama := &Model{TokenizerSHA256: "bbbbbbbbbbbbbbbb", ChatTemplateSHA256: "dddd"}
	const turns = fullConfig + "tokens: {prompts: turns}\n"
	with := func(changes ...string) string { return strings.NewReplacer(changes...).Replace(fullConfig) }
	for _, tt := range []struct {
		name           string
		before, config string
		had, now       *Model
		rows           bool
		want           []string // prefix of each complaint; none: the run can resume
	}{
		{"the same", fullConfig, fullConfig, qwen, qwen, true, nil},
		{"what may change", fullConfig, with("max_in_flight: 7", "max_in_flight: 8", `"http://b"`, `"http://c"`, "5%", "0", "1.05", "1.5",
			"1MiB, messages", "2MiB, format: arrow, messages"), qwen, qwen, true, nil},
		{"agent", fullConfig, with("kind.", "kind!"), qwen, qwen, true, []string{"agent.system: the run has Be <brief> & kind., but you set Be <brief> & kind!"}},
		{
			"two", fullConfig, with("0.7", "0.8", "messages: true", "messages: false"), qwen, qwen, true,
			[]string{"agent.temperature: the run has 0.7, but you set 0.8", "output.messages: the run has true, but you set false"},
		},
		{"the order of a tool's parameters", fullConfig, with("zeta: 1.0, alpha: true", "alpha: true, zeta: 1.0"), qwen, qwen, true, []string{"agent.client_tools: "}},
		{"reward", fullConfig, with("0.001", "0.01"), qwen, qwen, true, []string{"reward.tolerance: the run has 0.001, but you set 0.01"}},
		{"transformers", fullConfig, fullConfig + "tokens: {transformers: \"5.23\"}\n", qwen, qwen, true, []string{"tokens.transformers"}},
		{
			"template", fullConfig, fullConfig, qwen, &Model{TokenizerSHA256: qwen.TokenizerSHA256, ChatTemplateSHA256: "dddd"}, true,
			[]string{"tokens.tokenizer: chat template: the run has sha256 cccc, but you set sha256 dddd"},
		},
		{"agent file", fullConfig, with("model: m", "model: m\n  file: "+agentFile), qwen, qwen, true, []string{"agent.file: the run has no agent file, but you set sha256 44136fa355b3"}},
		{"a tokenizer is added", fullConfig, fullConfig, nil, qwen, false, nil},
		{"a tokenizer is added to rows that used none", fullConfig, fullConfig, nil, qwen, true, nil},
		{"a wrong tokenizer is replaced", fullConfig, fullConfig, llama, qwen, false, nil},
		{
			"rows used another tokenizer", fullConfig, fullConfig, llama, qwen, true,
			[]string{"tokens.tokenizer: the run has sha256 bbbbbbbbbbbb, but you set sha256 aaaaaaaaaaaa", "tokens.tokenizer: chat template: "},
		},
		{"a tokenizer is taken away", fullConfig, fullConfig, qwen, nil, true, []string{"tokens.tokenizer: the run has sha256 aaaaaaaaaaaa, but you set no tokenizer"}},
		{"another source, no row", turns, fullConfig, qwen, qwen, false, nil},
		{"another source than that of the rows", turns, fullConfig, qwen, qwen, true, []string{"tokens.prompts: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			info := described(t, configured(t, tt.before), tt.had)
			l := configured(t, tt.config)
			id := identityOf(t, l, tt.now)
			bad := Changes(l, info, id, tt.now, tt.rows)
			if len(bad) != len(tt.want) {
				t.Fatalf("changes: %v, want %q", bad, tt.want)
			}
			for i, err := range bad {
				if !strings.HasPrefix(err.Error(), tt.want[i]) {
					t.Errorf("change %d: %v, want %s…", i, err, tt.want[i])
				}
			}
			// A change that only a run without rows or without a tokenizer allows is another identity too.
			allowed := tt.want == nil && (!tt.rows || tt.had == nil)
			if same := id.SHA256 == info.Identity.SHA256; same != (tt.want == nil && !allowed) {
				t.Errorf("the digest is the same: %v", same)
			}
		})
	}
}

func TestServerChanges(t *testing.T) {
	t.Parallel()
	m := func(window int64) *ServerModel { return &ServerModel{Handle: "h", Name: "n", ContextWindow: window} }
	had := []Server{{"http://a", "0.16.7", m(32)}, {"http://b", "0.16.8", m(32)}}
	for _, tt := range []struct {
		name        string
		now         Server
		bad, notice string
	}{
		{"the same", Server{"http://b", "0.16.8", m(32)}, "", ""},
		{"another server", Server{"http://c", "0.16.7", m(32)}, "", ""},
		{"a patch", Server{"http://a", "0.16.9", m(32)}, "", "server http://a has version 0.16.9; the run started with version 0.16.7"},
		{"a release", Server{"http://a", "0.17.0", m(32)}, "server http://a has version 0.17.0, but the run started with version 0.16.7", ""},
		{"a window", Server{"http://a", "0.16.7", m(16)}, "server http://a: the context window of model h is 16, but the run has 32", ""},
		{"no word on the model", Server{"http://a", "0.16.7", nil}, "", ""},
	} {
		bad, notices := ServerChanges(had, []Server{tt.now})
		if got := bad.Error(); got != tt.bad {
			t.Errorf("%s: refused: %q, want %q", tt.name, got, tt.bad)
		}
		if got := strings.Join(notices, "\n"); got != tt.notice {
			t.Errorf("%s: noticed: %q, want %q", tt.name, got, tt.notice)
		}
	}
}

// started begins a run with the tasks of a file.
func started(t *testing.T, l *config.Loader, file string) (*Folder, *TaskSet, Info) {
	t.Helper()
	l.Config.Output.Dir = filepath.Join(t.TempDir(), "run")
	folder := begin(t, l.Config.Output.Dir, 0o600)
	t.Cleanup(func() { _ = folder.close() }) // the test does not need the error
	check := NewTaskCheck(l.Config, nil)
	check.Dir, check.Mode = folder.Dir, folder.Mode
	set, err := check.Run(tasks.Read(file, nil))
	must(t, err)
	info, err := Describe(l, nil, identityOf(t, l, nil), set, nil, nil)
	must(t, err)
	must(t, folder.Create(info, set))
	return folder, set, info
}

// TestGrowthCutShort checks that a process killed between the two writes of a growth leaves a run
// that can resume.
func TestGrowthCutShort(t *testing.T) {
	t.Parallel()
	l := configured(t, "tasks: {samples: 2}\n")
	folder, begin, info := started(t, l, fileOf(t, "tasks.jsonl", `{"id":"a","prompt":"Hi."}`+"\n"))
	dir, id := folder.Dir, info.Identity
	more := fileOf(t, "more.jsonl", `{"id":"b","prompt":"Ho."}`+"\n"+`{"id":"a","prompt":"Hi."}`+"\n")
	l.Put(l.ByKey["tasks.file"], "--tasks", more)
	grow := func() *TaskSet {
		t.Helper()
		had := readRun(t, dir)
		set, bad, err := (&Earlier{Info: had, Folder: folder}).ReadTasks(l, nil, strings.NewReader(""), nil, false)
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		t.Cleanup(set.Close)
		if b, _ := os.ReadFile(set.path); !strings.HasPrefix(string(b), `{"id":"a",`) || set.Tasks != 2 || set.Samples != 4 {
			t.Errorf("%d tasks, %d samples:\n%s", set.Tasks, set.Samples, b)
		}
		info, err = Describe(l, &had, id, set, nil, nil)
		must(t, err)
		return set
	}
	grow()
	must(t, folder.writeRun(info)) // and no tasks
	set := grow()
	had := readRun(t, dir)
	had.Tasks.SHA256 = begin.digest
	must(t, folder.Update(info, set))
	if grow(); len(info.Invocations) != 4 {
		t.Errorf("%d invocations", len(info.Invocations))
	}
	must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	must(t, os.Rename(filepath.Join(dir, "x"), folder.TasksPath()))
	had, _ = Read(dir)
	if _, _, err := (&Earlier{Info: had, Folder: folder}).ReadTasks(l, nil, strings.NewReader(""), nil, false); exit.Code(err) != exit.Verify {
		t.Errorf("a snapshot that someone changed: %v", err)
	}
}

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestGateResumeOfManyTasks checks that a run with unchanged tasks resumes without reading them, or
// with one read if they are given again. Memory holds 16 bytes per given task and no text.
func TestGateResumeOfManyTasks(t *testing.T) {
	const many = 20_000
	var text strings.Builder
	for i := range many {
		fmt.Fprintf(&text, "{\"id\":\"task-%06d\",\"prompt\":\"What is %d plus 7? Think step by step.\",\"answer\":\"%d\"}\n", i, i, i+7)
	}
	file := fileOf(t, "tasks.jsonl", text.String())
	l := configured(t, "tasks: {file: "+file+"}\n")
	folder, _, _ := started(t, l, file)
	for _, again := range []struct {
		name  string
		given bool
		most  float64
	}{
		{"not given", false, 1300}, // most of them make the settings
		{"given", true, 22 * many},
	} {
		l := configured(t, "tasks: {file: "+file+"}\n")
		if !again.given {
			l.ByKey["tasks.file"].Origin = "default"
		}
		l.Config.Output.Dir = folder.Dir
		allocs := testing.AllocsPerRun(1, func() {
			had := readRun(t, folder.Dir)
			set, bad, err := (&Earlier{Info: had, Folder: folder}).ReadTasks(l, nil, strings.NewReader(""), nil, false)
			if err != nil || bad != nil || !set.own || set.Tasks != many || set.Samples != many {
				t.Fatalf("%+v, %v, %v", set, bad, err)
			}
		})
		if allocs > again.most {
			t.Errorf("%s: %.0f allocations for %d tasks, want at most %.0f", again.name, allocs, many, again.most)
		}
		t.Logf("%s: %.2f allocations a task", again.name, allocs/many)
	}
}
