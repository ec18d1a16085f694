package tap

import (
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Call is one generation that passed the tap, successful or not. What was not seen is
// nil, empty or -1, as the field says; nothing in it is computed.
type Call struct {
	// Began is when the request had arrived, Ended when the last byte of the answer had
	// come from the engine, both by the clock of the tap's machine.
	Began, Ended time.Time
	// Engine is the base URL of the engine, without a password.
	Engine string
	// Dialect is the name of the dialect that read the call.
	Dialect string
	// Status is the HTTP status of the answer, or 0 where none came.
	Status int
	// Cut says that the answer did not end: the client went, or the engine broke it off.
	Cut bool

	// Prompt is what the engine was given, nil where it is not known. Its memory is the
	// caller's.
	Prompt []int32
	// Asked is what the server had sent, where continuity gave the engine something else.
	// It is nil where Prompt is what the server had sent.
	Asked []int32
	// Output are the sampled tokens, the stop token included. Logprobs has the same
	// length; NaN means that the engine gave none for that token.
	Output   []int32
	Logprobs []float32

	// Finish is the engine's word for the end of the output, or empty. Matched is the id
	// at which it stopped, or -1.
	Finish  string
	Matched int32
	// Version is the engine's weight_version, as it says it; empty where it says none.
	Version string
	// Versions are the engine's weight_versions: which version sampled which part of Output.
	// It is nil if the engine reports none. It is empty if the list cannot be read, or
	// if several versions sampled and the engine does not report their parts.
	Versions []tokenize.VersionSpan
	// PromptTokens, OutputTokens and Cached are what the engine counted, or -1.
	PromptTokens, OutputTokens, Cached int32

	// Sampling is what the engine was really told.
	Sampling Sampling
}

// Sampling is what an engine was told about how to sample. A nil field was not said.
type Sampling struct {
	Temperature, TopP, MinP *float64
	TopK, MaxNewTokens      *int64
	Seed                    *int64
	Stop                    []string
	StopIDs                 []int32
}
