package tokenize_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
	kind         tokenize.DivergenceKind
	offset       int
	call         int // of the divergence
	cut, aligned bool
	trimmed      int
	repairs      []string
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
func reference(cfg tokenize.AlignConfig, calls []tokenize.Call) (text string, ok bool) {
	type state struct {
		row     *refRow // the open row, or nil
		virtual []int32 // what the model has seen and sampled so far; nil if nothing or unknown
		span    *refRow // the row that begins virtual, for naming a position
	}
	var st state
	var rows []*refRow
	lost := false
	var sampled, cutTokens, lostTokens int
	var cuts, losts []int
	forks, realigned := 0, 0
	fits := func(n int) bool { return cfg.MaxRowTokens <= 0 || n <= cfg.MaxRowTokens }

	for k, c := range calls {
		sampled += len(c.OutputIDs)
		if c.Grade == tokenize.Quarantined {
			st, lost = state{}, true
			lostTokens += len(c.OutputIDs)
			losts = append(losts, k)
			continue
		}
		prompt := c.PromptIDs
		if c.Source == tokenize.SourceLiteral {
			prompt = append(slices.Clone(st.virtual), c.Context...)
		}
		now := append(append([]int32{}, prompt...), c.OutputIDs...) // never nil
		cut := func() {
			cutTokens += len(c.OutputIDs)
			cuts = append(cuts, k)
			st.row, st.virtual = nil, now
			lost = false
		}
		begin := func(kind tokenize.DivergenceKind, offset int) {
			if !fits(len(now)) {
				st.span = nil
				cut()
				return
			}
			r := &refRow{first: k, last: k + 1, kind: kind, offset: offset, call: k}
			if lost {
				r.kind, r.offset = tokenize.DivergedAfterLost, 0
			}
			lost = false
			r.add(tokenize.RolePrompt, refContext(prompt))
			r.add(tokenize.RoleAssistant, refOutput(cfg, k, c))
			rows = append(rows, r)
			st = state{row: r, virtual: now, span: r}
		}
		if st.virtual == nil {
			begin(0, 0)
			continue
		}
		// the first position at which the prompt differs
		n := 0
		for n < len(prompt) && n < len(st.virtual) && prompt[n] == st.virtual[n] {
			n++
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
				st.row.repairs = append(st.row.repairs, fmt.Sprintf("%d@%d:%v>%v", k, n, refWindow(st.virtual[n:]), refWindow(prompt[n:])))
				st.row.aligned = true
				st.row.trimmed += len(st.virtual) - n
				realigned++
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
			return "", false
		default:
			forks++
			kind := tokenize.DivergedInEarlier
			if n == len(prompt) {
				kind = tokenize.DivergedProperPrefix
			} else if st.span != nil && n < refPromptLength(st.span) {
				kind = tokenize.DivergedInPrompt
			} else if n >= lastOutput {
				kind = tokenize.DivergedInLast
			} else if st.span != nil {
				at := 0
				for _, s := range st.span.spans {
					if at <= n && n < at+len(s.tokens) && s.role != tokenize.RoleAssistant {
						kind = tokenize.DivergedInContext
					}
					at += len(s.tokens)
				}
			}
			begin(kind, n)
		}
		if st.span != nil && refTrained(st.span) == 0 && st.row == nil {
			st.span = nil // dropped
		}
	}

	var kept []*refRow
	trained, unscored, trimmed, empty := 0, 0, 0, 0
	for _, r := range rows {
		trained += refTrained(r)
		trimmed += r.trimmed
		for _, t := range r.tokens() {
			if t.sampled && t.mask == 0 {
				unscored++
			}
		}
		if refTrained(r) == 0 {
			empty++
			continue
		}
		kept = append(kept, r)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "sampled=%d trained=%d unscored=%d trimmed=%d cut=%d lost=%d losts=%v cuts=%v forks=%d realigned=%d empty=%d\n",
		sampled, trained, unscored, trimmed, cutTokens, lostTokens, losts, cuts, forks, realigned, empty)
	for i, r := range kept {
		refRender(&s, cfg, calls, r, i, len(kept))
	}
	return s.String(), true
}

func refTrained(r *refRow) (n int) {
	for _, t := range r.tokens() {
		n += int(t.mask)
	}
	return n
}

// refWindow returns the ids that a divergence keeps.
func refWindow(ids []int32) []int32 { return ids[:min(len(ids), tokenize.DivergenceWindow)] }

func refPromptLength(r *refRow) int {
	for i, t := range r.tokens() {
		if t.sampled {
			return i
		}
	}
	return len(r.tokens())
}

