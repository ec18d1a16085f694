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
//	GET  /calls                 the calls so far, as lines of the log (see below)
//	POST /generate              SGLang's own dialect: input_ids, one prompt
//	POST /v1/chat/completions   OpenAI's API, with ids in the way of an engine (see below)
//	POST /v1/completions        vLLM's form: one prompt of ids, whole answers only
//
// The other POST routes stream on request. Each event in a /generate stream repeats all tokens sampled so
// far, as in SGLang. Each event in a /v1/chat/completions stream contains only the new tokens.
//
// # Dialects
//
// [Config.Dialect] selects how /v1/chat/completions returns ids, and how a request asks for them:
//
//	dialect        asked for by                  whole answer                   stream
//	vllm           return_token_ids              prompt_token_ids,              the same, in parts
//	                                             choices[].token_ids
//	sglang         x-sglext-return-input-ids: 1  sglext.input_ids,              the same, in one event
//	               x-sglext-return-output-ids: 1 sglext.output_ids[]            without choices
//	sglang-plain   return_token_ids              choices[].prompt_token_ids,    status 400
//	                                             choices[].response_token_ids
//	sglang-0.5.18  return_token_ids              choices[].prompt_token_ids,    status 400
//	                                             choices[].token_ids
//	none           never
//
// The dialect sglang also answers return_token_ids as sglang-plain does, and it accepts
// return_input_ids_in_sglext and return_output_ids_in_sglext in the body. In SGLang's dialects,
// return_meta_info adds choices[].meta_info, and the log-probabilities of a chat completion contain
// the texts of the tokens only. Errors, context limits, reasoning and finish reasons also follow
// the engine.
//
// # Values from inside a call
//
// With [Config.Experts], [Config.SamplingMask] and [Config.VersionSpans], the engine returns routed
// experts, sampling masks and weight_versions in the form of its dialect. SGLang returns them in
// meta_info or sglext, if the request asks for them. vLLM returns routed_experts in every whole chat
// completion, as a .npy file. The values are pure functions of the tokens ([Experts], [Mask],
// [Spans]), so the log does not repeat them.
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
// # The script for agent harnesses
//
// The script "harness" plays a task of an agent harness, such as opencode or Qwen Code:
//
//	Write two notes. [script:harness seed=7 parallel cut=2]
//
// The model calls tools in two answers and then gives a final answer. It takes the tools from the
// request: one for commands, otherwise one for files, and it fills in arguments that satisfy the
// tool's schema. If the request has a tool that ends a run, the final answer calls it. Options:
//
//	seed=N     distinguishes conversations (default 1); the log repeats it
//	calls=N    the number of answers that call a tool, or of parallel calls (default 2)
//	parallel   all calls are in one answer
//	subagent   the first answer starts a subagent; its task has its own marker (seed=Ns). If the
//	           request has a tool that waits for a subagent, the second answer calls it
//	think      every answer begins with reasoning
//	long       answers that call tools have a long text
//	unicode    answers contain characters outside ASCII
//	compact    arguments are printed without spaces, so the next prompt differs from the sampled ids
//	numbers    calls set the parameter timeout of a tool to 60000.0. JavaScript prints 60000
//	answer=N   the number in the final answer (default 42)
//	remember   the first call commits the number to the memory of a Letta Code agent
//	recall     the number in the final answer comes from the messages; if they contain none, it is "unknown"
//
// A fault happens to one answer, given by its number from 1:
//
//	cut=N      the answer is cut off: a stream after three events (after=K: after K events), any
//	           other answer in the middle of its body
//	drop=N     the connection is dropped before any byte of the answer
//	err=N      status 500
//	busy=N     status 429 with Retry-After: 1
//	length=N   the output ends with finish reason length, and calls no tool
//	ctx=N      status 400 in the engine's words for a prompt that is longer than the context
//	slow=N     the answer is delayed by three seconds (ms=K: by K milliseconds)
//
// Each fault happens once (times=K: K times). Conversations with the same marker share this count,
// so give each conversation its own seed. Apart from faults, an answer depends only on the request.
// Every answer contains a word with the seed and its number, such as note-7-2. The words in the
// messages show the engine where the conversation is, even if the harness rewrites its history. A
// request without tools gets a title or, if its messages speak of a summary, a summary. The summary
// contains the marker with a parameter step, so that the conversation can continue from it.
//
// [SmallModel] is a model for harnesses that needs no files. Its template prints messages as the
// scripts sample them. An engine without a tokenizer also works.
//
// # The log
//
// The log has one JSON object per line and call, in the order the calls end:
//
//	n, path, began, ended, status     number of the call from 1, and its times in UTC; the status is 0
//	                                  if the connection was dropped
//	stream                            whether the request asked for a stream
//	prompt_ids, output_ids, logprobs  what was sampled under which prompt, whether or not it was
//	                                  sent; null before sampling; a logprob that is not a number is
//	                                  null
//	text, finish, finish_reason       the text, the engine's reason (stop, length), and the reason
//	                                  in a chat completion
//	complete                          whether the whole answer was written to a connected client
//	listed                            how many of the sampled ids were written
//	fault, marker                     the scripted fault of this call, and the marker of the script
//	                                  harness
//	script, seed, step                the script, its seed, and the number of answers before this one
//	messages, messages_sha256, tools  number and digest of the messages, names of the tools
//	version                           the weight version
//
// # Truth
//
// The engine records a [Call] before it sends the answer. The log-probabilities are a pure function
// of the whole prompt, the position and the id (see [Logprob]). So equal outputs for different
// prompts have different log-probabilities, except in the script "equal". With [Config.ByMarker],
// an answer depends only on the marker and the number of the call. This makes two collections with
// the same messages comparable.
package enginesim
