package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize/enum"
)

// A Config configures the agents of a run and the sends to them.
type Config struct {
	// Model is the model's handle on the server. It can be empty if File or Create names a model.
	Model string
	// System is the system prompt. If it is empty, the server uses its default.
	System string
	// Tools and ToolIDs select server tools by name and by id.
	Tools, ToolIDs []string
	// Tags are added to every agent, in addition to the tags of the run.
	Tags []string
	// Temperature is sent in model_settings. If it is nil, the server uses its default, 1.
	Temperature *float64
	// ContextWindow limits the context, in tokens. 0 means the model's context window. A value well
	// above the length of the longest rollout avoids compactions. After a compaction, fewer prompts
	// can be proven.
	ContextWindow int
	// Create is a JSON object with additional members for the create request. The fields above take
	// precedence over these members.
	Create json.RawMessage

	// File is an agent file (.af) that is imported for every sample, so that all samples of a group
	// share the same prompt prefix. If File is set, only the fields Model and Tags above apply.
	File []byte

	// Keep leaves the agents on the server instead of deleting them.
	Keep bool
	// KeepReasoning sets llm_config.enable_reasoner, so that the server keeps the text before tool
	// calls in later prompts. This results in fewer and longer rows.
	KeepReasoning bool
	// SystemText makes Open and Reattach read the system message of the agent. This costs one small
	// request.
	SystemText bool

	// MaxSteps limits the number of model calls per send. 0 means the server's default, 50.
	MaxSteps int
	// OverrideSystem and OverrideModel are sent with every request. The native path ignores
	// OverrideSystem. OverrideModel resets the temperature to 1.
	OverrideSystem, OverrideModel string
	// Conversation is true if the messages are sent to a conversation with the agent.
	Conversation bool

	// ClientTools are tools that run in this program. On the native path of server 0.16.7, the
	// model sees their results as empty text.
	ClientTools []ClientToolConfig
	// Approvals is the policy for tool calls that need approval.
	Approvals ApprovalPolicy
	// MaxRounds limits the number of answers to approval requests per task message. Default 64.
	MaxRounds int

	// Prompter finds the prompts of a reply. If it is nil, Agent.Prompts returns an error.
	Prompter Prompter

	// MaxHeldBytes limits the total size of the replies that the agents of one backend hold, in
	// bytes on the wire. If the limit is reached, answers wait in their connections until other
	// agents are closed. The wait counts toward SendTimeout. Default 128 MiB.
	MaxHeldBytes int64

	// NoRecover makes a send fail if its connection is lost. By default, the answer is rebuilt from
	// the server's record, as in [Backend.Reattach].
	NoRecover bool
	// SilentAfter is the interval at which the server run of an unanswered send is looked up and
	// reported to Progress. Default 5 min.
	SilentAfter time.Duration
	// StuckAfter is the time without a new step after which a server run is abandoned if its answer
	// was lost. It should be well above the server's limits of 300 s for a model call and 180 s for
	// a tool. Default 15 min.
	StuckAfter time.Duration
	// LostAfter is the time that a send waits for its answer after the server run has ended. After
	// this time, the answer is rebuilt from the server's record. Default 30 s.
	LostAfter time.Duration
	// Versions finds the policy version of each call. If it cannot determine the versions of a
	// send, the traces of the calls are read. It can be nil.
	Versions *policy.Source

	// Progress, if not nil, is called for each server run that is looked up. It must not block and
	// must be safe for concurrent use.
	Progress func(Progress)
}

// A ClientToolConfig is a tool that runs in this program. If neither Command nor Answer is set, the
// result is the arguments of the call.
type ClientToolConfig struct {
	Tool letta.ClientTool
	// Command is a program and its arguments. The program reads one JSON object from standard
	// input, {"name","arguments","tool_call_id","task_id","sample_index"}, and writes the result to
	// standard output. If the exit status is not 0, the model sees a failed call. If the program
	// cannot be started or times out, the sample fails. The program's environment lacks the
	// variables that contain the server's password or a secret header.
	Command []string
	// Answer is a fixed result.
	Answer *string
	// Timeout limits the duration of one call. Default 1 min.
	Timeout time.Duration
}

