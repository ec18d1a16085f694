package tokenize_test

import (
	"math"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// The slow, obvious aligner. It keeps one entry per token and follows the rule of the package
// documentation without regard to speed. Align must return the same result.

type refToken struct {
	id      int32
	mask    int8
	logprob float32
	version int32
	sampled bool
	leaked  bool // sampled after an end-of-turn id of its call
	call    int  // the call that sampled it
}

type refSpan struct {
	role   tokenize.Role
	tokens []refToken
}

type refRow struct {
	spans        []refSpan
	first, last  int // calls
	diverged     *tokenize.Divergence
	cut, aligned bool
	trimmed      int
	repairs      []tokenize.Divergence
}

func (r *refRow) tokens() (all []refToken) {
	for _, s := range r.spans {
		all = append(all, s.tokens...)
	}
	return all
}

func (r *refRow) add(role tokenize.Role, tokens []refToken) {
	if len(tokens) > 0 {
		r.spans = append(r.spans, refSpan{role, slices.Clone(tokens)})
	}
}

func refContext(ids []int32) (out []refToken) {
	for _, id := range ids {
		out = append(out, refToken{id: id, version: -1})
	}
	return out
}

func refOutput(cfg tokenize.AlignConfig, k int, c tokenize.Call) (out []refToken) {
	stopped := false
	for i, id := range c.OutputIDs {
		t := refToken{id: id, sampled: true, call: k, version: max(c.Version, -1), leaked: stopped}
		if c.Versions != nil {
			t.version = max(c.Versions[i], -1)
		}
		v := float64(c.Logprobs[i])
		if !math.IsNaN(v) && v >= -1000 && c.Logprobs[i] <= 1e-6 && (!stopped || !cfg.MaskAfterStop) {
			t.mask, t.logprob = 1, c.Logprobs[i]
		}
		out = append(out, t)
		stopped = stopped || slices.Contains(cfg.StopIDs, id) || c.StopID != nil && *c.StopID == id
	}
	return out
}

// reference aligns calls, which must be valid for Align. ok is false if DriftReject rejects them.
func reference(cfg tokenize.AlignConfig, calls []tokenize.Call) (out []tokenize.Row, sum tokenize.Alignment, ok bool) {
	type state struct {
		row     *refRow // the open row, or nil
		virtual []int32 // what the model has seen and sampled so far; nil if nothing or unknown
		span    *refRow // the row that begins virtual, for naming a position
	}
	var st state
	var rows []*refRow
	lost := false
	fits := func(n int) bool { return cfg.MaxRowTokens <= 0 || n <= cfg.MaxRowTokens }

	for k, c := range calls {
		if k > 0 && c.Chain != calls[k-1].Chain {
			st, lost = state{}, false
		}
		sum.Sampled += len(c.OutputIDs)
		if c.Grade == tokenize.Quarantined {
			st, lost = state{}, true
			sum.Lost += len(c.OutputIDs)
			sum.LostCalls = append(sum.LostCalls, int32(k))
			continue
		}
		prompt := c.PromptIDs
		if c.Source == tokenize.SourceLiteral {
			prompt = append(slices.Clone(st.virtual), c.Context...)
		}
		now := append(append([]int32{}, prompt...), c.OutputIDs...) // never nil
		cut := func() {
			sum.Cut += len(c.OutputIDs)
			sum.CutCalls = append(sum.CutCalls, int32(k))
			st.row, st.virtual = nil, now
			lost = false
		}
		begin := func(diverged *tokenize.Divergence) {
			if !fits(len(now)) {
				st.span = nil
				cut()
				return
			}
			r := &refRow{first: k, last: k + 1, diverged: diverged}
			if lost {
				r.diverged = &tokenize.Divergence{Call: int32(k), Kind: tokenize.DivergedAfterLost}
			}
			lost = false
			r.add(tokenize.RolePrompt, refContext(prompt))
			r.add(tokenize.RoleAssistant, refOutput(cfg, k, c))
			rows = append(rows, r)
			st = state{row: r, virtual: now, span: r}
		}
		if st.virtual == nil {
			begin(nil)
			continue
		}
		// the first position at which the prompt differs
		n := 0
		for n < len(prompt) && n < len(st.virtual) && prompt[n] == st.virtual[n] {
			n++
		}
		divergence := tokenize.Divergence{
			Call: int32(k), Offset: int32(n), Kind: tokenize.DivergedInLast, Row: refWindow(st.virtual[n:]), Prompt: refWindow(prompt[n:]),
		}
		literal := c.Source == tokenize.SourceLiteral
		continues := n == len(st.virtual) && n < len(prompt) || literal
		lastOutput := len(st.virtual) - len(calls[k-1].OutputIDs)
		repairs := !continues && cfg.Drift == tokenize.DriftRealign && st.row != nil && n < len(prompt) &&
			n >= lastOutput && n < len(st.virtual) && len(st.virtual)-n <= cfg.RealignMax && fits(len(now))
		switch {
		case continues && st.row == nil:
			cut()
		case continues && !fits(len(now)):
			st.row.cut = true
			cut()
		case continues || repairs:
			if repairs {
				last := &st.row.spans[len(st.row.spans)-1]
				last.tokens = last.tokens[:n-lastOutput]
				if len(last.tokens) == 0 {
					st.row.spans = st.row.spans[:len(st.row.spans)-1]
				}
				st.row.repairs = append(st.row.repairs, divergence)
				st.row.aligned = true
				st.row.trimmed += len(st.virtual) - n
				sum.Realigned++
			}
			role := tokenize.RoleUser
			if c.After == tokenize.RoleTool {
				role = tokenize.RoleTool
			}
			st.row.add(role, refContext(prompt[n:]))
			st.row.add(tokenize.RoleAssistant, refOutput(cfg, k, c))
			st.row.last = k + 1
			st.virtual = now
		case cfg.Drift == tokenize.DriftReject:
			return nil, sum, false
		default:
			sum.Forks++
			switch {
			case n == len(prompt):
				divergence.Kind = tokenize.DivergedProperPrefix
			case st.span != nil && n < refPromptLength(st.span):
				divergence.Kind = tokenize.DivergedInPrompt
			case n < lastOutput:
				divergence.Kind = tokenize.DivergedInEarlier
				if st.span != nil && st.span.roleAt(n) != tokenize.RoleAssistant {
					divergence.Kind = tokenize.DivergedInContext
				}
			}
			begin(&divergence)
		}
		if st.span != nil && refTrained(st.span) == 0 && st.row == nil {
			st.span = nil // dropped
		}
	}

	var kept []*refRow
	for _, r := range rows {
		sum.Trained += refTrained(r)
		sum.Trimmed += r.trimmed
		sum.Unscored += refUnscored(r)
		if refTrained(r) == 0 {
			sum.EmptyRows++
			continue
		}
		kept = append(kept, r)
	}
	for i, r := range kept {
		out = append(out, refResult(cfg, calls, r, i, len(kept)))
	}
	return out, sum, true
}

// roleAt returns the role of the span with token n, or of an assistant if there is none.
func (r *refRow) roleAt(n int) tokenize.Role {
	for _, s := range r.spans {
		if n -= len(s.tokens); n < 0 {
			return s.role
		}
	}
	return tokenize.RoleAssistant
}

func refUnscored(r *refRow) (n int) {
	for _, t := range r.tokens() {
		if t.sampled && t.mask == 0 {
			n++
		}
	}
	return n
}

func refTrained(r *refRow) (n int) {
	for _, t := range r.tokens() {
		n += int(t.mask)
	}
	return n
}

// refWindow returns the ids that a divergence keeps.
func refWindow(ids []int32) []int32 {
	return append([]int32(nil), ids[:min(len(ids), tokenize.DivergenceWindow)]...)
}

func refPromptLength(r *refRow) int {
	for i, t := range r.tokens() {
		if t.sampled {
			return i
		}
	}
	return len(r.tokens())
}

func refResult(cfg tokenize.AlignConfig, calls []tokenize.Call, r *refRow, i, n int) tokenize.Row {
	first, last := calls[r.first], calls[r.last-1]
	row := tokenize.Row{
		Chain: first.Chain, ChainKind: first.ChainKind, Parent: first.Parent,
		SegmentIndex: int32(i), SegmentCount: int32(n), FirstCall: int32(r.first), LastCall: int32(r.last),
		PromptLength: int32(refPromptLength(r)), Unscored: int32(refUnscored(r)), Trimmed: int32(r.trimmed),
		Grade: first.Grade, Source: first.Source, Divergence: r.diverged, Realigned: r.repairs,
		Truncated: r.cut || last.FinishReason == "length", TurnOffsets: []int32{0},
	}
	versions := false // also if the tokens with a version are trimmed
	for _, c := range calls[r.first:r.last] {
		if c.Grade > row.Grade {
			row.Grade, row.Source = c.Grade, c.Source
		}
		row.Flags |= c.Flags
		row.FinishReasons, row.StepIDs = append(row.FinishReasons, c.FinishReason), append(row.StepIDs, c.StepID)
		versions = versions || c.Version >= 0 && c.Versions == nil && len(c.OutputIDs) > 0
		versions = versions || slices.ContainsFunc(c.Versions, func(v int32) bool { return v >= 0 })
	}
	for _, span := range r.spans {
		for _, t := range span.tokens {
			row.InputIDs, row.LossMask = append(row.InputIDs, t.id), append(row.LossMask, t.mask)
			row.Logprobs = append(row.Logprobs, t.logprob)
			if versions {
				row.Versions = append(row.Versions, t.version)
			}
			if t.leaked {
				row.Flags |= tokenize.FlagAfterStop
			}
			if cfg.TokenizerSize > 0 && int(t.id) >= cfg.TokenizerSize {
				row.Flags |= tokenize.FlagPaddedID
			}
		}
		row.TurnRoles = append(row.TurnRoles, int8(span.role))
		row.TurnOffsets = append(row.TurnOffsets, int32(len(row.InputIDs)))
	}
	if r.cut {
		row.Flags |= tokenize.FlagCut
	}
	if r.aligned {
		row.Flags |= tokenize.FlagRealigned
	}
	if last.FinishReason == "length" {
		row.Flags |= tokenize.FlagLength
	}
	return row
}
