package config

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// Types of values that belong to no library. The others have types in their libraries:
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
	RequireAuto          Require = "auto" // count_verified; unverified if tokens.prompts is literal
	RequireAny           Require = "any"
	RequireCountVerified Require = "count_verified"
	RequireExact         Require = "exact"
)

// Require returns the lowest grade that tokens.require admits. Unverified rows are admitted only by
// the value any, or by the value auto if tokens.prompts is literal.
func (c *Config) Require() tokenize.Grade {
	switch {
	case c.Tokens.Require == RequireExact:
		return tokenize.Exact
	case c.Tokens.Require == RequireAny, c.Tokens.Require == RequireAuto && c.Tokens.Prompts == PromptsLiteral:
		return tokenize.Unverified
	}
	return tokenize.CountVerified
}

// Reward is the kind of scorer for finished samples.
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

// Share is who else can read the files of a run. Prompts, answers and metadata are private by
// default.
type Share string

// Values of output.share.
const (
	ShareNone  Share = "none"
	ShareGroup Share = "group"
	ShareAll   Share = "all"
)

// FileMode returns the mode of a run's files, before the umask.
func (s Share) FileMode() fs.FileMode {
	switch s {
	case ShareGroup:
		return 0o640
	case ShareAll:
		return 0o644
	default:
		return 0o600
	}
}

// FolderMode returns the mode of a folder for files with the given mode. It lets every reader of
// the files enter the folder.
func FolderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// ShareOf derives the setting from the mode of a run's folder, so that current readers keep access.
func ShareOf(folder fs.FileInfo) Share {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return ShareAll
	case mode&0o040 != 0:
		return ShareGroup
	}
	return ShareNone
}

// A Tolerance limits how many samples can fail: a count, or a share of all samples.
type Tolerance struct {
	count   int
	percent float64
	share   bool
}

func (t Tolerance) String() string {
	if t.share {
		return strconv.FormatFloat(t.percent, 'g', -1, 64) + "%"
	}
	return strconv.Itoa(t.count)
}

// parseTolerance parses "5" or "2.5%".
func parseTolerance(text string) (Tolerance, error) {
	if p, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return Tolerance{}, fmt.Errorf("%q is not a share from 0%% to 100%%", text)
		}
		return Tolerance{percent: f, share: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Tolerance{}, fmt.Errorf("%q is neither a number of samples nor a share such as 5%%", text)
	}
	return Tolerance{count: n}, nil
}

// Allowed returns how many of planned samples can fail.
func (t Tolerance) Allowed(planned int) int {
	if t.share {
		return int(t.percent / 100 * float64(planned))
	}
	return t.count
}