// An ApprovalPolicy is the response to the server's approval requests.
type ApprovalPolicy uint8

// The approval policies.
const (
	ApprovalStop    ApprovalPolicy = iota // end the rollout with the stop reason requires_approval
	ApprovalApprove                       // approve every call
	ApprovalDeny                          // deny every call
)

var approvals = enum.List[ApprovalPolicy]{Noun: "approval policy", Words: []string{"stop", "approve", "deny"}}

func (p ApprovalPolicy) String() string { return approvals.String(p) }

// MarshalText returns the name of the policy.
func (p ApprovalPolicy) MarshalText() ([]byte, error) { return approvals.Marshal(p) }

// UnmarshalText accepts the names that MarshalText returns.
func (p *ApprovalPolicy) UnmarshalText(b []byte) error { return approvals.Unmarshal(b, p) }

// The default values of fields of Config.
const (
	DefaultMaxRounds  = 64
	DefaultStuckAfter = 15 * time.Minute
)

func (c Config) withDefaults() Config {
	c.MaxRounds = cmp.Or(c.MaxRounds, DefaultMaxRounds)
	c.MaxHeldBytes = cmp.Or(c.MaxHeldBytes, 128<<20)
	c.SilentAfter = cmp.Or(c.SilentAfter, 5*time.Minute)
	c.LostAfter = cmp.Or(c.LostAfter, 30*time.Second)
	c.StuckAfter = cmp.Or(c.StuckAfter, DefaultStuckAfter)
	return c
}

// Validate returns all errors in the configuration, joined.
func (c Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf("agent: "+format, args...)) }
	var create map[string]json.RawMessage
	if len(c.Create) > 0 && (json.Unmarshal(c.Create, &create) != nil || create == nil) {
		add("create: must be a JSON object")
	}
	if c.Model == "" && len(c.File) == 0 && create["model"] == nil && create["llm_config"] == nil {
		add("model: missing; set the handle of a model that the server lists")
	}
	if len(c.File) > 0 {
		if !json.Valid(c.File) {
			add("file: not JSON (want an agent file, .af)")
		}
		if len(c.Create) > 0 || c.System != "" || len(c.Tools)+len(c.ToolIDs) > 0 || c.Temperature != nil || c.ContextWindow != 0 {
			add("file: an imported agent has its own system prompt, tools and settings; remove the keys system, tools, temperature, context_window and create")
		}
	}
	if c.MaxSteps < 0 {
		add("max steps %d: must not be negative", c.MaxSteps)
	}
	if c.MaxRounds < 0 {
		add("max rounds %d: must not be negative", c.MaxRounds)
	}
	if c.MaxHeldBytes < 0 {
		add("max held bytes %d: must not be negative", c.MaxHeldBytes)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"silent after", c.SilentAfter}, {"stuck after", c.StuckAfter}, {"lost after", c.LostAfter}} {
		if d.value < 0 {
			add("%s %v: must not be negative", d.name, d.value)
		}
	}
	if _, err := c.Approvals.MarshalText(); err != nil {
		add("%w", err)
	}
	seen := map[string]bool{}
	for i, t := range c.ClientTools {
		name := t.Tool.Name
		switch {
		case name == "":
			add("client tool %d: name is empty", i)
		case seen[name]:
			add("client tool %d: duplicate name %q", i, name)
		}
		seen[name] = true
		if len(t.Command) > 0 && t.Answer != nil {
			add("client tool %s: set command or answer, not both", name)
		}
		if len(t.Tool.Parameters) > 0 && !json.Valid(t.Tool.Parameters) {
			add("client tool %s: parameters are not JSON", name)
		}
		if t.Timeout < 0 {
			add("client tool %s: timeout %v: must not be negative", name, t.Timeout)
		}
	}
	return errors.Join(errs...)
}
