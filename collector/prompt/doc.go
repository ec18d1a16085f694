// Package prompt finds the prompt of every call of a reply: what the model was
// shown before it sampled. It is the only package that may know both the
// server's messages and a model's chat template.
//
// # Why there is something to find
//
// turns holds what was sampled and the texts of tools. It holds no prompts, and
// the server renders the whole conversation anew for each call, so that the prompt
// of a call is in general not the one before, plus its output, plus the tool's
// text. A prompt is therefore known from a source that can prove it, or not at all.
//
// # The ladder
//
// The sources form a ladder, best first. Each rung sees the calls that no rung
// above could give a prompt to, and fills in those that it can prove:
//
//	turns    input_ids on the assistant turn itself        exact
//
// What no rung knows stays quarantined with no_prompt: the tokens of such a call
// are kept, in failures/, and are never trained on. A rung never replaces what one
// above it has found, and an error of a rung fails the sample.
//
// One source stands beside the ladder, because it claims nothing: literal glues
// the sampled ids and the tokenized texts of tools together as they are, with no
// prompt. It is graded unverified and is used only where Config.Force says so.
package prompt
