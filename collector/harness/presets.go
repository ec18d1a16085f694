package harness

import (
	"cmp"
	_ "embed" // the programs of libraries
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Preset contains the settings of a published agent program: how to start it for one task, how to
// isolate it from other attempts, how to turn off its telemetry and updates, and where its final
// answer is.
type Preset struct {
	Name string
	// Install is a command that installs the program.
	Install string
	// Command, Stdin, Env and Files have the same meaning as in Config.
	Command    []string
	Stdin      string
	Env, Files map[string]string
	// Output is an argument of ParseOutput.
	Output string
}

// The programs that run the agent libraries. The libraries have no commands.
var (
	//go:embed presets/openai-agents.py
	openaiAgents string
	//go:embed presets/openhands.py
	openhands string
	//go:embed presets/langgraph.py
	langgraph string
	//go:embed presets/smolagents.py
	smolagents string
)

const python = "python3"

// library returns the preset for a library. The program is a Python file, and the python3 in PATH
// must be able to import the library.
func library(name, packages, program string, env map[string]string) Preset {
	return Preset{
		Name: name, Install: "pip install " + packages,
		Command: []string{python, "{home}/agent.py"}, Stdin: "{prompt}",
		Env: env, Files: map[string]string{"agent.py": program}, Output: "stdout",
	}
}

var presets = []Preset{
	{
		Name:    "letta-code",
		Install: "pip install letta",
		Command: []string{"letta", "-p", "--backend", "local", "--ephemeral", "-m", "lmstudio/{model}", "--yolo"},
		Stdin:   "{prompt}",
		Env: map[string]string{
			"LMSTUDIO_BASE_URL":   "{base_url}/v1",
			"LETTA_HOME":          "{home}/.letta",
			"LETTA_CODE_TELEM":    "0",
			"DISABLE_AUTOUPDATER": "1",
			"DO_NOT_TRACK":        "1",
		},
		// If the last answer is empty, the standard output contains an earlier text or the reasoning.
		Output: "session",
	},
	{
		Name:    "opencode",
		Install: "npm install -g opencode-ai",
		// Without a title, opencode asks the model for one. --auto approves all tool calls.
		Command: []string{"opencode", "run", "--auto", "--title", "task", "-m", "tap/{model}"},
		Stdin:   "{prompt}",
		Env: map[string]string{
			"OPENCODE_CONFIG_CONTENT": `{"autoupdate":false,"share":"disabled",` +
				`"provider":{"tap":{"npm":"@ai-sdk/openai-compatible","name":"tap",` +
				`"options":{"baseURL":"{base_url}/v1","apiKey":"{key}"},` +
				`"models":{"{model}":{"name":"{model}","limit":{"context":{context},"output":{max_output}}}}}}}`,
			"OPENCODE_DISABLE_AUTOUPDATE":      "1",
			"OPENCODE_DISABLE_MODELS_FETCH":    "1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD":    "1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
		},
		// With these files, opencode does not install its plugin package from npm.
		Files: map[string]string{
			".config/opencode/node_modules/.keep": "",
			".config/opencode/package-lock.json":  `{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}`,
		},
		// The standard output contains the texts of all turns.
		Output: "session",
	},
	{
		Name:    "qwen-code",
		Install: "npm install -g @qwen-code/qwen-code",
		Command: []string{"qwen", "--auth-type", "openai", "--yolo"},
		Stdin:   "{prompt}",
		Env: map[string]string{
			"OPENAI_BASE_URL":                 "{base_url}/v1",
			"OPENAI_API_KEY":                  "{key}",
			"OPENAI_MODEL":                    "{model}",
			"QWEN_CODE_NO_RELAUNCH":           "true",
			"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
		},
		// The agent that extracts memories would run after each task.
		Files: map[string]string{
			".qwen/settings.json": `{"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},` +
				`"general":{"enableAutoUpdate":false},"memory":{"enableManagedAutoMemory":false},` +
				`"model":{"generationConfig":{"contextWindowSize":{context}}}}`,
		},
		Output: "stdout",
	},
	{
		Name:    "pi",
		Install: "npm install -g @mariozechner/pi-coding-agent",
		Command: []string{"pi", "-p", "--no-session", "--offline", "--provider", "tap", "--model", "{model}"},
		Stdin:   "{prompt}",
		Env:     map[string]string{"PI_CODING_AGENT_DIR": "{home}/.pi/agent", "PI_TELEMETRY": "0"},
		Files: map[string]string{
			".pi/agent/models.json": `{"providers":{"tap":{"baseUrl":"{base_url}/v1","api":"openai-completions",` +
				`"apiKey":"{key}","models":[{"id":"{model}","contextWindow":{context},"maxTokens":{max_output}}]}}}`,
		},
		// After a compaction, the standard output can be empty.
		Output: "session",
	},
	{
		Name:    "mini-swe-agent",
		Install: "pip install mini-swe-agent",
		// -l 0 sets no limit on the cost.
		Command: []string{
			"mini", "-y", "--exit-immediately", "-l", "0", "-m", "openai/{model}", "-t", "{prompt}",
			"-o", "{home}/trajectory.json",
		},
		Env: map[string]string{
			"OPENAI_API_BASE":              "{base_url}/v1",
			"OPENAI_API_KEY":               "{key}",
			"MSWEA_CONFIGURED":             "true",
			"MSWEA_GLOBAL_CONFIG_DIR":      "{home}",
			"MSWEA_SILENT_STARTUP":         "true",
			"MSWEA_COST_TRACKING":          "ignore_errors",
			"LITELLM_LOCAL_MODEL_COST_MAP": "True",
		},
		Output: "json:{home}/trajectory.json:.info.submission",
	},
	{
		Name:    "codex",
		Install: "npm install -g @openai/codex",
		Command: []string{"codex", "exec", "--ephemeral", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"},
		Stdin:   "{prompt}",
		Env:     map[string]string{"CODEX_HOME": "{home}/.codex", "TAP_KEY": "{key}"},
		Files: map[string]string{
			".codex/config.toml": `model = "{model}"
model_provider = "tap"
model_context_window = {context}
check_for_update_on_startup = false
web_search = "disabled"

[analytics]
enabled = false

[features]
plugins = false

[model_providers.tap]
name = "tap"
base_url = "{base_url}/v1"
env_key = "TAP_KEY"
wire_api = "responses"
`,
		},
		Output: "stdout",
	},
	{
		Name:    "claude-code",
		Install: "npm install -g @anthropic-ai/claude-code",
		Command: []string{"claude", "-p", "--dangerously-skip-permissions", "--no-session-persistence"},
		Stdin:   "{prompt}",
		Env: map[string]string{
			"ANTHROPIC_BASE_URL": "{base_url}",
			"ANTHROPIC_API_KEY":  "{key}",
			"ANTHROPIC_MODEL":    "{model}",
			// A subagent can request any of these models.
			"ANTHROPIC_DEFAULT_HAIKU_MODEL":            "{model}",
			"ANTHROPIC_DEFAULT_SONNET_MODEL":           "{model}",
			"ANTHROPIC_DEFAULT_OPUS_MODEL":             "{model}",
			"ANTHROPIC_DEFAULT_FABLE_MODEL":            "{model}",
			"CLAUDE_CODE_SUBAGENT_MODEL":               "{model}",
			"CLAUDE_CODE_MAX_OUTPUT_TOKENS":            "{max_output}",
			"CLAUDE_CODE_MAX_CONTEXT_TOKENS":           "{context}",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
			"CLAUDE_CODE_DISABLE_AUTO_MEMORY":          "1",
			"CLAUDE_CONFIG_DIR":                        "{home}/.claude",
			"ENABLE_TOOL_SEARCH":                       "false",
			// Without it, claude refuses to run as root.
			"IS_SANDBOX": "1",
		},
		Output: "stdout",
	},
	library("openai-agents", "openai-agents", openaiAgents, map[string]string{
		"OPENAI_BASE_URL":               "{base_url}/v1",
		"OPENAI_API_KEY":                "{key}",
		"OPENAI_AGENTS_DISABLE_TRACING": "1",
	}),
	library("openhands", "openhands-sdk openhands-tools", openhands, map[string]string{
		"LLM_MODEL":                    "openai/{model}",
		"LLM_BASE_URL":                 "{base_url}/v1",
		"LLM_API_KEY":                  "{key}",
		"LLM_MAX_INPUT_TOKENS":         "{context}",
		"LLM_MAX_OUTPUT_TOKENS":        "{max_output}",
		"OPENHANDS_SUPPRESS_BANNER":    "1",
		"LITELLM_LOCAL_MODEL_COST_MAP": "True",
	}),
	library("langgraph", "langchain langchain-openai", langgraph, map[string]string{
		"OPENAI_BASE_URL": "{base_url}/v1",
		"OPENAI_API_KEY":  "{key}",
	}),
	library("smolagents", `"smolagents[openai]"`, smolagents, map[string]string{
		"OPENAI_BASE_URL": "{base_url}/v1",
		"OPENAI_API_KEY":  "{key}",
	}),
}

// PresetNames lists the names of all presets.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return names
}

// FindPreset returns the preset with this name. The caller owns it.
func FindPreset(name string) (Preset, error) {
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, fmt.Errorf("harness: there is no preset %q; the presets are %s", name, strings.Join(PresetNames(), ", "))
	}
	p := presets[i]
	p.Command, p.Env, p.Files = slices.Clone(p.Command), maps.Clone(p.Env), maps.Clone(p.Files)
	return p, nil
}

// Apply sets the command with its input, the output, the variables and the files that c does not set itself.
func (p Preset) Apply(c *Config) error {
	if len(c.Command) == 0 {
		c.Command, c.Stdin = p.Command, cmp.Or(c.Stdin, p.Stdin)
	}
	if c.Output.text == "" {
		var err error
		if c.Output, err = ParseOutput(p.Output); err != nil {
			return err
		}
	}
	c.Env, c.Files = merged(p.Env, c.Env), merged(p.Files, c.Files)
	return nil
}

func merged(base, over map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, base)
	maps.Copy(all, over)
	return all
}
