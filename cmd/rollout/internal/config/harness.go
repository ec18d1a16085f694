package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Kind is a source of rollouts.
type Kind struct {
	Key      string // the setting that selects the kind
	Do, Does string // for messages: "drive agents", "drives agents"
}

// The kinds of runs.
var (
	KindAgents   = Kind{"server.urls", "drive its own agents", "drives its own agents"}
	KindHarness  = Kind{"harness.command", "drive a harness", "drives a harness"}
	KindRuns     = Kind{"tasks.from_runs", "read server runs", "reads server runs"}
	KindSessions = Kind{"tasks.from_sessions", "read sessions", "reads sessions"}
)

// Kind returns the source of the run's rollouts.
func (c *Config) Kind() Kind {
	switch {
	case c.Tasks.FromRuns != nil:
		return KindRuns
	case c.Tasks.FromSessions != "":
		return KindSessions
	case c.Harness.Preset != "" || len(c.Harness.Command) > 0:
		return KindHarness
	}
	return KindAgents
}

// Recorded reports whether the run's calls are recorded as they pass, so that no Letta server is
// used.
func (c *Config) Recorded() bool { return c.Kind() == KindHarness || c.Kind() == KindSessions }

// environment contains variables for a harness. A value that is a reference is stored and shown as
// the reference.
type environment map[string]headerValue

func (e *environment) setting(key string, getenv func(string) string) *Setting {
	s := structured(key, yaml.MappingNode, func(raw json.RawMessage) error {
		if err := unambiguous(raw); err != nil {
			return err
		}
		return e.parse(raw, getenv)
	}, func() any {
		shown := make(map[string]string, len(*e))
		for name, v := range *e {
			shown[name] = v.shown
		}
		return shown
	})
	s.texts = true
	return s
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (e *environment) parse(raw json.RawMessage, getenv func(string) string) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return errors.New("must be a mapping of names to strings")
	}
	*e = make(environment, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		text, ok := scalarOf(m[name])
		if !ok {
			return errors.New("must be a mapping of names to strings")
		}
		if !variableName.MatchString(name) {
			return fmt.Errorf("%q is not a name of an environment variable", termsafe.Text(name, 60))
		}
		v := headerValue{text: text, shown: text}
		if _, _, is := cutReference(text); is {
			s, err := ParseSecret(text, getenv)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			v.text = s.Reveal()
		} else if harness.IsSecret(name, text) { // the run's folder contains a copy of the settings
			return fmt.Errorf("%s: the value can be a secret, so write a reference such as ${env:%s}; {key} is the key of the session", name, name)
		}
		if strings.ContainsRune(v.text, 0) {
			return fmt.Errorf("%s: a value must not contain a NUL byte", name)
		}
		(*e)[name] = v
	}
	return nil
}

// Reveal returns the variables with their values. It must be called only by code that starts the
// harness.
func (e environment) Reveal() map[string]string {
	out := make(map[string]string, len(e))
	for name, v := range e {
		out[name] = v.text
	}
	return out
}

// secrets returns the values that were given by reference.
func (e environment) secrets() (values []string) {
	for _, v := range e {
		if v.text != v.shown {
			values = append(values, v.text)
		}
	}
	return values
}

// presetSetting returns the setting for the name of a preset. The name can be empty.
func presetSetting(key string, to *string) *Setting {
	names := harness.PresetNames()
	s := scalar(key, "NAME", to, func(text string) (string, error) {
		if text == "" || slices.Contains(names, text) {
			return text, nil
		}
		return "", fmt.Errorf("%q is not one of %s%s", termsafe.Text(text, 60), strings.Join(names, ", "), format.DidYouMean("; ", text, names))
	}, itself)
	s.enum = names
	return s
}

// HarnessConfig returns the configuration of the harness, with the preset. It lacks the fields that
// depend on the run. An error names its setting.
func (c *Config) HarnessConfig() (cfg harness.Config, err error) {
	h := &c.Harness
	cfg = harness.Config{
		Command: h.Command, Stdin: h.Stdin, Env: h.Env.Reveal(), Secrets: h.Env.secrets(), Workdir: h.Workdir, Timeout: h.Timeout,
		Build: session.Config{TrainAuxiliary: c.Tokens.ChainsAll}, Keep: c.Agent.Keep,
	}
	if h.Output != "" {
		if cfg.Output, err = harness.ParseOutput(h.Output); err != nil {
			return cfg, err
		}
	}
	if h.Preset == "" {
		return cfg, nil
	}
	preset, err := harness.FindPreset(h.Preset)
	if err != nil {
		return cfg, err
	}
	return cfg, preset.Apply(&cfg)
}

