package tokenize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/enum"
)

// These lists hold the words for the values of the enumerated types in columns, metrics and
// messages. The index of a word is the value. An empty string means that the value has no word.
var (
	roles          = enum.List[Role]{Noun: "role", Words: []string{"prompt", "assistant", "tool", "user"}}
	sources        = enum.List[PromptSource]{Noun: "prompt source", Words: []string{"none", "turns", "tap", "stored", "trace", "literal"}}
	versionSources = enum.List[VersionSource]{Noun: "version source", Words: []string{"trace", "tap", "url", "flag", "set-version"}}
	grades         = enum.List[Grade]{Noun: "grade", Words: []string{"exact", "count_verified", "unverified", "quarantined"}}
	reasons        = enum.List[Reason]{Noun: "reason", Words: []string{"", "no_prompt", "count_mismatch", "length_mismatch", "id_mismatch", "no_logprobs", "hole", "compacted", "vocab", "drift", "no_turns", "grade", "tool_order", "clock", "no_trace", "not_native", "deleted", "unfinished", "trace_lost", "continuity", "no_ids", "auxiliary", "superseded", "cut_answer", "ambiguous_retry"}}
	chainKinds     = enum.List[ChainKind]{Noun: "chain kind", Words: []string{"main", "subagent", "auxiliary"}}
	divergences    = enum.List[DivergenceKind]{Noun: "divergence kind", Words: []string{"", "prompt", "context", "earlier_output", "last_output", "proper_prefix", "after_lost"}}
	drifts         = enum.List[Drift]{Noun: "drift", Words: []string{"fork", "realign", "reject"}}
	flagWords      = []string{"cut", "client_tool_context", "censored", "surplus_logprobs", "realigned", "reattached", "length", "spliced", "after_stop", "padded_id"}
)

func (r Role) String() string { return roles.String(r) }

// MarshalText returns the word for r.
func (r Role) MarshalText() ([]byte, error) { return roles.Marshal(r) }

// UnmarshalText accepts the words that MarshalText returns.
func (r *Role) UnmarshalText(b []byte) error { return roles.Unmarshal(b, r) }

func (s PromptSource) String() string { return sources.String(s) }

// MarshalText returns the word for s.
func (s PromptSource) MarshalText() ([]byte, error) { return sources.Marshal(s) }

// UnmarshalText accepts the words that MarshalText returns.
func (s *PromptSource) UnmarshalText(b []byte) error { return sources.Unmarshal(b, s) }

// String returns the word for s: trace, tap, url, flag or set-version.
func (s VersionSource) String() string { return versionSources.String(s) }

func (g Grade) String() string { return grades.String(g) }

// MarshalText returns the word for g.
func (g Grade) MarshalText() ([]byte, error) { return grades.Marshal(g) }

// UnmarshalText accepts the words that MarshalText returns.
func (g *Grade) UnmarshalText(b []byte) error { return grades.Unmarshal(b, g) }

// String returns the word for r, or "" for ReasonNone.
func (r Reason) String() string { return reasons.String(r) }

// MarshalText returns the word for r, or "" for ReasonNone.
func (r Reason) MarshalText() ([]byte, error) { return reasons.Marshal(r) }

// UnmarshalText accepts the words that MarshalText returns.
func (r *Reason) UnmarshalText(b []byte) error { return reasons.Unmarshal(b, r) }

func (k ChainKind) String() string { return chainKinds.String(k) }

// MarshalText returns the word for k.
func (k ChainKind) MarshalText() ([]byte, error) { return chainKinds.Marshal(k) }

// UnmarshalText accepts the words that MarshalText returns.
func (k *ChainKind) UnmarshalText(b []byte) error { return chainKinds.Unmarshal(b, k) }

// String returns the word for k, or "" for the zero value.
func (k DivergenceKind) String() string { return divergences.String(k) }

// MarshalText returns the word for k, or "" for the zero value.
func (k DivergenceKind) MarshalText() ([]byte, error) { return divergences.Marshal(k) }

// UnmarshalText accepts the words that MarshalText returns.
func (k *DivergenceKind) UnmarshalText(b []byte) error { return divergences.Unmarshal(b, k) }

func (d Drift) String() string { return drifts.String(d) }

// MarshalText returns the word for d.
func (d Drift) MarshalText() ([]byte, error) { return drifts.Marshal(d) }

// UnmarshalText accepts the words that MarshalText returns.
func (d *Drift) UnmarshalText(b []byte) error { return drifts.Unmarshal(b, d) }

// AppendNames appends the name of each flag in f, lowest bit first, for the `flags` column.
func (f Flags) AppendNames(dst []string) []string {
	for i, w := range flagWords {
		if f&(1<<i) != 0 {
			dst = append(dst, w)
		}
	}
	return dst
}

// String returns the names joined by commas, or "" if no flag is set.
func (f Flags) String() string { return strings.Join(f.AppendNames(nil), ",") }

// MarshalText returns the names joined by commas. It returns an error for a bit without a name.
func (f Flags) MarshalText() ([]byte, error) {
	if f>>len(flagWords) != 0 {
		return nil, fmt.Errorf("unknown bits in flags %#x", uint16(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText accepts the names that MarshalText returns.
func (f *Flags) UnmarshalText(b []byte) error {
	var set Flags
	if len(b) > 0 {
		for name := range strings.SplitSeq(string(b), ",") {
			i := slices.Index(flagWords, name)
			if i < 0 {
				return fmt.Errorf("flag %q is not one of %s", name, strings.Join(flagWords, ", "))
			}
			set |= 1 << i
		}
	}
	*f = set
	return nil
}
