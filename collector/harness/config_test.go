package harness_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
)

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		change func(c *harness.Config)
		want   string
	}{
		{func(c *harness.Config) { c.Command = nil }, "harness.command: is empty; set a command or a preset"},
		{func(c *harness.Config) { c.Command = []string{"true"} }, "neither it nor stdin contains {prompt}"},
		{func(c *harness.Config) { c.Env = map[string]string{"K": "{key}"} }, "no value contains {base_url}"},
		{func(c *harness.Config) { c.Env["A=B"] = "" }, `"A=B" is not a valid name`},
		{func(c *harness.Config) { c.Files = map[string]string{"../x": ""} }, `files: "../x" is not a relative path`},
		{func(c *harness.Config) { c.Timeout = -1 }, "timeout: -1ns is negative"},
		{func(c *harness.Config) { c.BaseURL = "" }, "base URL: is empty"},
		{func(c *harness.Config) { c.Sessions = nil }, "sessions: is nil"},
		{func(c *harness.Config) { c.Workdir = "/nonexistent/fixture" }, "workdir: stat /nonexistent/fixture: no such file"},
		{func(c *harness.Config) { c.Workdir = file }, file + " is not a folder"},
		{func(c *harness.Config) { c.Command[0] = "no-such-agent" }, "command: no-such-agent is not in PATH; install it or write its path"},
		{func(c *harness.Config) { c.Command[0] = "./no-such-agent" }, "command: ./no-such-agent does not exist or is not executable"},
		{func(c *harness.Config) { c.Command[0] = file }, file + " does not exist or is not executable"},
	} {
		cfg := r.config(t)
		tt.change(&cfg)
		_, err := harness.NewBackend(cfg)
		if n := len(harness.FieldErrors(err)); n != 1 {
			t.Errorf("%v has %d errors in fields, want 1", err, n)
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, collector.ErrUnusable) {
			t.Errorf("NewBackend = %v, want one line with %q", err, tt.want)
		}
	}
}

// TestContext checks that an unknown context length is an error if the harness needs it.
func TestContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, text := range []string{"{context}", "{max_output}", "{model}"} {
		cfg := r.config(t)
		cfg.Files = map[string]string{"settings": text}
		b := backend(t, cfg)
		if err := b.Serve("m", 0); (err != nil) != (text != "{model}") || err != nil && !errors.Is(err, collector.ErrUnusable) {
			t.Errorf("%s: Serve of an unknown context length = %v", text, err)
		}
		if err := b.Serve("m", 8192); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTaskErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := backend(t, r.config(t))
	for _, tt := range []struct {
		task collector.Task
		want string
	}{
		{collector.Task{Messages: []string{"a", "b"}}, "the task has 2 messages, but a command receives exactly one"},
		{collector.Task{Messages: []string{"a"}, Agent: json.RawMessage(`{"model":"m"}`)}, "only the settings workdir and env"},
		{collector.Task{Messages: []string{"a"}, Agent: json.RawMessage(`{"workdir":"/nonexistent"}`)}, "/nonexistent"},
		{collector.Task{Messages: []string{"a"}, Agent: json.RawMessage(`{"env":{"MY_API_KEY":"k"}}`)}, "env: MY_API_KEY: the value can be a secret, so set it in harness.env"},
		{collector.Task{Messages: []string{"a"}, Agent: json.RawMessage(`{"env":{"MY_API_KEY":"{key}"}}`)}, ""},
		{collector.Task{Messages: []string{"a"}, Agent: json.RawMessage(`{"workdir":"/tmp","env":{"A":"b"}}`)}, ""},
	} {
		err := b.CheckTask(&tt.task)
		if tt.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || collector.Classify(err) != collector.ClassBadRequest {
			t.Errorf("CheckTask = %v, want %q", err, tt.want)
		}
		if _, err := b.Open(t.Context(), collector.Attempt{Task: &tt.task}); collector.Classify(err) != collector.ClassBadRequest {
			t.Errorf("Open = %v", err)
		}
	}
	for prompt, class := range map[string]collector.Class{
		strings.Repeat("x", 200<<10): collector.ClassBadRequest, "a\x00b": collector.ClassBadRequest,
	} {
		a := attempt(prompt, 1)
		a.Key = "odd"
		g := open(t, b, a)
		if _, err := g.Run(t.Context()); collector.Classify(err) != class {
			t.Errorf("a prompt of %d bytes: %v", len(prompt), err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestOutputErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"file:", "file:/etc/passwd", "file:../../x", "file:{home}/../../x", "json:", "json:x", "json:.", "json:.a..b", "stdin", "json:/a:.b", "json::.b"} {
		if o, err := harness.ParseOutput(text); err == nil {
			t.Errorf("ParseOutput(%q) = %v, nil, want an error", text, o)
		}
	}
	for _, text := range []string{"stdout", "session", "file:a/b", "file:{workdir}/a", "file:{home}/a", "json:.a", "json:.a[0].b", "json:{home}/t.json:.a.b", "json:a:b:.c"} {
		if o, err := harness.ParseOutput(text); err != nil || o.String() != text {
			t.Errorf("ParseOutput(%q) = %v, %v", text, o, err)
		}
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := harness.FindPreset("letta"); err == nil || !strings.Contains(err.Error(), "the presets are letta-code, opencode,") {
		t.Errorf("FindPreset = %v", err)
	}
	for _, name := range harness.PresetNames() {
		p, err := harness.FindPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := harness.Config{BaseURL: r.url, Sessions: stored{r.store}, Env: map[string]string{"EXTRA": "1"}}
		if err := p.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if cfg.Env["EXTRA"] != "1" || cfg.Output.String() != p.Output || !slices.Equal(cfg.Command, p.Command) {
			t.Errorf("%s: %+v", name, cfg)
		}
		numbers := strings.NewReplacer("{context}", "8192", "{max_output}", "2048")
		texts := []string{cfg.Env["OPENCODE_CONFIG_CONTENT"]}
		for name, text := range cfg.Files {
			if strings.HasSuffix(name, ".json") {
				texts = append(texts, text)
			}
		}
		for _, text := range texts {
			text = numbers.Replace(text)
			if text != "" && !json.Valid([]byte(text)) {
				t.Errorf("%s: %s is not JSON", name, text)
			}
		}
		cfg.Command[0] = "/nonexistent/" + cfg.Command[0]
		if again, _ := harness.FindPreset(name); again.Command[0] == cfg.Command[0] {
			t.Errorf("%s: a caller changed the preset", name)
		}
	}
	cfg := r.config(t)
	cfg.Command = nil
	p, _ := harness.FindPreset("mini-swe-agent")
	p.Command[0] = "mini"
	if err := p.Apply(&cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := harness.NewBackend(cfg); err != nil && !strings.Contains(err.Error(), "install it, for example with pip install mini-swe-agent, or write its path") {
		t.Errorf("NewBackend = %v", err)
	}
}
