// Package proxy passes requests on to inference engines, and keeps the generations among them
// as calls of package tap. It is made so that it never harms a call: what it does for itself
// may fail, and the request and its answer pass all the same. There is one exception: a
// spliced call whose answer cannot be marked (see The mark).
//
// # The way of a call
//
//	ServeHTTP            the tap's own pages; 503 while it drains
//	dialectOf            is it a generation, and of which API? What is none passes unread
//	exchange.begin       the body is read to its end, and understood: ids, sampling
//	  request.edits      Config.Set and Config.AskIDs change members; the Continuer the ids.
//	                     Every other byte stays
//	ReverseProxy         net/http/httputil: hop-by-hop headers, trailers, upgrades, flushing
//	  roundTripper       an engine: the one that had the chain, or the least busy. One that
//	                     cannot be reached is down, and the next is tried
//	  marking            with a Continuer the answer gets a mark (marker.go)
//	  passing            each piece of the answer goes through the reader to the client
//	    reader           reads it as it passes, and holds none of it
//	    exchange.finish  the call is kept, before the client has the last byte
//
// A server that waits for the end of an answer finds its call kept. Of a generation that
// passes unread only is kept that it was, so that nobody believes to have seen every call.
//
// # What is claimed
//
// A call has what its request and its answer say, and nothing that is concluded:
//
//	the prompt          the ids of the request, if they are all of the engine's prompt: not
//	                    with images or a session, and not if the engine counts another number
//	                    of tokens. The ids in the answer come before those of the request
//	the output          the ids of an answer with status 200 that came to its end. Of several
//	                    outputs, or of an answer with an error, none
//	log-probabilities   those that belong to the ids of the output, with the float32 bits that
//	                    package tokenize reads from a server's turns
//	the version         none if several made the output
//
// A member that appears twice says nothing: engines need not agree on which one counts. What
// passed and says nothing is counted by reason, in Stats.Unread:
//
//	too_large      the request is longer than Config.BodyBytes, or Config.MemoryBytes are held
//	malformed      a body is not JSON, or not that of its dialect
//	several        it asks for several outputs, or has them
//	encoded        the answer is compressed
//	content_type   the answer is a stream and should not be one, or the reverse
//	cut            it did not come to its end
//	unfinished     a stream ended without a word why
//	no_ids         the answer has no ids of the output
//	error          it reports an error
//	prompt_tokens  the engine counts another number of tokens than the prompt has
//	panic          the tap's own fault
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
// A dialect is one file with a type that implements dialect (dialect.go): openai.go is an
// example. Its name in dialects makes it known. request notes where the members stand that
// settings change, with request.object; answer fills an answer. Both read with a Scanner of
// package tokenize, in one pass. The file names the upstream sources of its names.
//
// # What an engine refuses
//
// An error of an engine passes unchanged. There is one exception: where it answers 400, 413 or
// 422 to a prompt that the Continuer changed, it is sent the server's own prompt, once, with
// what Set says. The call is kept with the prompt that was used, and counted in
// Stats.SplicesRefused. A request that Set changed is never sent without that: what was set is
// asked for. The log says that the settings may be the reason.
//
// # Memory
//
// While an engine works, an open call holds its body, so that it can be sent again. The ids of
// a prompt are packed in it to 18 bits each for a vocabulary of 152,000 tokens (payload,
// tap.IDs), and spelled again as they are sent. Once the head of the answer is there the body
// is freed, and the packed ids wait for the end of the answer. What bodies are read with is
// used again (rooms.go); nothing that a transport sends lies there.
//
// With 8,192 ids a call that waits takes 64 KB of heap and stacks, a stream of which 400 tokens
// have passed 75 KB, one of which 4,000 have passed 101 KB, and 128 KB are what
// TestGateOpenCalls allows. A call costs 43 KB and 160 allocations (TestGateAllocations), those
// of net/http among them. The whole tap, with a thousand open calls of 8,000 ids, has 97 to 119
// KB for each resident over what it has idle, garbage and the spool's memory of earlier calls
// included, and 73 to 154 KB if answers have 4,000 tokens, the most for streams half of which
// have passed. It takes 0.7 to 0.8 ms of CPU for a call, and 1.2 to 1.9 ms for one with an answer
// of 4,000 tokens (TestGateTapMemory).
package proxy
