// Package proxy forwards requests to inference engines, and keeps the generations among them as
// calls of package tap. The proxy never harms a call: if its own work fails, the request and its
// answer still pass. The one exception is a spliced call whose answer cannot be marked (see The
// mark).
//
// # The path of a call
//
//	ServeHTTP            serves the tap's own pages; answers 503 while the tap drains
//	dialectOf            finds the API of a generation. Other requests pass unread
//	exchange.begin       reads and parses the whole body: ids, sampling parameters
//	  request.edits      Config.Set and Config.AskIDs change members. All other bytes stay,
//	                     except ids that the Continuer replaces
//	ReverseProxy         net/http/httputil: hop-by-hop headers, trailers, upgrades, flushing
//	  roundTripper       selects the engine that had the chain, or the least busy one. If it
//	                     cannot be reached, it is down, and the next engine is tried
//	  marking            adds a mark to the answer if there is a Continuer (marker.go)
//	  passing            sends each piece of the answer through the reader to the client
//	    reader           parses the answer without buffering it
//	    exchange.finish  keeps the call, before the client has the last byte
//
// So when a server has the end of an answer, its call is kept. A generation that passes unread is
// kept too, without its contents. So a reader never believes that it has seen every call.
//
// # What a call claims
//
// A call has only data that its request and its answer contain:
//
//	the prompt          the request's ids, if they are the engine's whole prompt: without
//	                    images or a session, and with the engine's token count. Ids in the
//	                    answer override the ids of the request
//	the output          the ids of a complete answer with status 200. Nothing if there are
//	                    several outputs, or the answer reports an error
//	log-probabilities   the values that belong to the output's ids, with the float32 bits that
//	                    package tokenize parses from a server's turns
//	the version         empty if several versions made the output
//
// A body with a duplicate member is malformed, because engines can differ in which one counts.
// Stats.Unread counts the bodies that passed unread, by reason:
//
//	too_large      the request exceeds Config.BodyBytes, or all held bodies exceed MemoryBytes
//	malformed      a body is not JSON, or not valid for its dialect
//	several        the request asks for several outputs, or the answer has them
//	encoded        the answer is compressed
//	content_type   the answer is a stream and should not be, or the reverse
//	cut            the answer is incomplete
//	unfinished     a stream ended without a finish reason
//	no_ids         the answer has no output ids
//	error          the answer reports an error
//	prompt_tokens  the engine's count differs from the length of the prompt
//	panic          a bug in the tap
//
// # The mark
//
// With a Continuer, every answer with status 200 has the member meta_info.rollout. It reports
// how many turns of the prompt were spliced. The server keeps meta_info in the trace of the
// step, so a collection that rebuilds a prompt knows whether the engine received it. The proxy
// changes nothing else in an answer. A marked answer is sent in chunks, because its length is
// not known before its end. The proxy asks engines not to compress.
//
// The proxy cannot mark an answer that an engine compresses anyway, or that is not JSON. If the
// prompt of such a call was spliced, the call fails: the client gets 502, or, if the head of
// the answer has passed, an answer that breaks off. Without a mark it would look like an answer
// to the server's own prompt. All other calls pass unmarked. After the first compressed answer,
// and after the first call that fails this way, the Continuer changes no prompt.
//
// The mark is trusted like the rest of the answer. A collection does not notice an engine that
// writes its own mark, or a proxy that removes one.
//
// # To add a dialect
//
// A dialect is one file with a type that implements dialect (dialect.go); openai.go is an example.
// Register it in dialects. Its request method records, with request.object, the positions of the
// members that settings change. Its answer method fills an answer. Both parse in one pass with a
// tokenize.Scanner. The file names the upstream sources of its member names.
//
// # If an engine refuses a request
//
// An engine's error passes unchanged, with one exception. If the engine answers 400, 413 or 422 to
// a prompt that the Continuer changed, the proxy sends the server's own prompt once, still with Set
// applied. The call is kept with the prompt that was used, and counted in Stats.SplicesRefused. A
// request is never sent without Set, because the user asked for it. The log names the settings as a
// possible reason.
//
// # Memory
//
// While an engine works, an open call holds its body, so that it can be sent again. The prompt's
// ids are packed to 18 bits each for a vocabulary of 152,000 tokens (payload, tap.IDs), and
// formatted again when they are sent. When the head of the answer arrives, the body is freed. The
// packed ids stay until the end of the answer. The buffers for reading bodies are pooled
// (rooms.go); a transport never sends from them.
//
// With 8,192 ids, a waiting call takes 64 KB of heap and stacks, and a stream of 4,000 tokens 101 KB
// (TestGateOpenCalls). A call takes 0.7 to 0.8 ms of CPU, and 1.2 to 1.9 ms with an answer of 4,000
// tokens (TestGateTapMemory).
package proxy
