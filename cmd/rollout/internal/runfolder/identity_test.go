package runfolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
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
	again.FromRun(info.Config, "")
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

// TestIdentity checks that exactly the settings that rows depend on are compared.
func TestIdentity(t *testing.T) {
	t.Parallel()
	agentFile := fileOf(t, "agent.af", "{}")
	model := &Model{TokenizerSHA256: "aaaaaaaaaaaaaaaa", ChatTemplateSHA256: "cccc"}
	for _, tt := range []struct {
		name   string
		config string
		model  *Model
		want   []string // prefix of each complaint; none: the run can resume
	}{
		{"the same", fullConfig, model, nil},
		{"what may change", strings.NewReplacer("max_in_flight: 7", "max_in_flight: 8", `"http://b"`, `"http://c"`, "5%", "0", "1.05", "1.5",
			"1MiB, messages", "2MiB, format: arrow, messages", "brief>", "brief>").Replace(fullConfig), model, nil},
		{"agent", strings.Replace(fullConfig, "kind.", "kind!", 1), model, []string{"agent.system: the run has Be <brief> & kind., you set Be <brief> & kind!"}},
		{
			"two", strings.NewReplacer("0.7", "0.8", "messages: true", "messages: false").Replace(fullConfig), model,
			[]string{"agent.temperature: the run has 0.7, you set 0.8", "output.messages: the run has true, you set false"},
		},
		{"the order of a tool's parameters", strings.Replace(fullConfig, "zeta: 1.0, alpha: true", "alpha: true, zeta: 1.0", 1), model, []string{"agent.client_tools: "}},
		{"reward", strings.Replace(fullConfig, "0.001", "0.01", 1), model, []string{"reward.tolerance: the run has 0.001, you set 0.01"}},
		{"transformers", fullConfig + "tokens: {transformers: \"5.23\"}\n", model, []string{"tokens.transformers"}},
		{"no tokenizer", fullConfig, nil, []string{"tokens.tokenizer: the run has sha256 aaaaaaaaaaaa, you set no tokenizer"}},
		{
			"template", fullConfig, &Model{TokenizerSHA256: model.TokenizerSHA256, ChatTemplateSHA256: "dddd"},
			[]string{"tokens.tokenizer: chat template: the run has sha256 cccc, you set sha256 dddd"},
		},
		{"agent file", strings.Replace(fullConfig, "model: m", "model: m\n  file: "+agentFile, 1), model, []string{"agent.file: the run has no agent file, you set sha256 44136fa355b3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			info := described(t, configured(t, fullConfig), model)
			l := configured(t, tt.config)
			id := identityOf(t, l, tt.model)
			bad := Changes(l, info, id, tt.model, true)
			if len(bad) != len(tt.want) {
				t.Fatalf("changes: %v, want %q", bad, tt.want)
			}
			for i, err := range bad {
				if !strings.HasPrefix(err.Error(), tt.want[i]) {
					t.Errorf("change %d: %v, want %s…", i, err, tt.want[i])
				}
			}
			if same := id.SHA256 == info.Identity.SHA256; same != (len(tt.want) == 0) {
				t.Errorf("the digest is the same: %v", same)
			}
		})
	}
}

// TestTokensMayChange checks that tokens.* can change while the run has no rows, and that a run
// without a tokenizer can get one.
func TestTokensMayChange(t *testing.T) {
	t.Parallel()
	qwen := &Model{TokenizerSHA256: "aaaaaaaaaaaaaaaa", ChatTemplateSHA256: "cccc"}
	llama := &Model{TokenizerSHA256: "bbbbbbbbbbbbbbbb", ChatTemplateSHA256: "dddd"}
	turns := fullConfig + "tokens: {prompts: turns}\n"
	for _, tt := range []struct {
		name     string
		had, now *Model
		before   string // configuration
		rows     bool
		want     int // number of complaints
	}{
		{"a tokenizer is added", nil, qwen, fullConfig, false, 0},
		{"a tokenizer is added to rows that used none", nil, qwen, fullConfig, true, 0},
		{"a wrong tokenizer is replaced", llama, qwen, fullConfig, false, 0},
		{"rows used another one", llama, qwen, fullConfig, true, 2},
		{"a tokenizer is taken away", qwen, nil, fullConfig, true, 1},
		{"another source, no row", nil, qwen, turns, false, 0},
		{"another source than that of the rows", nil, qwen, turns, true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			info := described(t, configured(t, tt.before), tt.had)
			l := configured(t, fullConfig)
			id := identityOf(t, l, tt.now)
			if bad := Changes(l, info, id, tt.now, tt.rows); len(bad) != tt.want {
				t.Errorf("%d complaints, want %d: %v", len(bad), tt.want, bad)
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
		{"a patch", Server{"http://a", "0.16.9", m(32)}, "", "server http://a has version 0.16.9; the run started with 0.16.7"},
		{"a release", Server{"http://a", "0.17.0", m(32)}, "server http://a: the run has version 0.16.7, this one is 0.17.0", ""},
		{"a window", Server{"http://a", "0.16.7", m(16)}, "server http://a: model h: the run has context window 32, this server has 16", ""},
		{"no word on the model", Server{"http://a", "0.16.7", nil}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bad, notices := ServerChanges(had, []Server{tt.now})
			if got := bad.Error(); got != tt.bad {
				t.Errorf("refused: %q, want %q", got, tt.bad)
			}
			if got := strings.Join(notices, "\n"); got != tt.notice {
				t.Errorf("noticed: %q, want %q", got, tt.notice)
			}
		})
	}
}

// TestGrowthCutShort checks that a process killed between the two writes of a growth leaves a run
// that can resume.
func TestGrowthCutShort(t *testing.T) {
	t.Parallel()
	l := configured(t, "tasks: {samples: 2}\n")
	dir := filepath.Join(t.TempDir(), "run")
	l.Config.Output.Dir = dir
	id := identityOf(t, l, nil)
	folder := begin(t, dir, 0o600)
	defer func() { _ = folder.close() }() // the test does not need the error
	begin := spooled(t, dir)
	info, err := Describe(l, nil, id, begin, nil, nil)
	must(t, err)
	must(t, folder.Create(info, begin))

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
		if info, err = Describe(l, &had, id, set, nil, nil); err != nil {
			t.Fatal(err)
		}
		return set
	}
	grow()
	if err := folder.writeRun(info); err != nil { // and no tasks
		t.Fatal(err)
	}
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
