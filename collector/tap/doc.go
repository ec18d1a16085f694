// Package tap records the calls that pass between a Letta server and its inference engines.
//
// `rollout tap` is a proxy between a Letta server and its engines. It forwards each request and
// keeps one [Call] for each generation: the ids that the engine got, the ids that it sampled, their
// log-probabilities, and the sampling parameters that were really used. A collection that finds its
// calls here has the engine's own prompts, so its rows are `exact`.
//
// # The parts
//
//	package tap               Call, the spool that keeps calls, and its readers
//	package tap/proxy         the proxy: engine dialects, load balancing, health
//	package tap/continuity    replaces re-rendered turns in prompts by the sampled tokens
//	package prompt            the source tap: which calls belong to a sample
//
// # The path of a call
//
//	server ─► proxy ─► engine
//	            │
//	            └─► Spool ─► segments on disk ─► Reader ─► Index ─► prompts of a sample
//	                             │                 ▲
//	                             └──── HTTP ───────┘
//
// The tap does not see agents: a server's request carries only ids and sampling parameters. Index
// finds a rollout's calls by their tokens.
//
// # The spool
//
//	spool/
//	  lock                  held by the tap that writes here
//	  1763912345678.tap     a segment
//	  1763912399001.tap     the newest segment; open while a tap writes
//
// A [Spool] keeps calls in a folder of append-only files. A segment's number is its start time in
// milliseconds since 1970, or the previous number plus one if that is higher. The next segment
// begins when the open segment reaches SpoolConfig.SegmentBytes, is an hour old, or cannot be
// written. A process never appends to another process's segment. A segment is ended before the next
// one begins. The oldest segments are removed when the spool exceeds SpoolConfig.MaxBytes or their
// last call is older than SpoolConfig.MaxAge. The open segment is never removed.
//
// [Spool.Add] copies the call into a queue that is bounded in bytes. It does not wait for the disk.
// One goroutine writes the queue. A written call is visible to readers and survives the end of the
// process. A sync runs beside the writes every 100 ms if there is something to sync. A synced call
// survives a power failure.
//
// If a write or a sync fails, the spool truncates the partial frame, leaves the segment, and tries
// a new segment every second. Calls wait in the queue meanwhile, and are dropped once it is full.
// No call is written twice: if its write failed, it is not in the file.
//
// # Format
//
// A segment is a file of frames (package sink/frame) of kind "tap", version 1. Its header has the
// segment's number. A payload is one of
//
//	┌───┬────────┬──────┬───────┬─────────┬───────┬───────┬───┬────────┬───────┬────────┬──────────┬──────────┐
//	│ 1 │ number │ keep │ added │ dropped │ began │ ended │ … │ prompt │ asked │ output │ logprobs │ versions │
//	└───┴────────┴──────┴───────┴─────────┴───────┴───────┴───┴────────┴───────┴────────┴──────────┴──────────┘
//	┌───┬───────┬─────────┐
//	│ 2 │ added │ dropped │    a tick: every call added before this time is in an earlier payload
//	└───┴───────┴─────────┘
//	┌───┬────────┬─────────┐
//	│ 3 │ number │ process │    the head, the first payload: the number of the previous segment, or
//	└───┴────────┴─────────┘    0; the start time of the writing process, in nanoseconds since 1970
//	┌───┬────────┐
//	│ 4 │ closed │              the end: 1 if the process has nothing more to write, otherwise 0
//	└───┴────────┘
//
// with the other fields of [Call] in their order; the [Sampling] fields come last, before the
// prompt:
//
//	uv           unsigned varint; sv: a signed number as a zig-zag varint
//	text         length (uv), bytes
//	list         0 if nil, otherwise 1 + length (uv), then the elements
//	ids          a list of uv; each id as 32 bits
//	pointer      0 if nil, otherwise 1 and the value; a float64 has eight bytes, little-endian
//	number       uv: the call's number in this segment, from 1. A gap means lost calls
//	keep         uv: no later call begins like a call more than this many numbers before this one
//	added        uv: nanoseconds since 1970 by the tap's clock; never decreases
//	dropped      uv: how many calls the spool dropped before this one and after the process's
//	             previous segment
//	began, ended seconds after added (sv), nanoseconds (uv)
//	cut          0 or 1
//	prompt       list: the length; how many tokens are shared with an earlier call (uv); if any:
//	             that call, as the difference of the numbers (uv), and the checksum
//	             of the whole prompt (8 bytes); the other ids
//	asked        list: the length; how many ids it shares with the prompt's beginning (uv) and
//	             with its end (uv); the ids in between
//	logprobs     list of float32: four bytes, little-endian; a NaN keeps its bits
//	versions     list of spans: the version (text), start and end (sv)
//
// The calls of a chain repeat their prompts: each prompt is the previous prompt, its output, and
// new tokens. So a prompt can begin with the tokens of an earlier call of the segment (its prompt
// and then its output):
//
//	call 7      p p p p p p p p o o o        written whole
//	call 9      = = = = = = = = = = = t t t  11 tokens of call 7, and 3
//
// The earlier call is the previous call of the chain, or a call that was written whole. At most 16
// chains begin like one whole call. So a damaged frame loses at most the rest of one chain, or of
// 16 chains. A chain of 8 calls with 4,000 prompt tokens and 100 output tokens costs 1 KB for each
// call after the first, instead of 20 KB with four bytes per token.
//
// Encoder and decoder keep the tokens of the latest calls: at most 8 Mi tokens in about 18 MiB
// (window, IDs). A call that continues another call replaces it there. Otherwise the oldest calls
// are dropped.
//
// # Reading
//
// A [Reader] returns the calls in the order in which they were added. At the end of a segment it
// continues with the next one. It skips and counts damaged frames, the calls that begin like calls
// in damaged frames, and the torn end of a tap that was killed. It decodes nothing from a frame
// whose checksum is wrong, and no call whose shared beginning is unknown. A segment of a newer
// version ends the Reader with an error.
//
// Ticks move the Reader's horizon ([Reader.Await]), up to which it has read everything. A tick is
// written every 25 ms in the first second after a call, every 200 ms in the next nine seconds, and
// then every second. If the horizon is later than the server's answer to a call, the Reader has
// returned the call or counted missing calls. The collection does not need to wait longer. If no
// process holds the lock, no more calls will come. A Reader of the folder checks the lock when it
// has nothing to read.
//
// Missing calls are always counted. The count comes from:
//
//	dropped calls              their number in the next payload
//	calls in a damaged place   the numbers of the other calls
//	calls of a killed tap      the missing end of its segment, or the process in the next head
//	segments removed early     the previous number in the next head
//
// # Over HTTP
//
// [Spool.Handler] serves a spool to Readers on other machines:
//
//	GET /tap/segments?after=N&wait=S     {"version":1,"segments":[{"number":…,"bytes":…,"open":true}]}
//	GET /tap/segments/N?wait=S           the bytes of a segment, at most 1 MiB
//	    Range: bytes=1000-               from this offset: 206; no bytes there: 416
//	    Tap-Final: 123456                the final length; sent once the segment is complete
//	    Tap-Now: 1763912345678000000     the tap's clock when the request came, in nanoseconds
//
// With wait, the answer is delayed up to S seconds, until there is a segment newer than N, or there
// are bytes. A removed segment is 404. The requests change nothing.
package tap
