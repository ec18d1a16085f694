package tap

import "github.com/rollout-rl/rollout/tokenize"

// CopyTo sets the fields of dst that the tap knows: the prompt with its source and grade, the finish
// reason, the stop id, the versions, the values from inside the call, the sampling parameters and
// FlagSpliced. It clears the reason.
// The output of dst must be set before, because the versions refer to it. The two calls then share
// the prompt and these values.
func (c *Call) CopyTo(dst *tokenize.Call) {
	dst.PromptIDs, dst.Source, dst.Grade, dst.Reason = c.Prompt, tokenize.SourceTap, tokenize.Exact, tokenize.ReasonNone
	dst.FinishReason = c.Finish
	if c.Finish == tokenize.FinishStop && c.Matched >= 0 {
		dst.StopID = new(c.Matched)
	}
	dst.VersionFrom = tokenize.VersionTap
	dst.Version, dst.Versions = tokenize.OutputVersions(c.Version, c.Versions, len(dst.OutputIDs))
	dst.WeightVersion, dst.WeightSpans = c.Version, c.Versions
	dst.Experts, dst.SamplingMask, dst.MaskLengths = c.Experts, c.SamplingMask, c.MaskLengths
	if c.Asked != nil {
		dst.Flags |= tokenize.FlagSpliced
	}
	s := &c.Sampling
	dst.Sampling = &tokenize.Sampling{
		Temperature: float(s.Temperature), TopP: float(s.TopP), TopK: whole(s.TopK), MaxNewTokens: whole(s.MaxNewTokens),
	}
}

func float(v *float64) *float32 {
	if v == nil {
		return nil
	}
	return new(float32(*v))
}

func whole(v *int64) *int32 {
	if v == nil || *v != int64(int32(*v)) { //nolint:gosec // a truncated value differs from *v
		return nil
	}
	return new(int32(*v))
}
