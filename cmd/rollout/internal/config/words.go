package config

import (
	"github.com/rollout-rl/rollout/tokenize"
)

// The closed lists of words that belong to no library. Those of a library are of its own
// types: tokenize.Drift, chat.Transformers, sink.Format, agent.ApprovalPolicy.

// Prompts says where the prompts of the calls come from: one source, or the best that can
// be had.
type Prompts tokenize.PromptSource

// The values of tokens.prompts.
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

// MarshalText writes the word of p.
func (p Prompts) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// best is the best grade that the source gives; auto may give any.
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

// Require is the least grade that is written as data.
type Require string

// The values of tokens.require.
const (
	RequireAuto          Require = "auto" // count_verified, and what a forced literal gives
	RequireAny           Require = "any"
	RequireCountVerified Require = "count_verified"
	RequireExact         Require = "exact"
)

// Require is the worst grade that tokens.require admits. Only who says any, or forces
// a source that proves nothing, gets rows that are not proven.
func (c *Config) Require() tokenize.Grade {
	switch {
	case c.Tokens.Require == RequireExact:
		return tokenize.Exact
	case c.Tokens.Require == RequireAny, c.Tokens.Require == RequireAuto && c.Tokens.Prompts == PromptsLiteral:
		return tokenize.Unverified
	}
	return tokenize.CountVerified
}

// Vocab chooses the ids that a sample can have.
type Vocab string

// The values of tokens.vocab.
const (
	VocabPadded Vocab = "padded" // all ids of the engine, whose vocabulary can be padded
	VocabStrict Vocab = "strict" // only ids of the tokenizer
)

// AfterStop chooses whether tokens after the first end-of-turn id of a call are trained.
type AfterStop string

// The values of tokens.after_stop.
const (
	AfterStopKeep AfterStop = "keep" // train them
	AfterStopMask AfterStop = "mask" // give them mask 0
)

// Reward is how a finished sample is scored.
type Reward string

// The values of reward.kind.
const (
	RewardNone     Reward = "none"
	RewardExact    Reward = "exact"
	RewardContains Reward = "contains"
	RewardRegex    Reward = "regex"
	RewardNumber   Reward = "number"
	RewardJSON     Reward = "json"
	RewardCommand  Reward = "command"
)

// Preflight is what is tried before a run begins.
type Preflight string

// The values of run.preflight.
const (
	PreflightCall    Preflight = "call"    // every server makes one real call of the model
	PreflightConnect Preflight = "connect" // an agent is made, and not spoken to
)

// Check is how the files of a run that is continued are checked. Existence and size of
// every committed file are looked at in any case, before anything is collected.
type Check string

// The values of run.check.
const (
	CheckSizes Check = "sizes" // digests are compared while the run goes on
	CheckFull  Check = "full"  // digests are compared before it goes on
)
