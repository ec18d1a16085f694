// Package enginesim is a scripted inference engine over real HTTP: it answers as SGLang and
// vLLM do, from a script instead of a model, and keeps the truth of every call.
//
// Tests run it behind a real Letta server, or behind a proxy. The prompts and outputs of the
// engine are known id by id, so that every row of a collection can be compared with them.
//
// # Routes
//
//	GET  /v1/models             one model, with its max_model_len
//	GET  /health                200; /health_generate too
//	GET  /model_info            the weight version, as SGLang; /get_model_info too
//	POST /generate              SGLang's own dialect: input_ids, one prompt
//	POST /v1/chat/completions   OpenAI's; with return_token_ids also vLLM's prompt_token_ids
//	                            and token_ids
//
// Both ways of generation stream on request. A stream of /generate repeats all that was
// sampled in each event, as SGLang's does; one of /v1/chat/completions sends what is new.
//
// # How a script is found
//
// A user's message names it:
//
//	What is 2 plus 3? [script:tool]
//	Do something. [script:random seed=7 calls=5]
//
// The last marker of the decoded prompt counts. Which of the script's replies answers the
// call is counted in the prompt too: each step of an agent's loop leaves one result of a
// tool behind it, even where the server shows the model no call (approvals, client tools).
// So an answer is a function of the prompt alone, whichever engine gives it, before or
// after a restart. Only a prompt that lost its marker in a compaction needs memory: it
// continues the last script that its agent played. Other prompts without a marker are answered
// with a greeting.
//
// # Truth
//
// A [Call] is kept before its answer leaves. The log-probabilities are a pure function of the
// whole prompt, the position and the id (see [Logprob]), so equal outputs under different prompts
// differ in bits, except in the script equal. With [Config.ByMarker] all is a function of the marker and of the number of the
// call: so two ways of collecting that say the same can be compared.
package enginesim
