// Package proxy forwards requests to inference engines and records the generations among them as
// calls of package tap. The proxy never harms a call. If its own work fails, it still forwards the
// request and the answer. The one exception is a spliced call whose answer cannot be marked (see The
// mark).
//
// # The path of a call
//
//	ServeHTTP            serves the tap's own pages; answers 503 while the tap drains
//	dialectOf            finds the API of a generation; other requests are not parsed
//	exchange.begin       reads and parses the whole body: ids, sampling parameters
//	  request.edits      changes members for Config.Set and Config.AskIDs; all other bytes stay,
//	                     except for ids that the Continuer replaces
//	ReverseProxy         net/http/httputil: hop-by-hop headers, trailers, upgrades, flushing
//	  roundTripper       selects the engine that had the chain, or the least busy engine; if the
//	                     engine cannot be reached, marks it as down and tries the next one
//	  marking            adds a mark to the answer if there is a Continuer (marker.go)
//	  passing            passes each piece of the answer to the reader and then to the client
//	    reader           parses the answer without buffering it
//	    exchange.finish  records the call before the client has the last byte
//
// So when a server has received the end of an answer, the call has been recorded. A generation that
// the proxy does not parse is recorded too, without its contents. So a reader of the calls knows
// that this call is missing.
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
// A body with a duplicate member counts as malformed, because engines can differ in which of the two
// they use. Stats.Unread counts the bodies that were forwarded without being used, by reason:
//
//	too_large      the request exceeds Config.BodyBytes, or all held bodies exceed MemoryBytes
//	malformed      the body is not JSON or is not valid in its dialect
//	several        the request asks for several outputs, or the answer has several
//	encoded        the answer is compressed
//	content_type   the answer is a stream although none was requested, or the reverse
//	cut            the answer is incomplete
//	unfinished     the stream ended without a finish reason
//	no_ids         the answer has no output ids
//	error          the answer reports an error
//	prompt_tokens  the engine's token count differs from the length of the prompt
//	panic          the tap has a bug
//
// # The mark
//
// If there is a Continuer, every answer with status 200 gets a member meta_info.rollout, which
// contains the number of spliced turns in the prompt. The server stores meta_info in the trace of
// the step. So a collection that rebuilds a prompt can check whether the engine received this
// prompt. The proxy does not change anything else in an answer. A marked answer is sent with chunked
// encoding, because its length is not known in advance. The proxy asks engines not to compress.
//
// The proxy cannot mark an answer that is not JSON, or that an engine compresses anyway. If the
// prompt of such a call was spliced, the call fails. Otherwise the answer would look like an answer
// to the server's own prompt. The client receives status 502 or, if the head of the answer has
// already been forwarded, an answer that breaks off. All other calls are forwarded without a mark.
// After the first compressed answer, and after the first call that fails for this reason, the proxy
// no longer asks the Continuer for prompts.
//
// The mark is trusted like the rest of the answer. A collection cannot detect an engine that writes
// its own mark, or a proxy that removes the mark.
//
// # To add a dialect
//
// A dialect is one file with a type that implements dialect (dialect.go). See openai.go for an
// example. Add the type to dialects. Its request method uses request.object to record the positions
// of the members that settings change. Its answer method fills an answer. Both parse in one pass
// with a tokenize.Scanner. The file names the upstream sources of its member names.
//
// # If an engine refuses a request
//
// An engine's error is forwarded unchanged, with one exception. If the Continuer changed the prompt
// and the engine answers 400, 413 or 422, the proxy sends the request once more with the server's
// own prompt, and still with Set applied. The recorded call contains the prompt that was used, and
// Stats.SplicesRefused counts the call. The proxy never sends a request without Set, because the
// user asked for these settings. The log names the settings as a possible cause of the error.
//
// # Memory
//
// While an engine is working, an open call keeps its body, so that the proxy can send it again. The
// ids of the prompt are packed, at 18 bits each for a vocabulary of 152,000 tokens (payload,
// tap.IDs). They are formatted again when they are sent. The body is freed when the head of the
// answer arrives, and the packed ids at the end of the answer. Buffers for reading bodies are pooled
// (rooms.go). A transport never sends directly from a pooled buffer.
//
// With 8,192 ids, a waiting call takes 64 KB of heap and stacks, and a stream of 4,000 tokens 101 KB
// (TestGateOpenCalls). A call takes 0.7 to 0.8 ms of CPU time, or 1.2 to 1.9 ms if its answer has
// 4,000 tokens (TestGateTapMemory).
package proxy
