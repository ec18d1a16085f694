// Package tap records the calls that pass between a Letta server and its inference engines.
//
// `rollout tap` is a proxy between a Letta server and its engines. It forwards each request and
// records one [Call] for each generation: the token ids that the engine received, the ids that the
// engine sampled, the log-probabilities of these ids, and the sampling parameters. If a collection
// finds its calls in the tap, it has the exact prompts that the engine received. The grade of its
// rows is then `exact`.
//
// # The parts
//
//	package tap               Call, the spool that keeps calls, and its readers
//	package tap/proxy         the proxy: engine dialects, load balancing, health
//	package tap/taphttp       the requests for segments and sessions over HTTP
//	package tap/continuity    replaces re-rendered turns in prompts with the sampled tokens
//	package prompt            finds the calls of a sample (its source "tap")
//
// # The path of a call
//
//	server ─► proxy ─► engine
//	            │
//	            └─► Spool ─► segments on disk ─► Reader ─► Index ─► prompts of a sample
//	                             │                 ▲
//	                             └──── HTTP ───────┘
//
// The tap does not know which agent a request belongs to, because the request contains only token
// ids and sampling parameters. [Index] finds a rollout's calls by their tokens.
//
// # The spool
//
//	spool/
//	  lock                  locked by the tap that writes to this folder
//	  1763912345678.tap     a segment
//	  1763912399001.tap     the newest segment; open while the tap runs
//
// A [Spool] stores calls in a folder of append-only files, the segments. A segment's number is its
// start time in milliseconds since 1970, or the previous number plus one if that is higher. The
// spool starts a new segment when the open segment reaches SpoolConfig.SegmentBytes, is an hour old
// (or MaxAge/8 if that is less), or cannot be written. A process never appends to another process's
// segment. Nothing more is written to a segment after the next segment has been created. When the
// total size of all segments exceeds SpoolConfig.MaxBytes, the spool removes the oldest segments.
// It also removes every segment whose last write is older than SpoolConfig.MaxAge. It never removes
// the open segment.
//
// [Spool.Add] copies the call into a queue that is bounded in bytes, and does not wait for the
// disk. One goroutine writes the queued calls to the open segment. Readers can see a call as soon
// as it is written. A written call survives a crash of the process. While there are unsynced
// writes, a second goroutine syncs the segment every 100 ms. A synced call survives a power
// failure.
//
// If a write or a sync fails, the spool truncates the partial frame, abandons the segment, and
// tries to start a new segment every second. Meanwhile, calls wait in the queue. If the queue is
// full, further calls are dropped. No call is written twice, because a call whose write failed is
// not in the old segment.
//
// # Format
//
// A segment is a file of frames (package sink/frame) of kind "tap", version 1. The header of the
// file contains the segment's number. A payload has one of these forms:
//
//	┌───┬────────┬──────┬───────┬─────────┬───────┬───────┬───┬────────┬───────┬────────┬──────────┬──────────┬────────┐
//	│ 1 │ number │ keep │ added │ dropped │ began │ ended │ … │ prompt │ asked │ output │ logprobs │ versions │ inside │
//	└───┴────────┴──────┴───────┴─────────┴───────┴───────┴───┴────────┴───────┴────────┴──────────┴──────────┴────────┘
//	┌───┬───────┬─────────┐
//	│ 2 │ added │ dropped │    a tick: every call added before "added" is in an earlier payload or was dropped
//	└───┴───────┴─────────┘
//	┌───┬────────┬─────────┐
//	│ 3 │ number │ process │    the head, the first payload: the number of the previous segment, or
//	└───┴────────┴─────────┘    0; the start time of the writing process, in nanoseconds since 1970
//	┌───┬────────┐
//	│ 4 │ closed │              the end: 1 if the process has nothing more to write, otherwise 0
//	└───┴────────┘
//
// The "…" stands for the other fields of [Call] in their order, followed by the [Sampling] fields.
// The values are encoded as follows:
//
//	uv           unsigned varint; sv: a signed number as a zig-zag varint
//	text         length (uv), bytes
//	list         0 if nil, otherwise 1 + length (uv), then the elements
//	ids          a list of uv; each id as 32 bits
//	pointer      0 if nil, otherwise 1 and the value; a float64 has eight bytes, little-endian
//	number       uv: the call's number in this segment, from 1; a gap means that calls are missing
//	keep         uv: from this call on, no prompt refers to a call whose number is lower than this
//	             number by more than keep
//	added        uv: nanoseconds since 1970 by the tap's clock; never decreases
//	dropped      uv: how many calls the spool dropped before this one and since the process's
//	             previous segment ended
//	began, ended seconds after added (sv), nanoseconds (uv)
//	cut          0 or 1
//	prompt       list: the length; the number of tokens shared with an earlier call (uv); if it is
//	             not 0, this call's number minus that call's number (uv) and the checksum of the
//	             whole prompt (8 bytes); then the ids that are not shared
//	asked        list: the length; the number of ids shared with the start of the prompt (uv) and
//	             with its end (uv); then the ids in between
//	logprobs     list of float32: four bytes, little-endian; a NaN keeps its bits
//	versions     list of spans: the version (text), start and end (sv)
//	inside       absent if the call has none of these values; otherwise the shape of the routed
//	             experts (three uv), their ids (list of bytes), and sampling_mask and mask_lengths
//	             (ids)
//
// The prompt of most calls consists of an earlier call's prompt, the output of that call, and new
// tokens. Such calls form a chain. To save space, a prompt can refer to an earlier call in the
// segment and share the first tokens of that call's prompt and output:
//
//	call 7      p p p p p p p p o o o        written whole
//	call 9      = = = = = = = = = = = t t t  11 tokens of call 7, then 3 new tokens
//
// The earlier call is either the previous call in the chain or a call that was written whole. At
// most 16 other chains refer to the same call that was written whole. So a damaged frame makes at
// most 16 other chains and the rest of its own chain unreadable. In a chain of 8 calls, each with
// 4,000 prompt tokens and 100 output tokens, every call after the first takes 1 KB. With four bytes
// per token, such a call would take 20 KB.
//
// The encoder and the decoder each keep the tokens of the latest calls in a window of at most 8 Mi
// tokens, which takes about 18 MiB. If a call continues another call, it replaces that call in the
// window. If the window is full, the oldest calls are dropped.
//
// # Reading
//
// A [Reader] returns the calls in the order they were added. At the end of a segment, it
// continues with the next segment. It skips and counts damaged frames, the calls that refer to
// calls in damaged frames, and the partial frame that a killed tap leaves at the end of a segment.
// It never returns a call from a frame with a wrong checksum, or a call that refers to a missing
// call. If a segment has a newer version, the Reader stops with an error.
//
// A tick moves the Reader's horizon. The Reader has read all calls that were added before the
// horizon (see [Reader.Await]). A tick is written every 25 ms in the first second after a call,
// every 200 ms in the next nine seconds, and then every second. If the horizon is later than the
// server's answer to a call, the Reader has either returned the call or counted it as missing. The
// collection then does not have to wait any longer. If a Reader of a local folder has nothing to
// read, it checks the lock of the folder. If no process holds the lock, no more calls will be
// added.
//
// The Reader counts all missing calls. It derives the count from these sources:
//
//	dropped calls              the number of dropped calls in the next payload
//	calls in damaged frames    gaps in the numbers of the other calls
//	calls of a killed tap      its segment lacks an end, or the next head names another process
//	segments removed early     the number of the previous segment in the next head
//
// # Over HTTP
//
// [Spool.Handler] serves a spool to Readers on other machines:
//
//	GET /tap/segments?after=N&wait=S     {"version":1,"segments":[{"number":…,"bytes":…,"open":true}]}
//	GET /tap/segments/N?wait=S           the bytes of a segment, at most 1 MiB
//	    Range: bytes=1000-               from this offset: 206, or 416 if there are no bytes yet
//	    Tap-Final: 123456                the final length, sent once the segment is complete
//	    Tap-Now: 1763912345678000000     the tap's clock when the request arrived, in nanoseconds
//
// If wait is set, the response is delayed by up to S seconds, until a segment newer than N exists
// or the segment has bytes to send. If the segment has been removed, the status of the response is
// 404. No request modifies the spool.
package tap
