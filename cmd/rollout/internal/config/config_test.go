package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// loaded is like loadWith, but fails the test if a setting is wrong.
func loaded(t *testing.T, file string, env map[string]string, flags ...string) *Loader {
	t.Helper()
	l := loadWith(t, file, env, flags...)
	must(t, l.Bad.Err())
	return l
}

func loadWith(t *testing.T, file string, env map[string]string, flags ...string) *Loader {
	t.Helper()
	var environ []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		environ = append(environ, name+"="+env[name])
	}
	cmd := &cobra.Command{Use: "x"}
	load := AddFlags(cmd, func(name string) string { return env[name] }, environ)
	if file != "" {
		path := filepath.Join(t.TempDir(), "run.yaml")
		must(t, os.WriteFile(path, []byte(file), 0o600))
		flags = append(flags, "-c", path)
	}
	must(t, cmd.ParseFlags(flags))
	l, err := load()
	if l == nil {
		t.Fatal(err)
	}
	return l
}

// complaintsOf returns the complaints without the folder of the file.
func complaintsOf(l *Loader) []string {
	var out []string
	for _, err := range l.Bad {
		text := err.Error()
		if i := strings.Index(text, "run.yaml"); i >= 0 {
			text = text[i:]
		}
		out = append(out, text)
	}
	return out
}

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	const file = "server:\n  max_in_flight: 2\n  urls: [http://a, http://b]\n"
	env := map[string]string{"ROLLOUT_SERVER_MAX_IN_FLIGHT": "3", "ROLLOUT_SERVER_URLS": "http://c,http://d", "ROLLOUT_SERVER_PASSWORD": "hunter2"}
	flags := []string{"--max-in-flight", "4", "--server", "http://e", "--server", "http://f"}
	for _, tt := range []struct {
		name              string
		file              string
		env               map[string]string
		flags             []string
		key, want, origin string
	}{
		{"default", "", nil, nil, "server.max_in_flight", "24", "default"},
		{"file", file, nil, nil, "server.max_in_flight", "2", "run.yaml:2"},
		{"environment over file", file, env, nil, "server.max_in_flight", "3", "$ROLLOUT_SERVER_MAX_IN_FLIGHT"},
		{"flag over environment", file, env, flags, "server.max_in_flight", "4", "--max-in-flight"},
		{"a list replaces the one before", file, env, flags, "server.urls", "[http://e, http://f]", "--server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := loaded(t, tt.file, tt.env, tt.flags...)
			if s := l.ByKey[tt.key]; s.Text() != tt.want || !strings.HasSuffix(s.Origin, tt.origin) {
				t.Errorf("%s = %s of %q, want %s of %q", tt.key, s.Text(), s.Origin, tt.want, tt.origin)
			}
			// The environment variable of the password is itself the reference.
			if p := l.Config.Server.Password; tt.env != nil && (p.Reveal() != "hunter2" || p.ref != "${env:ROLLOUT_SERVER_PASSWORD}") {
				t.Errorf("password %q by %q", p.Reveal(), p.ref)
			}
		})
	}
}

// TestConfigComplaints checks the complaints about the configurations of testdata/complaints.txt, which
// follow each configuration after =>.
func TestConfigComplaints(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/complaints.txt")
	must(t, err)
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		name, block, _ := strings.Cut(block, "\n")
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) {
			t.Parallel()
			file, want, _ := strings.Cut(block, "\n=> ")
			l := loadWith(t, file+"\n", nil)
			if got := strings.Join(complaintsOf(l), "\n=> "); got != want {
				t.Errorf("complaints:\n=> %s\nwant:\n=> %s", got, want)
			}
			if exit.Code(l.Bad.Err()) != exit.Usage {
				t.Errorf("exit code %d, want %d", exit.Code(l.Bad.Err()), exit.Usage)
			}
		})
	}
}

func TestConfigValues(t *testing.T) {
	t.Parallel()
	l := loaded(t, `
server: {urls: http://one, timeout: 90s, password: "${env:PW}"}
agent:
  create:
    context_window_limit: 8192
    tags: [a, b]
output: {shard_bytes: 1.5MiB}
run: {fail_on_error: 2.5%}
tokens:
`, map[string]string{"PW": "hunter2"})
	c := l.Config
	if len(c.Server.URLs) != 1 || c.Server.URLs[0].URL != "http://one" || c.Server.Timeout != 90*time.Second || c.Output.ShardBytes != 3<<19 {
		t.Errorf("config = %+v", c)
	}
	if got, want := string(c.Agent.Create), `{"context_window_limit":8192,"tags":["a","b"]}`; got != want {
		t.Errorf("agent.create = %s, want %s", got, want)
	}
	if got := c.Run.FailOnError.Allowed(200); got != 5 {
		t.Errorf("2.5%% of 200 = %d, want 5", got)
	}
	if got := c.Server.Password.Reveal(); got != "hunter2" {
		t.Errorf("password = %q", got)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(format, *c); strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("%s shows the password: %s", format, text)
		}
	}
	b, err := json.Marshal(l.Resolved())
	must(t, err)
	if strings.Contains(string(b), "hunter2") || !strings.Contains(string(b), "${env:PW}") {
		t.Errorf("resolved = %s", b)
	}
}

