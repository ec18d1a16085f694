package tap

import (
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Call is one generation that passed the tap, successful or not. A field that the tap did not see
// is nil, empty or -1, as documented. No field is computed.
type Call struct {
	// Began is the time when the request had arrived. Ended is the time when the last byte of the
	// engine's answer had arrived. Both are by the clock of the tap's machine.
	Began, Ended time.Time
	// Engine is the base URL of the engine, without a password.
	Engine string
	// Dialect is the name of the dialect that read the call.
	Dialect string
	// Status is the HTTP status of the answer, or 0 if none came.
	Status int
	// Cut reports that the answer was incomplete: the client left, or the engine broke it off.
	Cut bool

	// Prompt is the ids that the engine got, or nil if unknown. The caller owns it.
	Prompt []int32
	// Asked is the prompt that the server sent, if continuity replaced it; otherwise nil.
	Asked []int32
	// Output is the sampled tokens, including the stop token. Logprobs has the same length; NaN
	// means that the engine returned no value for the token.
	Output   []int32
	Logprobs []float32

	// Finish is the engine's finish reason, or empty. Matched is the matched stop id, or -1.
	Finish  string
	Matched int32
	// Version is the engine's weight_version, or empty.
	Version string
	// Versions is the engine's weight_versions: which version sampled which part of Output. It is
	// nil if the engine reports none. It is empty if the list cannot be parsed, or if several
	// versions sampled Output and the engine does not report their parts.
	Versions []tokenize.VersionSpan
	// PromptTokens, OutputTokens and Cached are the engine's counts, or -1.
	PromptTokens, OutputTokens, Cached int32

	// Sampling is the parameters that the engine got.
	Sampling Sampling
}

// Sampling is the sampling parameters of a request to an engine; nil fields were not set.
type Sampling struct {
	Temperature, TopP, MinP *float64
	TopK, MaxNewTokens      *int64
	Seed                    *int64
	Stop                    []string
	StopIDs                 []int32
}
