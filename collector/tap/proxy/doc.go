// Package proxy forwards requests to inference engines. It records each request for a generation as
// a [tap.Call]. The proxy never harms a call. If its own work fails, it still forwards the request
// and the answer. The one exception is a spliced call whose answer cannot be marked (see The mark).
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
// An engine's error is forwarded unchanged, with one exception. If the Continuer changed the prompt
// and the engine answers 400, 413 or 422, the proxy sends the request once more with the server's
// own prompt, and still with Set applied. The recorded call contains the prompt that was used, and
// Stats.SplicesRefused counts the call. The proxy never sends a request without Set, because the
// user asked for these settings. The log names the settings as a possible cause of the error.
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
package proxy