// Values of headers keep their text, and merge keys add to a mapping what it does not have itself.
func TestConfigHeaders(t *testing.T) {
	t.Parallel()
	l := loaded(t, `
server:
  headers: &common {A: 007, B: 0123456, C: 0x1F, D: 1_000, E: True, F: .5, G: .inf, H: 2026-01-02, I: 1.0, J: ~, K: !!binary aGk=}
  urls:
    - {url: http://a, weight: 010, max_in_flight: 010, headers: {<<: *common, A: own}}
    - {url: http://b, headers: {<<: [{A: 0x2}, *common], Z: "9"}}
agent:
  create: {c: 1, <<: {a: 1.0, c: 2}, b: 007}
`, nil)
	want := http.Header{
		"A": {"007"}, "B": {"0123456"}, "C": {"0x1F"}, "D": {"1_000"}, "E": {"True"}, "F": {".5"}, "G": {".inf"}, "H": {"2026-01-02"},
		"I": {"1.0"}, "J": {""}, "K": {"hi"},
	}
	c := l.Config
	if got := c.Server.Headers.Reveal(); !reflect.DeepEqual(got, want) {
		t.Errorf("server.headers are %v, want %v", got, want)
	}
	a, b := &c.Server.URLs[0], &c.Server.URLs[1]
	want["A"] = []string{"own"}
	if got := a.Headers.Reveal(); !reflect.DeepEqual(got, want) || a.Weight != 10 || a.MaxInFlight != 10 {
		t.Errorf("headers %v, weight %v, %d in flight", got, a.Weight, a.MaxInFlight)
	}
	want["A"], want["Z"] = []string{"0x2"}, []string{"9"}
	if got := b.Headers.Reveal(); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	if got, want := string(c.Agent.Create), `{"c":1,"b":7,"a":1.0}`; got != want {
		t.Errorf("agent.create is %s, want %s", got, want)
	}
}

// Every setting has a help text and its own flag, and accepts the value that it shows.
func TestConfigSettings(t *testing.T) {
	t.Parallel()
	l := NewLoader(func(string) string { return "" })
	flags := map[string]bool{}
	for _, s := range l.Settings {
		if s.doc == "" {
			t.Errorf("%s: no doc", s.Key)
		}
		if strings.Count(s.Key, ".") != 1 {
			t.Errorf("%s: want section.name", s.Key)
		}
		if s.flag != "" && flags[s.flag] {
			t.Errorf("--%s: given twice", s.flag)
		}
		flags[s.flag] = true
		if text := s.Text(); text != "" && s.reset == nil {
			if err := s.set(text); err != nil {
				t.Errorf("%s: cannot be set to its default %q: %v", s.Key, text, err)
			}
			if again := s.Text(); again != text {
				t.Errorf("%s: %q became %q", s.Key, text, again)
			}
		}
	}
}

// The example configurations load without errors and are complete.
func TestConfigExamples(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../../../configs/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no configs: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"LETTA_PASSWORD": "x"}
			l := NewLoader(func(name string) string { return env[name] })
			must(t, l.File(path))
			bad := append(l.Bad, l.Config.check(l.where)...)
			if filepath.Base(path) != "demo.yaml" { // the demo gets its server and folder from flags
				bad = append(bad, l.Config.CheckComplete(true)...)
			}
			for _, err := range bad {
				t.Error(err)
			}
		})
	}
}

// collect.yaml mentions every setting, at least in a comment.
func TestConfigExampleIsWhole(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../../configs/collect.yaml")
	must(t, err)
	section := ""
	named := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if word, _, ok := strings.Cut(line, ":"); ok && line[0] != ' ' && line[0] != '#' {
			section = word
		} else if word, _, ok := strings.Cut(strings.TrimLeft(line, " #"), ":"); ok {
			named[section+"."+word] = true
		}
	}
	for _, s := range NewLoader(func(string) string { return "" }).Settings {
		if !named[s.Key] {
			t.Errorf("%s is not in it", s.Key)
		}
	}
}

// TestForeignNames checks that each foreign name has one meaning, which exists, and is not ours.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	l := NewLoader(func(string) string { return "" })
	seen := map[string]string{}
	for _, table := range []map[string][]string{foreign, overrides} {
		for to, names := range table {
			if !slices.Contains(proxy.SettingNames(), to) && l.ByKey[to] == nil {
				t.Errorf("%s is neither a setting nor a parameter of rollout tap --set", to)
			}
			for _, name := range names {
				if seen[name] != "" {
					t.Errorf("%s is %s and %s", name, seen[name], to)
				}
				seen[name] = to
				for _, s := range l.Settings {
					if s.flag == strings.ReplaceAll(name, "_", "-") {
						t.Errorf("%s is a flag of ours", name)
					}
				}
			}
		}
	}
}

// A variable that looks like a setting but is not one is an error. Variables that references use,
// and variables of other programs, are not.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"ROLLOUT_RUN_RETRYS": "3", "ROLLOUT_SERVER_URL": "http://a", "ROLLOUT_OUTPUT_COLOUR": "red", "ROLLOUT_TASKS_LIMITS": "",
		"ROLLOUT_TASKS_LIMIT": "4", "ROLLOUT_SERVER_TOKEN": "canary", "ROLLOUT_PYTHON": "python3", "ROLLOUT_KILLS": "3", "ROLLOUT_SOAK": "1h",
		"ROLLOUT_SEED": "1", "ROLLOUT_FAILPOINT": "wal.synced", "ROLLOUT_HOME": "/x", "ROLLOUTS": "1", "PATH": "/bin",
	}
	got := complaintsOf(loadWith(t, "server: {password: '${env:ROLLOUT_SERVER_TOKEN}'}\n", env))
	want := []string{
		"$ROLLOUT_OUTPUT_COLOUR: not a setting; rollout config show lists all settings",
		"$ROLLOUT_RUN_RETRYS: not a setting; did you mean ROLLOUT_RUN_RETRIES?",
		"$ROLLOUT_SERVER_URL: not a setting; did you mean ROLLOUT_SERVER_URLS?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
