package tap

import (
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Call is one generation that passed through the tap, even if it failed. If the tap did not see
// the value of a field, the field is nil, empty or -1, as documented below. The tap does not infer
// any field.
type Call struct {
	// Began is the time at which the whole request had arrived. Ended is the time at which the last
	// byte of the engine's answer arrived. Both times are measured by the clock of the tap's
	// machine.
	Began, Ended time.Time
	// Engine is the base URL of the engine. It never contains a password.
	Engine string
	// Dialect is the name of the dialect that parsed the call.
	Dialect string
	// Status is the HTTP status of the answer, or 0 if there was no answer.
	Status int
	// Cut is true if the answer is incomplete because the client disconnected or the engine's
	// answer was cut off.
	Cut bool

	// Prompt contains the token ids that the engine received. It is nil if the ids are unknown. The
	// caller owns the slice.
	Prompt []int32
	// Asked is the prompt that the server sent, if continuity replaced it. Otherwise Asked is nil.
	Asked []int32
	// Output contains the sampled token ids, including the stop token. Logprobs has the same
	// length. A NaN in Logprobs means that the engine did not return a value for the token.
	Output   []int32
	Logprobs []float32

	// Finish is the engine's finish reason. It is empty if unknown. Matched is the stop id that
	// ended the output, or -1.
	Finish  string
	Matched int32
	// Version is the engine's weight_version. It is empty if unknown.
	Version string
	// Versions is the engine's weight_versions. It states which version sampled which part of
	// Output. It is nil if the engine does not report the list. It is empty if the list cannot be
	// parsed, or if several versions sampled Output and the engine does not report their parts.
	Versions []tokenize.VersionSpan
	// Experts contains the routed experts of Prompt and Output, except the last output id. MaskLengths
	// contains, for each output id, the number of ids among which the engine sampled, and SamplingMask
	// contains these ids, one list after the other. All of them are nil unless the tap
	// records them and the engine returned them.
	Experts                   tokenize.Experts
	SamplingMask, MaskLengths []int32
	// PromptTokens, OutputTokens and Cached are the token counts that the engine reported, or -1.
	PromptTokens, OutputTokens, Cached int32

	// Sampling contains the parameters that the engine received.
	Sampling Sampling
}

// insideBytes returns the memory of the values from inside the call.
func (c *Call) insideBytes() int64 {
	return int64(len(c.Experts.IDs)) + 4*int64(len(c.SamplingMask)+len(c.MaskLengths))
}

// dropInside drops the values from inside the call.
func (c *Call) dropInside() {
	c.Experts, c.SamplingMask, c.MaskLengths = tokenize.Experts{}, nil, nil
}

// Sampling contains the sampling parameters of a request to an engine. A field is nil if the
// request did not set the parameter.
type Sampling struct {
	Temperature, TopP, MinP *float64
	TopK, MaxNewTokens      *int64
	Seed                    *int64
	Stop                    []string
	StopIDs                 []int32
}
