package tokenize

import "slices"

const (
	// maxLogprob is the greatest valid log-probability. Because of rounding, engines report
	// slightly more than 0 for some tokens with probability 1.
	maxLogprob = 1e-6
	// minLogprob is the smallest valid log-probability. Engines write a smaller finite number for
	// minus infinity: SGLang clamps it to -3.4028235e38, and vLLM writes -9999.
	minLogprob = -1000
)

// UsableLogprob reports whether a trainer can learn from a token with log-probability v. A usable v
// is between -1000 and 1e-6. NaN stands for a missing log-probability. Every reader applies this
// rule to the float32 in the row.
func UsableLogprob(v float32) bool { return v <= maxLogprob && v >= minLogprob }

// AppendContext appends ids that the policy did not sample, as one span with mask 0,
// log-probability 0 and version -1. It does nothing if ids is empty.
func (r *Row) AppendContext(role Role, ids []int32) {
	if len(ids) == 0 {
		return
	}
	if int(r.PromptLength) == len(r.InputIDs) { // nothing has been sampled yet
		r.PromptLength += int32(len(ids))
	}
	mask, logprobs := r.extend(role, ids, -1)
	clear(mask)
	clear(logprobs)
}

// AppendSampled appends the ids sampled in one call as an assistant span. The slice logprobs must
// have the same length as ids. A token whose log-probability is missing or not usable has mask 0
// and counts in Unscored. The parameter version is the policy version, or -1 if unknown.
// AppendSampled does nothing if ids is empty.
func (r *Row) AppendSampled(ids []int32, logprobs []float32, version int32) {
	if len(ids) == 0 {
		return
	}
	mask, dst := r.extend(RoleAssistant, ids, version)
	n := copy(dst, logprobs)
	clear(dst[n:])
	clear(mask[n:])
	scored := 0
	mask = mask[:n]
	for i, v := range dst[:n] {
		if UsableLogprob(v) {
			mask[i] = 1
			scored++
		} else {
			mask[i], dst[i] = 0, 0
		}
	}
	r.Unscored += int32(len(ids) - scored)
}

func (r *Row) appendOutput(c *Call) {
	lo := len(r.InputIDs)
	known := c.Version
	for _, v := range c.Versions {
		known = max(known, v)
	}
	r.AppendSampled(c.OutputIDs, c.Logprobs, known)
	for i, v := range c.Versions {
		if r.Versions != nil {
			r.Versions[lo+i] = max(v, -1)
		}
	}
}

// unscore sets mask 0 for the tokens from position n on and counts them in Unscored.
func (r *Row) unscore(n int) {
	for _, m := range r.LossMask[n:] {
		r.Unscored += int32(m)
	}
	clear(r.LossMask[n:])
	clear(r.Logprobs[n:])
}

// extend appends ids as one span and returns the new parts of LossMask and Logprobs for the caller
// to fill. Every function that lengthens a row must call extend.
func (r *Row) extend(role Role, ids []int32, version int32) (mask []int8, logprobs []float32) {
	lo, hi := len(r.InputIDs), len(r.InputIDs)+len(ids)
	r.InputIDs = append(r.InputIDs, ids...)
	r.LossMask = slices.Grow(r.LossMask, len(ids))[:hi]
	r.Logprobs = slices.Grow(r.Logprobs, len(ids))[:hi]
	if version >= 0 && r.Versions == nil {
		r.Versions = make([]int32, lo, cap(r.InputIDs))
		fill(r.Versions, -1)
	}
	if r.Versions != nil {
		r.Versions = slices.Grow(r.Versions, len(ids))[:hi]
		fill(r.Versions[lo:], max(version, -1))
	}
	if len(r.TurnOffsets) == 0 {
		r.TurnOffsets = append(r.TurnOffsets, 0)
	}
	r.TurnOffsets = append(r.TurnOffsets, int32(hi))
	r.TurnRoles = append(r.TurnRoles, int8(role))
	return r.LossMask[lo:], r.Logprobs[lo:]
}

// realign repairs the last span, which must be an output. The prompt of call k differs from the row
// at token n. It records the ids of the row and the prompt in Realigned and then trims the row.
func (r *Row) realign(k, n int, prompt []int32) {
	r.Realigned = append(r.Realigned, Divergence{
		Call: int32(k), Offset: int32(n), Kind: DivergedInLast, Row: window(r.InputIDs, nil, n), Prompt: window(prompt, nil, n),
	})
	r.Flags |= FlagRealigned
	r.trim(n)
}

// trim removes all tokens from position n on and counts them in Trimmed. These tokens must be in
// the last span, which must be an output.
func (r *Row) trim(n int) {
	for _, m := range r.LossMask[n:] {
		r.Unscored -= int32(1 - m)
	}
	r.Trimmed += int32(len(r.InputIDs) - n)
	r.InputIDs, r.LossMask, r.Logprobs = r.InputIDs[:n], r.LossMask[:n], r.Logprobs[:n]
	if r.Versions != nil {
		r.Versions = r.Versions[:n]
	}
	r.trimInside(n)
	k := len(r.TurnRoles)
	r.TurnOffsets[k] = int32(n)
	if r.TurnOffsets[k-1] == int32(n) {
		r.TurnOffsets, r.TurnRoles = r.TurnOffsets[:k], r.TurnRoles[:k-1]
	}
}

func (r *Row) reserve(n int) {
	r.InputIDs = slices.Grow(r.InputIDs, max(0, n-len(r.InputIDs)))
	r.LossMask = slices.Grow(r.LossMask, max(0, n-len(r.LossMask)))
	r.Logprobs = slices.Grow(r.Logprobs, max(0, n-len(r.Logprobs)))
}

func fill(s []int32, v int32) {
	for i := range s {
		s[i] = v
	}
}
