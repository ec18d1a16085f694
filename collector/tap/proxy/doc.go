// Package proxy forwards requests to inference engines. It records each request for a generation as
// a [tap.Call]. The proxy never harms a call. If its own work fails, it still forwards the request
// and the answer. There are two exceptions: a spliced call whose answer cannot be marked (see The
// mark), and a call of a session that cannot be recorded (see Sessions).
//
// # The path of a call
//
//	ServeHTTP            serves the tap's own pages; answers 503 while the tap drains
//	dialectOf            finds the API of a generation; other requests are not parsed
//	exchange.begin       reads and parses the whole body: ids, sampling parameters
//	  request.edits      changes members for Config.Set and Config.AskIDs; keeps all other bytes,
//	                     except for ids that the Continuer replaces
//	ReverseProxy         net/http/httputil: hop-by-hop headers, trailers, upgrades, flushing
//	  roundTripper       selects the engine that had the chain, or the least busy engine; if the
//	                     engine cannot be reached, marks it as down and tries the next one
//	  marking            adds a mark to the answer if there is a Continuer (marker.go)
//	  passing            passes each piece of the answer to the reader and then to the client
//	    reader           parses the answer without buffering it
//	    exchange.finish  records the call before the client has the last byte
//
// By the time a server receives the end of an answer, the proxy has recorded the call. If the proxy
// does not parse a generation, it records a call without contents. A reader of the calls can
// therefore see that these contents are missing.
//
// # The contents of a call
//
// A call contains only data from its request and its answer:
//
//	the prompt          the ids in the request, if they are the engine's whole prompt: the request
//	                    has no images and no session, and the number of ids is the engine's token
//	                    count. Ids in the answer take precedence
//	the output          the ids in a complete answer with status 200; nothing if the answer has
//	                    several outputs or reports an error
//	log-probabilities   the values that belong to the output's ids, with the same float32 bits that
//	                    package tokenize parses from a server's turns
//	the version         empty if several versions sampled the output
//
// A body with a duplicate member counts as malformed, because engines differ in which of the two
// values they use. Stats.Unread counts the bodies from which the proxy was unable to record
// everything, by reason:
//
//	too_large      the request is larger than 16 MiB, or all bodies in memory are larger than 1 GiB
//	malformed      the body is not JSON or is not valid in its dialect
//	several        the request asks for several outputs, or the answer has several
//	encoded        the answer is compressed
//	content_type   the answer is a stream although none was requested, or the reverse
//	cut            the answer is incomplete
//	unfinished     the stream ended without a finish reason
//	no_ids         the answer has no output ids
//	error          the answer reports an error
//	routed_experts the routed experts do not have the shape in Config.Inside, or not one entry per token
//	sampling_mask  the sampling masks do not belong to the sampled tokens
//	prompt_tokens  the engine's token count differs from the length of the prompt
//	panic          the tap has a bug
//
// # The mark
//
// If Config.Continuer is set, every answer with status 200 gets a mark. The mark is a member
// meta_info.rollout with the number of spliced turns in the prompt. The server stores meta_info in
// the trace of the step. A collection that rebuilds a prompt can then check whether the engine
// received this prompt. The proxy does not change anything else in an answer. A marked answer is
// sent with chunked encoding, because its length is not known in advance. The proxy asks engines
// not to compress answers.
//
// The proxy cannot mark an answer that is not JSON, or that an engine compresses anyway. If the
// prompt of such a call was spliced, the call fails. Otherwise the answer would look like an answer
// to the server's own prompt. The client receives status 502. If the head of the answer has already
// been forwarded, the client receives a truncated answer instead. All other calls are forwarded
// without a mark. After the first compressed answer, and after the first call that fails because
// its answer cannot be marked, the proxy no longer asks the Continuer for prompts.
//
// The mark is trusted like the rest of the answer. If an engine writes its own mark, or another
// proxy removes the mark, a collection cannot detect this.
//
// # Sessions
//
// A session contains all calls that one attempt of an agent makes (package collector/session). If
// Config.Sessions is set, the proxy serves these paths:
//
//	POST /r                        begins a session: {"task": {"id", "prompt", "answer", "metadata"}},
//	                               all optional. 201: {"key", "id", "path": "/r/KEY"}
//	POST /r/KEY/…/chat/completions a call of the session. The part between KEY and the end is ignored
//	POST /r/KEY/…/responses        the same in OpenAI's Responses API, and
//	POST /r/KEY/…/messages         in Anthropic's Messages API: see Translated calls
//	GET  /r/KEY/…/models           one model, ModelName, with the context length of the engines; also
//	                               …/api/v0/models (LM Studio), …/props (llama.cpp), …/health
//	POST /r/KEY/end?wait=true      seals the session: {"reward", "metadata", "final_text"}, all
//	                               optional. 200: the session.End. wait=true waits for the calls in
//	                               flight; by default, they are canceled
//
// All other paths under KEY answer 404. Empty parts of a path are ignored. A client can also send KEY
// as its API key, to paths without KEY. Anywhere else, such as in a query, a key gets status 401. An
// unknown key gets 401 too, and a call of a sealed session 410. If Config.Token is set, all paths except these and
// /healthz need the token. The proxy does not log keys or the token, and does not forward them.
//
// When the whole body of an end has arrived, the proxy completes the end even if the client
// disconnects. The client can repeat it: the same body gets the same answer, another body 409.
//
// A session call has its own path through the proxy, because it must be recorded:
//
//	chat               refuses floods and sealed sessions, before the body is read
//	read               reads the body within a minute, translates it (translated.go), and parses it
//	splice             finds the messages to replace, if Config.Continuity is set
//	roundTripper       selects the engine; all calls of a session prefer the same engine
//	  prepare          changes the request for this engine; trial finds out what it supports
//	respond            stream: passes on event by event; document: a whole answer
//	  view             parses a document once: removes what the client did not ask for; openaiReader:
//	                   parses the ids; message: collects the message; chunks: makes a stream of it
//	  record           stores the call, before the client has the last byte
//	  deliver          writes the last part, and records that the client has it
//
// Without Config.Continuity, the proxy changes only these members of a request: model (the engine's
// name for its model), the settings in Config.Set, and the members that make the engine return ids
// and log-probabilities:
//
//	            a client that streams                            another client
//	vLLM        return_token_ids, logprobs, include_usage        return_token_ids, logprobs,
//	SGLang      two x-sglext headers, logprobs, include_usage    return_prompt_token_ids,
//	otherwise   "stream": false, and as for another client       return_meta_info
//
// Probe and the first call to an engine make a few small calls to learn which row applies. If a
// stream lacks ids nevertheless, the last row applies to this engine from then on, until it is
// down. A whole answer without ids, or a refusal with status 400, 404 or 422, can mean that
// another version was started, unless the refusal states that the call exceeds the context length. Then
// the proxy makes the small calls again, at most every 10 s, and sends a refused request again if their
// result is different. Only refused calls wait for the result. If the small calls fail, the time until
// the next ones doubles, up to 10 min. An engine that returns no ids at all gets no calls. In the last
// row, the proxy makes the client's stream from the whole answer. It holds the head of the stream back
// for a second, so that an error can still have its status. Then it sends the head, and a comment every
// 3 s. A later error of the engine becomes an event with the member error.
//
// Any name in model becomes the name of the engine's first model, except for names that the engine lists.
// Engines also list LoRA adapters. A client can name an adapter as ADAPTER or MODEL:ADAPTER. vLLM gets
// the first form and SGLang the second one, because each of them knows only its own form. Programs load
// and unload adapters at any time, so the proxy reads the list again before it uses a list that is older
// than 5 s. It also reads the list for a name that no call has used before. A name that an engine has
// listed before, but does not list any more, causes status 404, because the client must not get another
// model. If a client uses a name both before and after the adapter is loaded, it can get the engine's
// first model for up to 5 s after that. If the list cannot be read, a name that was never listed still
// becomes the first model, and any other name causes status 502.
//
// From the answer, the proxy removes the members that it asked for and the client did not:
// token_ids, prompt_token_ids, meta_info, the ids in sglext, and the usage in a stream. It sets
// logprobs to null. It drops an event that then contains nothing, and changes model to the name
// that the client used. All other bytes stay the same. The text, the reasoning and the arguments of
// tool calls in session.Call.Answer are the same JSON text, joined.
//
// The proxy stores every call whose request it could parse, even if the call failed. If a call cannot
// be stored, the client gets status 507, or its stream is cut off without an end marker.
// session.Call.Unread is one of the reasons above; no_ids also means that the number of ids differs
// from the engine's count of tokens. If the engine refuses a call because it exceeds the context
// length, Unread is context_overflow. A call whose answer was cut off is stored with the tokens that
// arrived, and the client's answer is cut off too. session.Call.Delivered means that the client was
// still connected when the proxy began to write the last part of the answer, and that no write failed.
// The last part is the end marker of a stream, or a whole answer. The store first records the call and
// then, after the last write, the delivery. A call whose delivery could not be recorded counts as not
// delivered.
//
// These limits bound a flood. The proxy does not limit how long a call takes.
//
//	10,000 open sessions                        503 for POST /r
//	10,000 calls of a session                   403
//	128 calls of a session at the same time     429
//	16 MiB for the body of a call               413
//	1 MiB for the body of POST /r and …/end     413
//	1 minute until a body has arrived           408
//	256 MiB for the request bodies of a session, and 1 GiB for all bodies in memory
//	                                            503
//	64 MiB for an answer, and 16 MiB for an event of a stream
//	                                            502
//
// If an end cancels a call whose client does not read, the proxy stops writing to it after a second.
// It has then recorded the part of the answer that arrived.
//
// # Rendered prompts
//
// If Config.Renderer is set, the engines do not render the prompts of sessions. The proxy sends token
// ids, and requests a whole answer (rendered.go):
//
//	SGLang      POST /generate            input_ids, sampling_params, return_logprob
//	otherwise   POST /v1/completions      prompt, the sampling parameters, logprobs, return_token_ids
//
// renderedMembers lists the members of a chat completion that the proxy supports in this case. A call with
// any other member is refused. The Renderer parses the sampled ids into a message. From this message and the
// ids, the proxy makes a chat completion. Everything else is as in Sessions. The recorded prompt is the
// prompt that the engine returns, or otherwise the rendered prompt. Its length must be equal to the engine's
// token count.
//
// # Continuity
//
// Many clients write an answer back in another form: they serialize the arguments of tool calls
// again, or trim or drop the reasoning. The template then renders another text than the engine
// sampled, and the row of the session forks. If Config.Continuity is set, the proxy replaces such a
// message by the answer. A message is an answer of the session if all of this is true:
//
//	place      the messages before it are the messages of the answered request, byte for byte, and
//	           the tools are the same. Earlier answers can be in any recognized form
//	calls      the same number of tool calls, in the same order, with the same ids and names
//	content    equal, except for white space at its ends; a string, null or a list with one text
//	arguments  the same text, or the same JSON value. Numbers have the same sign and decimal value
//	reasoning  equal, except for white space at its ends, or missing
//
// Then the message gets the content, the arguments and the reasoning of the engine. The reasoning has
// the member name that the engine used. Everything else in the body stays the same, even white space.
// Texts that are already the engine's texts are not changed.
//
// If there is a doubt, the message is forwarded as the client sent it:
//
//   - Several different answers came after the same messages, and more than one of them could be the
//     message. For example, two conversations began with the same request, their answers have the
//     same content and no tool calls, and the client dropped the reasoning.
//   - The answer was cut, or an answer after the same messages could not be parsed.
//   - The message has several texts or an image, a duplicate member, or a string that is not valid
//     Unicode.
//
// The call is then recorded with the messages that the client sent, and session.Call.Spliced is true
// if the engine received others. If the template renders the history as the engine sampled it, the
// prompt begins with the prompt and the output of the previous call. The proxy does not know whether
// it does. Only the ids from the engine decide about rows. If the engine refuses the changed request,
// it gets the client's own request (see If an engine refuses a request).
//
// The proxy keeps the arguments and the reasoning of each answer, and a hash of its content, until
// the session is sealed (EndSession) or makes no call for an hour. It keeps up to 4 MiB for a session
// and 256 MiB for all sessions. A session that needs more gets no splices for its further answers. If
// all sessions need more, the least recently used sessions are forgotten. After a restart, the proxy
// knows only the answers since the restart. An answer that the proxy has forgotten cannot raise a
// doubt.
//
// # Translated calls
//
// The proxy first translates a request in another API into a chat completion (package
// collector/tap/translate). The record contains the messages of the chat completion, and Dialect is the
// name of the API. The proxy always asks the engine for a whole answer. If the client wants a stream, the
// proxy makes it from the whole answer, as in the last row of the table in Sessions. While the client
// waits, it gets events of its API instead of comments. Errors have the form of the API.
//
// # To add a dialect
//
// A dialect is one file with a type that implements dialect (dialect.go). See openai.go for an
// example. Add the type to the list dialects. Its request method uses request.object to record the
// positions of the members that settings change. Its answer method fills an answer. Both methods
// parse in one pass with a tokenize.Scanner. A comment in the file cites the upstream sources for
// the member names.
//
// # If an engine refuses a request
//
// An engine's error is forwarded unchanged, with one exception. If the Continuer changed the prompt,
// or Config.Continuity the messages, and the engine answers 400, 413 or 422, the proxy sends the
// request once more with the client's own prompt or messages, and still with Set applied. The recorded
// call contains the prompt that was used, and Stats.SplicesRefused counts the call. The proxy never
// sends a request without Set, because the user asked for these settings. The log names the settings as
// a possible cause of the error.
//
// # Memory
//
// Until the engine answers, a call keeps its request body, so that the proxy can send the body
// again. The ids of the prompt are packed, at 18 bits each for a vocabulary of 152,000 tokens
// (payload, tap.IDs). The proxy formats the ids as text when it sends them. The body is freed when
// the head of the answer arrives, and the packed ids are freed at the end of the answer. Buffers
// for reading bodies are pooled (rooms.go). A transport never sends directly from a pooled buffer.
//
// A waiting call with a prompt of 8,192 ids takes 64 KB of heap and stacks. A stream of 4,000
// tokens takes 101 KB (TestGateOpenCalls). A call takes 0.7 to 0.8 ms of CPU time, or 1.2 to 1.9 ms
// if its answer has 4,000 tokens (TestGateTapMemory).
//
// A call of a session keeps its request body until it is recorded, and a whole answer until it is
// sent. A call with a request of 64 KB and a stream of 172 KB in 202 events takes 290 allocations and
// 500 KB (TestGateSessionAllocations), and 2.6 ms of CPU time (BenchmarkSessionCall). This includes the
// store.
//
// If a translated call has a request of 40 KB and an answer of 104 KB from the engine, it takes 283
// to 372 allocations and 328 to 445 KB (TestGateTranslatedAllocations). The same chat completion
// takes 209 allocations and 359 KB, because its answer is copied without the ids. The translation
// takes about a tenth of the CPU time of a translated call (BenchmarkTranslatedCall).
package proxy
