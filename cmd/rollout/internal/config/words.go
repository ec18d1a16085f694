package config

import (
	"github.com/rollout-rl/rollout/tokenize"
)

// Closed lists of words that belong to no library. The others have types in their libraries:
// tokenize.Drift, chat.Transformers, sink.Format, agent.ApprovalPolicy.

// Prompts is the source of the prompts: one source, or the first that works.
type Prompts tokenize.PromptSource

// Values of tokens.prompts.
const (
	PromptsAuto    = Prompts(tokenize.SourceNone)
	PromptsTurns   = Prompts(tokenize.SourceTurns)
	PromptsTap     = Prompts(tokenize.SourceTap)
	PromptsStored  = Prompts(tokenize.SourceStored)
	PromptsTrace   = Prompts(tokenize.SourceTrace)
	PromptsLiteral = Prompts(tokenize.SourceLiteral)
)

func (p Prompts) String() string {
	if p == PromptsAuto {
		return "auto"
	}
	return tokenize.PromptSource(p).String()
}

// MarshalText returns the text of p.
func (p Prompts) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Prompts) best() tokenize.Grade {
	switch p {
	case PromptsStored, PromptsTrace:
		return tokenize.CountVerified
	case PromptsLiteral:
		return tokenize.Unverified
	default:
		return tokenize.Exact
	}
}

// Require is the lowest grade that is written as data.
type Require string

// Values of tokens.require.
const (
	RequireAuto          Require = "auto" // count_verified, or unverified if prompts are forced to literal
	RequireAny           Require = "any"
	RequireCountVerified Require = "count_verified"
	RequireExact         Require = "exact"
)

// Require returns the lowest grade that tokens.require admits. Unverified rows need the value any,
// or a forced source that proves nothing.
func (c *Config) Require() tokenize.Grade {
	switch {
	case c.Tokens.Require == RequireExact:
		return tokenize.Exact
	case c.Tokens.Require == RequireAny, c.Tokens.Require == RequireAuto && c.Tokens.Prompts == PromptsLiteral:
		return tokenize.Unverified
	}
	return tokenize.CountVerified
}

// Vocab is the set of ids that a sample can have.
type Vocab string

// Values of tokens.vocab.
const (
	VocabPadded Vocab = "padded" // all ids of the engine, including padding
	VocabStrict Vocab = "strict" // only ids of the tokenizer
)

// AfterStop is whether tokens after the first end-of-turn id of a call are trained.
type AfterStop string

// Values of tokens.after_stop.
const (
	AfterStopKeep AfterStop = "keep" // train them
	AfterStopMask AfterStop = "mask" // give them mask 0
)

// Reward is how a finished sample is scored.
type Reward string

// Values of reward.kind.
const (
	RewardNone     Reward = "none"
	RewardExact    Reward = "exact"
	RewardContains Reward = "contains"
	RewardRegex    Reward = "regex"
	RewardNumber   Reward = "number"
	RewardJSON     Reward = "json"
	RewardCommand  Reward = "command"
)

// Preflight is the check before a run begins.
type Preflight string

// Values of run.preflight.
const (
	PreflightCall    Preflight = "call"    // every server makes one real model call
	PreflightConnect Preflight = "connect" // an agent is created, but no call is made
)

// Check is how the files of a continued run are checked. In both cases, existence and size of every
// committed file are checked before anything is collected.
type Check string

// Values of run.check.
const (
	CheckSizes Check = "sizes" // digests are compared during the run
	CheckFull  Check = "full"  // digests are compared before the run continues
)
