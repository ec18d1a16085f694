package config

import (
	"encoding/json"
	"fmt"
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

// loaded is like loadWith, but fails the test if a setting is wrong.
func loaded(t *testing.T, file string, env map[string]string, flags ...string) *Loader {
	t.Helper()
	l := loadWith(t, file, env, flags...)
	if err := l.Bad.Err(); err != nil {
		t.Fatal(err)
	}
	return l
}

func loadWith(t *testing.T, file string, env map[string]string, flags ...string) *Loader {
	t.Helper()
	getenv := func(name string) string { return env[name] }
	cmd := &cobra.Command{Use: "x"}
	load := AddFlags(cmd, getenv, nil)
	if file != "" {
		path := filepath.Join(t.TempDir(), "run.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "-c", path)
	}
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
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
	const file = "server:\n  max_in_flight: 2\n"
	env := map[string]string{"ROLLOUT_SERVER_MAX_IN_FLIGHT": "3"}
	for _, tt := range []struct {
		name   string
		file   string
		env    map[string]string
		flags  []string
		want   int
		origin string
	}{
		{"default", "", nil, nil, 24, "default"},
		{"file", file, nil, nil, 2, "run.yaml:2"},
		{"environment over file", file, env, nil, 3, "$ROLLOUT_SERVER_MAX_IN_FLIGHT"},
		{"flag over environment", file, env, []string{"--max-in-flight", "4"}, 4, "--max-in-flight"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := loaded(t, tt.file, tt.env, tt.flags...)
			if got := l.Config.Server.MaxInFlight; got != tt.want {
				t.Errorf("max_in_flight = %d, want %d", got, tt.want)
			}
			if got := l.ByKey["server.max_in_flight"].Origin; !strings.HasSuffix(got, tt.origin) {
				t.Errorf("origin = %q, want %q", got, tt.origin)
			}
		})
	}
}

func TestConfigListsReplaceEachOther(t *testing.T) {
	t.Parallel()
	l := loaded(t, "server: {urls: [http://a, http://b]}", map[string]string{"ROLLOUT_SERVER_URLS": "http://c,http://d"}, "--server", "http://e", "--server", "http://f")
	if got, want := l.ByKey["server.urls"].Text(), "[http://e, http://f]"; got != want {
		t.Errorf("urls = %s, want %s", got, want)
	}
}

func TestConfigComplaints(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"unknown key", "server:\n  max_inflight: 3\n", []string{"run.yaml:2: server.max_inflight: unknown key; did you mean server.max_in_flight?"}},
		{"unknown section", "sever:\n  urls: []\n", []string{"run.yaml:1: sever: unknown key; did you mean server?"}},
		{"key in the wrong section", "server:\n  samples: 3\n", []string{"run.yaml:2: server.samples: unknown key; did you mean tasks.samples?"}},
		{"key of another section that looks like one of this", "run:\n  file: a\n", []string{"run.yaml:2: run.file: unknown key; did you mean tasks.file?"}},
		{"nothing near", "server:\n  colour: red\n", []string{"run.yaml:2: server.colour: unknown key"}},
		{"twice", "run:\n  retries: 1\n  retries: 2\n", []string{"run.yaml:3: run.retries: duplicate key, first on line 2"}},
		{"section twice", "run:\n  retries: 1\nrun:\n  grace: 1s\n", []string{"run.yaml:3: run: duplicate key, first on line 1"}},
		{"section is a text", "server: http://a\n", []string{"run.yaml:1: server: must be a mapping of keys"}},
		{"file is a list", "- a\n", []string{"run.yaml:1: the file: must be a mapping of keys"}},
		{"list for a value", "agent:\n  model: [a]\n", []string{"run.yaml:2: agent.model: must be a single value"}},
		{"mapping for a list", "server:\n  urls: {a: b}\n", []string{"run.yaml:2: server.urls: must be a list of URLs, or of mappings with a url"}},
		{"not a number", "tasks:\n  samples: many\n", []string{`run.yaml:2: tasks.samples: "many" is not a whole number`}},
		{"too small", "server:\n  max_in_flight: 0\n", []string{"run.yaml:2: server.max_in_flight: 0: must be ≥ 1 and ≤ 2147483647"}},
		{"enum", "output:\n  format: parket\n", []string{`run.yaml:2: output.format: "parket" is not one of parquet, arrow; did you mean parquet?`}},
		{"duration", "server:\n  timeout: 30\n", []string{`run.yaml:2: server.timeout: "30" is not a duration (want 90s, 5m or 1h30m)`}},
		{"size", "output:\n  shard_bytes: big\n", []string{`run.yaml:2: output.shard_bytes: "big" is not a size (want 256MiB or 1GB)`}},
		{"share", "run:\n  fail_on_error: 200%\n", []string{`run.yaml:2: run.fail_on_error: "200%" is not a share from 0% to 100%`}},
		{"secret as it is", "server:\n  password: hunter2\n", []string{"run.yaml:2: server.password: a secret must be a reference, ${env:NAME} or ${file:/path}"}},
		{"secret unset", "server:\n  password: ${env:NOPE}\n", []string{"run.yaml:2: server.password: the environment variable NOPE is not set: export it"}},
		{"url without a scheme", "server:\n  urls: ['localhost:8283']\n", []string{`run.yaml:2: server.urls: "localhost:8283" does not begin with http:// or https://; did you mean http://localhost:8283?`}},
		{"address without a scheme", "server:\n  urls: ['10.0.0.1:8283/x']\n", []string{`run.yaml:2: server.urls: "10.0.0.1:8283/x" does not begin with http:// or https://; did you mean http://10.0.0.1:8283/x?`}},
		{"ipv6 without a scheme", "server:\n  urls: ['[::1]:8283']\n", []string{`run.yaml:2: server.urls: "[::1]:8283" does not begin with http:// or https://; did you mean http://[::1]:8283?`}},
		{"a port of https", "server:\n  urls: ['h.example:443']\n", []string{`run.yaml:2: server.urls: "h.example:443" does not begin with http:// or https://; did you mean https://h.example:443?`}},
		{"half a scheme", "server:\n  urls: ['https:/h.example']\n", []string{`run.yaml:2: server.urls: "https:/h.example" does not begin with http:// or https://; did you mean https://h.example?`}},
		{"a misspelt scheme", "server:\n  urls: ['htp://h:80']\n", []string{`run.yaml:2: server.urls: "htp://h:80" does not begin with http:// or https://; did you mean http://h:80?`}},
		{"another scheme", "server:\n  urls: ['ftp://h:80']\n", []string{`run.yaml:2: server.urls: "ftp://h:80" is not a URL (want one like http://127.0.0.1:8283)`}},
		{"metrics without a scheme", "server:\n  engine_metrics: ['gpu1:30000/metrics']\n", []string{`run.yaml:2: server.engine_metrics: "gpu1:30000/metrics" does not begin with http:// or https://; did you mean http://gpu1:30000/metrics?`}},
		{"a tab", "server:\n\turls: x\n", []string{"run.yaml:2: begins with a tab; indent YAML with spaces"}},
		{"url with a password and no scheme", "server:\n  urls: ['u:hunter2@h']\n", []string{"run.yaml:2: server.urls: not a URL (want one like http://127.0.0.1:8283)"}},
		{"url with a key", "server:\n  urls: ['http://h:1/?key=hunter2']\n", []string{"run.yaml:2: server.urls: http://h:1: a server URL must not have a query or fragment"}},
		{"url with a password", "server:\n  urls: ['http://u:hunter2@h']\n", []string{"run.yaml:2: server.urls: http://h: a URL must not contain a user or password; use server.password"}},
		{"url with a key as its user", "server:\n  urls: ['http://hunter2@h']\n", []string{"run.yaml:2: server.urls: http://h: a URL must not contain a user or password; use server.password"}},
		{"header that cannot be sent", "server:\n  headers: {X-A: \"a\\nb\"}\n", []string{"run.yaml:2: server.headers: X-A: contains a control character, which is not allowed in a header"}},
		{"header's name with a line break", "server:\n  headers: {\"X-A\\r\\nX-B\": \"a\"}\n", []string{`run.yaml:2: server.headers: "X-A\r\nX-B" is not a header name (allowed: letters, digits and any of !#$%&'*+-.^_` + "`|~)"}},
		{"one header twice", "server:\n  headers: {X-A: \"a\", x-a: \"b\"}\n", []string{"run.yaml:2: server.headers: X-A and x-a are the same header"}},
		{"value of a header with a wrong tag", "server:\n  headers: {X-A: !!int hunter2}\n", []string{"run.yaml:2: server.headers: line 2: the value is not a !!int"}},
		{"a header is given twice", "server:\n  headers: {X-A: a, X-A: b}\n", []string{"run.yaml:2: server.headers: X-A: given twice in one object"}},
		{"merged text", "server:\n  headers: {<<: a}\n", []string{"run.yaml:2: server.headers: line 2: << needs a mapping or a list of mappings"}},
		{"merged cycle", "agent:\n  create: &a {<<: *a}\n", []string{"run.yaml:2: agent.create: nested deeper than 100"}},
		{"no finite number", "agent:\n  create: {a: .inf}\n", []string{"run.yaml:2: agent.create: line 2: the number is not finite, so it cannot be JSON"}},
		{"a key of an object twice", "agent:\n  create: {a: {b: 1, \"b\": 2}}\n", []string{"run.yaml:2: agent.create: a: b: given twice in one object"}},
		{
			"one server thrice", "server:\n  urls: [http://LETTA:80/v/, \"http://letta/v\", \"http://letta.:80/x/../v\", \"https://letta/v\"]\n",
			[]string{
				"run.yaml:2: server.urls: http://LETTA:80/v/ and http://letta/v are the same server, so max_in_flight would be exceeded",
				"run.yaml:2: server.urls: http://letta/v and http://letta.:80/x/../v are the same server, so max_in_flight would be exceeded",
			},
		},
		{"header is a list", "server:\n  headers: [a]\n", []string{"run.yaml:2: server.headers: must be a mapping"}},
		{"header unset", "server:\n  headers: {X-A: '${env:NOPE}'}\n", []string{"run.yaml:2: server.headers: X-A: the environment variable NOPE is not set: export it"}},
		{"client tools are a mapping", "agent:\n  client_tools: {name: a}\n", []string{"run.yaml:2: agent.client_tools: must be a list of mappings"}},
		{"client tool without a name", "agent:\n  client_tools: [{description: a}]\n", []string{`run.yaml:2: agent.client_tools: tool 0: name "" is empty or used twice`}},
		{"client tool twice", "agent:\n  client_tools: [{name: a}, {name: a}]\n", []string{`run.yaml:2: agent.client_tools: tool 1: name "a" is empty or used twice`}},
		{"client tool with an unknown key", "agent:\n  client_tools: [{name: a, args: b}]\n", []string{`run.yaml:2: agent.client_tools: not a list of tools: unknown field "args"`}},
		{"client tool with two answers", "agent:\n  client_tools: [{name: a, command: [b], answer: c}]\n", []string{"run.yaml:2: agent.client_tools: tool a: has both a command and an answer"}},
		{"client tool with a bad time", "agent:\n  client_tools: [{name: a, timeout: 5}]\n", []string{"run.yaml:2: agent.client_tools: not a list of tools: cannot unmarshal number into Go struct field toolText.timeout of type string"}},
		{"cycle", "agent:\n  create: &a {b: *a}\n", []string{"run.yaml:2: agent.create: nested deeper than 100"}},
		{"grade that cannot be had", "tokens: {prompts: literal, require: exact}\n", []string{"run.yaml:1: tokens.require: tokens.prompts literal proves at most unverified: lower tokens.require or choose another source"}},
		{"reward without its pattern", "reward:\n  kind: regex\n", []string{"reward.pattern: is required by reward.kind regex"}},
		{"all at once", "run:\n  retires: 1\ntasks:\n  samples: -1\nagent:\n  mdoel: x\n", []string{
			"run.yaml:2: run.retires: unknown key; did you mean run.retries?",
			"run.yaml:4: tasks.samples: -1: must be ≥ 1 and ≤ 2147483647",
			"run.yaml:6: agent.mdoel: unknown key; did you mean agent.model?",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := loadWith(t, tt.file, nil)
			if got := complaintsOf(l); !slices.Equal(got, tt.want) {
				t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
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
	if err != nil {
		t.Fatal(err)
	}
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

// The environment variable of the password is itself the reference.
func TestConfigPasswordFromEnvironment(t *testing.T) {
	t.Parallel()
	l := loaded(t, "", map[string]string{"ROLLOUT_SERVER_PASSWORD": "hunter2"})
	if p := l.Config.Server.Password; p.Reveal() != "hunter2" || p.ref != "${env:ROLLOUT_SERVER_PASSWORD}" {
		t.Errorf("password by %q", p.ref)
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
			if err := l.File(path); err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
	environ := []string{
		"ROLLOUT_RUN_RETRYS=3", "ROLLOUT_SERVER_URL=http://a", "ROLLOUT_OUTPUT_COLOUR=red", "ROLLOUT_TASKS_LIMITS=", // the last one is empty
		"ROLLOUT_TASKS_LIMIT=4", "ROLLOUT_SERVER_TOKEN=canary", "ROLLOUT_PYTHON=python3", "ROLLOUT_KILLS=3", "ROLLOUT_SOAK=1h", "ROLLOUT_SEED=1",
		"ROLLOUT_FAILPOINT=wal.synced", "ROLLOUT_HOME=/x", "ROLLOUTS=1", "PATH=/bin",
	}
	getenv := func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	load := AddFlags(cmd, getenv, environ)
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("server: {password: '${env:ROLLOUT_SERVER_TOKEN}'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.SetArgs([]string{"-c", path})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	l, err := load()
	if l == nil {
		t.Fatal(err)
	}
	var got []string
	for _, err := range l.Bad {
		got = append(got, err.Error())
	}
	want := []string{
		"$ROLLOUT_RUN_RETRYS: is not a setting; did you mean ROLLOUT_RUN_RETRIES?",
		"$ROLLOUT_SERVER_URL: is not a setting; did you mean ROLLOUT_SERVER_URLS?",
		"$ROLLOUT_OUTPUT_COLOUR: is not a setting; rollout config show lists all settings",
	}
	if !slices.Equal(got, want) {
		t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
