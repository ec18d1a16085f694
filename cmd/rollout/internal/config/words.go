package config

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file defines the types of settings that no library defines. The libraries define
// tokenize.Drift, chat.Transformers, sink.Format and agent.ApprovalPolicy.

// Prompts is the source of prompts: either one fixed source, or the first source that works.
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

// MarshalText returns the name of p.
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

// Require is the lowest grade of rows that are written as data.
type Require string

// Values of tokens.require.
const (
	RequireAuto          Require = "auto" // count_verified, or unverified if tokens.prompts is literal
	RequireAny           Require = "any"
	RequireCountVerified Require = "count_verified"
	RequireExact         Require = "exact"
)

// Require returns the lowest grade that tokens.require accepts. Unverified rows are accepted only
// with the value any, or with the value auto if tokens.prompts is literal.
func (c *Config) Require() tokenize.Grade {
	switch {
	case c.Tokens.Require == RequireExact:
		return tokenize.Exact
	case c.Tokens.Require == RequireAny, c.Tokens.Require == RequireAuto && c.Tokens.Prompts == PromptsLiteral:
		return tokenize.Unverified
	}
	return tokenize.CountVerified
}

// Preflight is the kind of check that is made before a run begins.
type Preflight string

// Values of run.preflight.
const (
	PreflightCall    Preflight = "call"    // every server makes one real model call
	PreflightConnect Preflight = "connect" // an agent is created, but no call is made
)

// Share determines which other users can read the files of a run. By default, no other user can
// read the files, because prompts, answers and metadata can be private.
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

// FolderMode returns the mode for a folder that contains files of the given mode. Everyone who can
// read the files can enter the folder.
func FolderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// ShareOf returns the value of output.share that matches the mode of a run's folder. Users who can
// already read the run then keep their access.
func ShareOf(folder fs.FileInfo) Share {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return ShareAll
	case mode&0o040 != 0:
		return ShareGroup
	}
	return ShareNone
}

// A Tolerance is the maximum number of samples that can fail, as a count or as a share of all
// samples.
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

// parseTolerance parses a count such as "5" or a share such as "2.5%".
func parseTolerance(text string) (Tolerance, error) {
	if p, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return Tolerance{}, fmt.Errorf("%q is not a percentage from 0%% to 100%%", text)
		}
		return Tolerance{percent: f, share: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Tolerance{}, fmt.Errorf("%q is neither a number of samples nor a percentage such as 5%%", text)
	}
	return Tolerance{count: n}, nil
}

// Allowed returns how many of the planned samples can fail.
func (t Tolerance) Allowed(planned int) int {
	if t.share {
		return int(t.percent / 100 * float64(planned))
	}
	return t.count
}
