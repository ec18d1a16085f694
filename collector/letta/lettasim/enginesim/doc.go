// Package enginesim is a scripted inference engine over real HTTP. It answers in the formats of
// SGLang and vLLM, but from a script instead of a model, and records every call.
//
// Tests run it behind a real Letta server or behind a proxy. They compare every row of a collection
// with the recorded prompts and outputs, id by id.
//
// # Routes
//
//	GET  /v1/models             one model, with its max_model_len
//	GET  /health                200; also /health_generate
//	GET  /model_info            the weight version, in SGLang's format; also /get_model_info
//	POST /generate              SGLang's own dialect: input_ids, one prompt
//	POST /v1/chat/completions   OpenAI's dialect; with return_token_ids also vLLM's prompt_token_ids
//	                            and token_ids
//
// Both POST routes stream on request. Each event in a /generate stream repeats all tokens sampled so
// far, as in SGLang. Each event in a /v1/chat/completions stream contains only the new tokens.
//
// # How a script is selected
//
// A marker in a user message names the script:
//
//	What is 2 plus 3? [script:tool]
//	Do something. [script:random seed=7 calls=5]
//
// The last marker in the decoded prompt counts. The number of tool results after the marker selects
// the script's reply. Each step of an agent's loop adds one tool result, even if the server hides
// the call from the model (approvals, client tools). So an answer depends only on the prompt. Every
// engine gives the same answer to the same prompt, even after a restart. The only exception is a
// prompt that lost its marker in a compaction. Such a prompt continues the last script of its
// agent, which the engine keeps in memory. Any other prompt without a marker gets a greeting.
//
// # Truth
//
// The engine records a [Call] before it sends the answer. The log-probabilities are a pure function
// of the whole prompt, the position and the id (see [Logprob]). So equal outputs for different
// prompts have different log-probabilities, except in the script "equal". With [Config.ByMarker],
// an answer depends only on the marker and the number of the call. This makes two collections with
// the same messages comparable.
package enginesim