func refRender(s *strings.Builder, cfg tokenize.AlignConfig, calls []tokenize.Call, r *refRow, i, n int) {
	tokens := r.tokens()
	versions := false
	for _, t := range tokens {
		versions = versions || t.version >= 0
	}
	grade, source, flags := calls[r.first].Grade, calls[r.first].Source, tokenize.Flags(0)
	for _, c := range calls[r.first:r.last] {
		if c.Grade > grade {
			grade, source = c.Grade, c.Source
		}
		flags |= c.Flags
	}
	// Trimmed tokens with a version are gone, but Versions stays.
	for _, c := range calls[r.first:r.last] {
		versions = versions || c.Version >= 0 && c.Versions == nil && len(c.OutputIDs) > 0
		for _, v := range c.Versions {
			versions = versions || v >= 0
		}
	}
	for _, t := range tokens {
		if t.leaked {
			flags |= tokenize.FlagAfterStop
		}
		if cfg.TokenizerSize > 0 && int(t.id) >= cfg.TokenizerSize {
			flags |= tokenize.FlagPaddedID
		}
	}
	if r.cut {
		flags |= tokenize.FlagCut
	}
	if r.aligned {
		flags |= tokenize.FlagRealigned
	}
	byLength := calls[r.last-1].FinishReason == "length"
	if byLength {
		flags |= tokenize.FlagLength
	}
	truncated := r.cut || byLength
	unscored := 0
	for _, t := range tokens {
		if t.sampled && t.mask == 0 {
			unscored++
		}
	}
	fmt.Fprintf(s, "row %d/%d calls=%d-%d prompt=%d grade=%s source=%s flags=%s truncated=%v unscored=%d trimmed=%d",
		i, n, r.first, r.last, refPromptLength(r), grade, source, flags, truncated, unscored, r.trimmed)
	if r.kind != 0 {
		fmt.Fprintf(s, " diverged=%d@%d:%s", r.call, r.offset, r.kind)
	}
	for _, repair := range r.repairs {
		fmt.Fprintf(s, " realigned=%s:last_output", repair)
	}
	for k := r.first; k < r.last; k++ {
		fmt.Fprintf(s, " %s/%s", calls[k].FinishReason, calls[k].StepID)
	}
	s.WriteString("\n")
	for _, span := range r.spans {
		fmt.Fprintf(s, "  %s:", span.role)
		for _, t := range span.tokens {
			fmt.Fprintf(s, " %d", t.id)
			if t.mask == 1 {
				fmt.Fprintf(s, "~%08x", math.Float32bits(t.logprob))
			}
			if versions {
				fmt.Fprintf(s, "v%d", t.version)
			}
		}
		s.WriteString("\n")
	}
}

// renderAlignment renders the result of Align in the same format.
func renderAlignment(rows []tokenize.Row, sum tokenize.Alignment) string {
	var s strings.Builder
	fmt.Fprintf(&s, "sampled=%d trained=%d unscored=%d trimmed=%d cut=%d lost=%d losts=%v cuts=%v forks=%d realigned=%d empty=%d\n",
		sum.Sampled, sum.Trained, sum.Unscored, sum.Trimmed, sum.Cut, sum.Lost, sum.LostCalls, sum.CutCalls, sum.Forks, sum.Realigned, sum.EmptyRows)
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&s, "row %d/%d calls=%d-%d prompt=%d grade=%s source=%s flags=%s truncated=%v unscored=%d trimmed=%d",
			r.SegmentIndex, r.SegmentCount, r.FirstCall, r.LastCall, r.PromptLength, r.Grade, r.Source, r.Flags, r.Truncated, r.Unscored, r.Trimmed)
		if d := r.Divergence; d != nil {
			fmt.Fprintf(&s, " diverged=%d@%d:%s", d.Call, d.Offset, d.Kind)
		}
		for _, d := range r.Realigned {
			fmt.Fprintf(&s, " realigned=%d@%d:%v>%v:%s", d.Call, d.Offset, d.Row, d.Prompt, d.Kind)
		}
		for k := range r.FinishReasons {
			fmt.Fprintf(&s, " %s/%s", r.FinishReasons[k], r.StepIDs[k])
		}
		s.WriteString("\n")
		for k, role := range r.TurnRoles {
			fmt.Fprintf(&s, "  %s:", tokenize.Role(role))
			for j := r.TurnOffsets[k]; j < r.TurnOffsets[k+1]; j++ {
				fmt.Fprintf(&s, " %d", r.InputIDs[j])
				if r.LossMask[j] == 1 {
					fmt.Fprintf(&s, "~%08x", math.Float32bits(r.Logprobs[j]))
				}
				if r.Versions != nil {
					fmt.Fprintf(&s, "v%d", r.Versions[j])
				}
			}
			s.WriteString("\n")
		}
	}
	return s.String()
}
