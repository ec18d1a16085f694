package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize/enum"
)

// A Config says how to make the agents of a run and how to talk to them.
type Config struct {
	// Model is the handle of the model, as the server lists it. It may be empty
	// where File holds one, or Create.
	Model string
	// System is the system prompt. Empty: the server's default.
	System string
	// Tools are names of tools on the server, ToolIDs their ids.
	Tools, ToolIDs []string
	// Tags are put on every agent beside the ones that say whose it is.
	Tags []string
	// Temperature is sent within model_settings. Nil: the server's, which is 1.
	Temperature *float64
	// ContextWindow bounds the context, in tokens; 0: the model's. Well above the
	// longest rollout it avoids compactions, which cost the exact prompts.
	ContextWindow int
	// Create holds more fields of the server's CreateAgent, as a JSON object. The
	// fields above win.
	Create json.RawMessage

	// File is an agent file (.af) that is imported for every sample instead, so
	// that the samples of a group share their prompt to the last byte. Of the
	// fields above only Model and Tags are used then.
	File []byte

	// Keep leaves the agents on the server.
	Keep bool
	// KeepReasoning stops the server from deleting the text before tool calls from
	// later prompts: after the agent is made, llm_config.enable_reasoner is set.
	// Rows get longer and fewer.
	KeepReasoning bool
	// SystemText asks for the text of the system message right after the agent is
	// made, and keeps it in the record. One more small request.
	SystemText bool

	// MaxSteps bounds the calls of the model per send; 0: the server's 50.
	MaxSteps int
	// OverrideSystem and OverrideModel go into every send. The native path ignores
	// the former; the latter resets the temperature to 1.
	OverrideSystem, OverrideModel string
	// Conversation sends on a conversation of the agent.
	Conversation bool

	// ClientTools are tools that run on this side. What the model sees of them on
	// the native path of 0.16.7 is empty text.
	ClientTools []ClientToolConfig
	// Approvals decides about calls that the server asks about.
	Approvals ApprovalPolicy
	// MaxRounds bounds the answers to such questions per task message. Default 64.
	MaxRounds int

	// Prompter finds the prompts of a reply. Nil: Agent.Prompts fails.
	Prompter Prompter

	// Messages keeps the conversation as JSON in the Reply.
	Messages bool

	// MaxHeldBytes bounds the replies that the agents of one backend hold, in bytes on the
	// wire. Beyond it answers wait in their connections until other agents are closed; the
	// wait counts towards SendTimeout. Default 128 MiB.
	MaxHeldBytes int64

	// NoRecover gives up a send whose connection was lost. Without it the answer is
	// rebuilt from what the server keeps, as in [Backend.Reattach].
	NoRecover bool
	// SilentAfter is after which time a send without an answer, or a server run that adds
	// no step, is looked up and told to Progress, again and again. Default 5 min.
	SilentAfter time.Duration
	// StuckAfter is after which time a server run that adds no step, and whose answer was
	// lost, is given up. It is well above the server's 300 s for one call of the model and
	// 180 s for a tool. Default 15 min.
	StuckAfter time.Duration
	// LostAfter is for how long after the end of its server run a send may stay without an
	// answer. Then the answer is rebuilt from what the server keeps. Default 30 s.
	LostAfter time.Duration
	// Versions, where set, tells which version of the policy made the calls of a send. Where
	// it leaves that open, the traces of the calls are read for it.
	Versions *policy.Source

	// Progress, where set, is told about server runs that are looked up. It is called
	// from many goroutines and must not block.
	Progress func(Progress)
}

// A ClientToolConfig is a tool that runs on this side: Command, or Answer, or
// neither, which answers with the arguments of the call.
type ClientToolConfig struct {
	Tool letta.ClientTool
	// Command is a program and its arguments. It gets one JSON object on standard
	// input, {"name","arguments","tool_call_id","task_id","sample_index"}, and
	// what it writes to standard output is the result. Another exit status than 0
	// makes it a failed call, which the model is told; a program that cannot be
	// started or is not done in time fails the sample. Variables that hold the
	// server's password, or a secret of a header, are not in its environment.
	Command []string
	// Answer is a fixed result.
	Answer *string
	// Timeout bounds one call. Default 1 min.
	Timeout time.Duration
}

// An ApprovalPolicy says what happens when the server asks whether a tool may run.
type ApprovalPolicy uint8

// The policies.
const (
	ApprovalStop    ApprovalPolicy = iota // the rollout ends there, with the stop reason requires_approval
	ApprovalApprove                       // yes
	ApprovalDeny                          // no
)

var approvals = enum.List[ApprovalPolicy]{Noun: "approval policy", Words: []string{"stop", "approve", "deny"}}

func (p ApprovalPolicy) String() string { return approvals.String(p) }

// MarshalText writes the word of p.
func (p ApprovalPolicy) MarshalText() ([]byte, error) { return approvals.Marshal(p) }

// UnmarshalText accepts the words that MarshalText writes.
func (p *ApprovalPolicy) UnmarshalText(b []byte) error { return approvals.Unmarshal(b, p) }

// The defaults that a program may want to show.
const (
	DefaultMaxRounds  = 64
	DefaultStuckAfter = 15 * time.Minute
)

func (c Config) withDefaults() Config {
	if c.MaxRounds == 0 {
		c.MaxRounds = DefaultMaxRounds
	}
	if c.MaxHeldBytes == 0 {
		c.MaxHeldBytes = 128 << 20
	}
	if c.SilentAfter == 0 {
		c.SilentAfter = 5 * time.Minute
	}
	if c.LostAfter == 0 {
		c.LostAfter = 30 * time.Second
	}
	if c.StuckAfter == 0 {
		c.StuckAfter = DefaultStuckAfter
	}
	return c
}

// Validate returns every complaint, joined.
func (c Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf("agent: "+format, args...)) }
	var create map[string]json.RawMessage
	if len(c.Create) > 0 && (json.Unmarshal(c.Create, &create) != nil || create == nil) {
		add("create: must be a JSON object")
	}
	if c.Model == "" && len(c.File) == 0 && create["model"] == nil && create["llm_config"] == nil {
		add("model: missing; give the handle of a model as the server lists it")
	}
	if len(c.File) > 0 {
		if !json.Valid(c.File) {
			add("file: not an agent file (.af): not JSON")
		}
		if len(c.Create) > 0 || c.System != "" || len(c.Tools)+len(c.ToolIDs) > 0 || c.Temperature != nil || c.ContextWindow != 0 {
			add("file: an imported agent brings its own system prompt, tools and settings; leave system, tools, temperature, context window and create out")
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
		add("approvals %v: unknown", c.Approvals)
	}
	seen := map[string]bool{}
	for i, t := range c.ClientTools {
		name := t.Tool.Name
		if name == "" || seen[name] {
			add("client tool %d: name %q is empty or used twice", i, name)
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
