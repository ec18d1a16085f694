// Package enginesim is a scripted inference engine over real HTTP. It answers like SGLang and vLLM,
// from a script instead of a model, and records every call.
//
// Tests run it behind a real Letta server or behind a proxy. They compare every row of a collection
// with the recorded prompts and outputs, id by id.
//
// # Routes
//
//	GET  /v1/models             one model, with its max_model_len
//	GET  /health                200; /health_generate too
//	GET  /model_info            the weight version, in SGLang's format; /get_model_info too
//	POST /generate              SGLang's own dialect: input_ids, one prompt
//	POST /v1/chat/completions   OpenAI's dialect; with return_token_ids also vLLM's prompt_token_ids
//	                            and token_ids
//
// Both POST routes stream on request. Each event of a /generate stream repeats all tokens sampled
// so far, as in SGLang. An event of a /v1/chat/completions stream has only the new tokens.
//
// # How a script is found
//
// A user message names the script:
//
//	What is 2 plus 3? [script:tool]
//	Do something. [script:random seed=7 calls=5]
//
// The last marker of the decoded prompt counts. The number of tool results after the marker selects
// the script's reply: each step of an agent's loop adds one, even if the server hides the call from
// the model (approvals, client tools). So an answer depends only on the prompt, in any engine,
// before or after a restart. Only a prompt that lost its marker in a compaction needs memory: it
// continues the last script of its agent. The answer to any other prompt without a marker is a
// greeting.
//
// # Truth
//
// The engine records a [Call] before it sends the answer. The log-probabilities are a pure function
// of the whole prompt, the position and the id (see [Logprob]). So equal outputs of different
// prompts have different log-probabilities, except in the script equal. With [Config.ByMarker] an
// answer depends only on the marker and the number of the call, so that two collections with the
// same messages can be compared.
package enginesim