// HarnessName returns the preset, or the program of a harness without a preset.
func (c *Config) HarnessName() string {
	if c.Harness.Preset != "" {
		return c.Harness.Preset
	}
	return c.Harness.Command[0]
}

// noSessions stands for the sessions of a harness while its settings are checked.
type noSessions struct{ harness.Sessions }

// checkHarness reports conflicts between the settings of a harness and other settings.
func (c *Config) checkHarness(complain func(when bool, key, format string, args ...any)) {
	h := &c.Harness
	const why = "needs harness.preset or harness.command"
	if h.Preset == "" && len(h.Command) == 0 {
		complain(h.Stdin != "", "harness.stdin", why)
		complain(len(h.Env) > 0, "harness.env", why)
		complain(h.Workdir != "", "harness.workdir", why)
		complain(h.Output != "", "harness.output", why)
		complain(len(h.Set) > 0, "harness.set", why)
		complain(h.Continuity, "harness.continuity", why)
		complain(h.Render, "harness.render", why)
		complain(len(c.Engine.URLs) > 0, "engine.urls", why)
		return
	}
	complain(h.Timeout >= c.Run.AttemptTimeout, "harness.timeout",
		"must be shorter than run.attempt_timeout (%v), which includes the time for the copy of workdir and for the score", c.Run.AttemptTimeout)
	complain(len(c.Engine.URLs) == 0, "engine.urls", "required with a harness; want the URL of an inference engine, such as http://127.0.0.1:30000")
	for _, u := range c.Engine.URLs {
		err := checkURL(u, "")
		complain(err != nil, "engine.urls", "%v", err)
	}
	complain(h.Render && c.Tokens.Tokenizer == "", "harness.render", "needs tokens.tokenizer, the folder with the model's tokenizer and chat template")
	const withRender = "cannot be used with harness.render; turn one of them off"
	complain(h.Render && c.Output.Inside.Experts != (tokenize.ExpertShape{}), "output.routed_experts", withRender)
	complain(h.Render && c.Output.Inside.SamplingMask, "output.sampling_mask", withRender)
	complain(len(c.Server.URLs) > 0, "server.urls", "cannot be used with a harness: a run drives either a harness or agents on Letta servers")
	complain(c.Tasks.FromRuns != nil, "tasks.from_runs", "cannot be used with a harness")
	complain(c.Tasks.FromSessions != "", "tasks.from_sessions", "cannot be used with a harness")
	complain(len(c.Tokens.Tap) > 0, "tokens.tap", "cannot be used with a harness, because collect itself records the calls")
	complain(c.Agent.Model != "" || c.Agent.File != "", "agent.model", "cannot be used with a harness; the engine serves one model")
	complain(c.Tokens.Prompts != PromptsAuto && c.Tokens.Prompts != PromptsTap, "tokens.prompts", "cannot be used with a harness, because the prompts come from the recorded calls")
	complain(c.Tokens.PolicyVersion.Traces, "tokens.policy_version", "trace cannot be used with a harness; a version in the engine's answers is always used")
	cfg, err := c.HarnessConfig()
	if err == nil {
		cfg.BaseURL, cfg.Sessions = "http://127.0.0.1", noSessions{}
		err = cfg.Validate()
	}
	for _, e := range harness.FieldErrors(err) {
		complain(true, "harness."+e.Field, "%v", e.Err)
	}
}

// checkSessions reports settings that conflict with tasks.from_sessions.
func (c *Config) checkSessions(complain func(when bool, key, format string, args ...any)) {
	const key = "tasks.from_sessions"
	from := c.Tasks.FromSessions
	if from == "" {
		return
	}
	if strings.Contains(from, "://") {
		err := checkURL(from, "; use tokens.tap_token")
		complain(err != nil, key, "%v", err)
	}
	complain(len(c.Server.URLs) > 0, key, "cannot be used with server.urls, because no server is used")
	complain(c.Tasks.FromRuns != nil, key, "cannot be used with tasks.from_runs")
	complain(c.Tasks.File != "", key, "cannot be used with tasks.file")
	complain(c.Tokens.Prompts != PromptsAuto && c.Tokens.Prompts != PromptsTap, key, "cannot be used with tokens.prompts %s, because the prompts come from the recorded calls", c.Tokens.Prompts)
	v := &c.Tokens.PolicyVersion
	complain(v.Claimed || v.Traces || v.URL.Reveal() != "", key,
		"cannot be used with tokens.policy_version, because this process sends nothing; versions come from the engine's answers")
	complain(c.Tasks.Samples != 1, key, "cannot be used with tasks.samples, because each session is one sample")
	complain(c.Groups(), key, "cannot be used with tasks.until_groups or reward.min_std, because each session is its own group")
}
