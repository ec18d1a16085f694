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
	// System is the system prompt. Empty: the server's default.
	System string
	// Tools are the names of server tools, ToolIDs their ids.
	Tools, ToolIDs []string
	// Tags are added to every agent, next to the tags of the run.
	Tags []string
	// Temperature is sent in model_settings. Nil: the server's default, 1.
	Temperature *float64
	// ContextWindow bounds the context, in tokens. 0 means the model's context window. A value well
	// above the longest rollout avoids compactions, which lose the exact prompts.
	ContextWindow int
	// Create holds more fields of CreateAgent, as a JSON object. The fields above override it.
	Create json.RawMessage

	// File is an agent file (.af) to import for every sample, so that the samples of a group share
	// their prompt to the last byte. Only the fields Model and Tags then apply.
	File []byte

	// Keep leaves the agents on the server.
	Keep bool
	// KeepReasoning stops the server from deleting the text before tool calls from later prompts,
	// by setting llm_config.enable_reasoner. Rows get longer and fewer.
	KeepReasoning bool
	// SystemText reads the system message of a new agent. It costs one small request.
	SystemText bool

	// MaxSteps bounds the model calls per send. 0 means the server's default, 50.
	MaxSteps int
	// OverrideSystem and OverrideModel are part of every send. The native path ignores
	// OverrideSystem. OverrideModel resets the temperature to 1.
	OverrideSystem, OverrideModel string
	// Conversation sends the messages to a conversation of the agent.
	Conversation bool

	// ClientTools run in this program. On the native path of 0.16.7 the model sees empty results.
	ClientTools []ClientToolConfig
	// Approvals decides about tool calls that need approval.
	Approvals ApprovalPolicy
	// MaxRounds bounds the answers to approval requests per task message. Default 64.
	MaxRounds int

	// Prompter finds the prompts of a reply. Nil: Agent.Prompts fails.
	Prompter Prompter

	// Messages keeps the conversation as JSON in the Reply.
	Messages bool

	// MaxHeldBytes bounds the replies that the agents of one backend hold, in bytes on the wire.
	// Beyond it, answers wait in their connections until other agents are closed. The wait counts
	// towards SendTimeout. Default 128 MiB.
	MaxHeldBytes int64

	// NoRecover fails a send whose connection was lost. By default the answer is rebuilt from the
	// server's record, as in [Backend.Reattach].
	NoRecover bool
	// SilentAfter is the time after which an unanswered send, or a server run that adds no step,
	// is looked up and reported to Progress, repeatedly. Default 5 min.
	SilentAfter time.Duration
	// StuckAfter is the time after which a server run is given up if its answer was lost and it
	// adds no step. It should be well above the server's limits of 300 s for a model call and 180
	// s for a tool. Default 15 min.
	StuckAfter time.Duration
	// LostAfter is how long a send can stay unanswered after its server run ended. Then the
	// answer is rebuilt from the server's record. Default 30 s.
	LostAfter time.Duration
	// Versions finds the policy version of each call. If it cannot determine the versions of a
	// send, the traces of the calls are read. It can be nil.
	Versions *policy.Source

	// Progress reports server runs that are looked up. It must not block and must be safe for
	// concurrent use. It can be nil.
	Progress func(Progress)
}

// A ClientToolConfig is a tool that runs in this program. Without Command and Answer, its result is
// the arguments of the call.
type ClientToolConfig struct {
	Tool letta.ClientTool
	// Command is a program and its arguments. It reads one JSON object from standard input,
	// {"name","arguments","tool_call_id","task_id","sample_index"}, and writes the result to
	// standard output. After a nonzero exit status the model sees a failed call. A program that
	// cannot be started or times out fails the sample. Its environment lacks variables that hold
	// the server's password or a secret header.
	Command []string
	// Answer is a fixed result.
	Answer *string
	// Timeout bounds one call. Default 1 min.
	Timeout time.Duration
}

// An ApprovalPolicy is the response to the server's approval requests.
type ApprovalPolicy uint8

// The policies.
const (
	ApprovalStop    ApprovalPolicy = iota // end the rollout with the stop reason requires_approval
	ApprovalApprove                       // approve every call
	ApprovalDeny                          // deny every call
)

var approvals = enum.List[ApprovalPolicy]{Noun: "approval policy", Words: []string{"stop", "approve", "deny"}}

func (p ApprovalPolicy) String() string { return approvals.String(p) }

// MarshalText returns the word for p.
func (p ApprovalPolicy) MarshalText() ([]byte, error) { return approvals.Marshal(p) }

// UnmarshalText accepts the words that MarshalText returns.
func (p *ApprovalPolicy) UnmarshalText(b []byte) error { return approvals.Unmarshal(b, p) }

// Exported defaults.
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

// Validate returns all errors of the configuration, joined.
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
			add("file: not an agent file (.af): not JSON")
		}
		if len(c.Create) > 0 || c.System != "" || len(c.Tools)+len(c.ToolIDs) > 0 || c.Temperature != nil || c.ContextWindow != 0 {
			add("file: an imported agent has its own system prompt, tools and settings; remove system, tools, temperature, context window and create")
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
	if c.SilentAfter < 0 || c.StuckAfter < 0 || c.LostAfter < 0 {
		add("silent after %v, stuck after %v, lost after %v: must not be negative", c.SilentAfter, c.StuckAfter, c.LostAfter)
	}
	if _, err := c.Approvals.MarshalText(); err != nil {
		add("unknown approvals %v", c.Approvals)
	}
	seen := map[string]bool{}
	for i, t := range c.ClientTools {
		name := t.Tool.Name
		if name == "" || seen[name] {
			add("client tool %d: name %q is empty or a duplicate", i, name)
		}
		seen[name] = true
		if len(t.Command) > 0 && t.Answer != nil {
			add("client tool %s: has both a command and an answer", name)
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
