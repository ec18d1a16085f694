// Package tap keeps what the inference engine saw and what it sampled.
//
// `rollout tap` stands between a Letta server and its engines. It passes each request on
// and keeps one [Call] of each generation: the ids that the engine was given, the ids that
// it sampled, with their log-probabilities, and what was really used to sample them. A
// collection that finds its calls there has the engine's own prompts. Its rows are exact.
//
// # The parts
//
//	package tap               Call, the spool that keeps calls, and its readers
//	package tap/proxy         the proxy: dialects of engines, balance, health
//	package tap/continuity    whose tokens are the prompt of the next call
//	package prompt            the source tap: which of the calls belong to a sample
//
// # The way of a call
//
//	server ─► proxy ─► engine
//	            │
//	            └─► Spool ─► segments on disk ─► Reader ─► Index ─► prompts of a sample
//	                             │                 ▲
//	                             └──── HTTP ───────┘
//
// The tap knows no agent: the server's request carries ids and sampling parameters, and
// nothing else. See the Index for how a call is found all the same.
//
// # The spool
//
//	spool/
//	  lock                  held by the tap that writes here
//	  1763912345678.tap     a segment
//	  1763912399001.tap     the next one: the open one, if a tap writes
//
// A [Spool] keeps calls in a folder, as files that are only appended to. A segment is named
// by its number: the time when it was begun, in milliseconds since 1970, or one more than the
// number before. The next segment begins when one has SpoolConfig.SegmentBytes, is an hour
// old, or could not be written; a process never goes on with a segment of another. A segment
// is ended before the next one is begun. The oldest are removed when all have
// SpoolConfig.MaxBytes, or when their last call is older than SpoolConfig.MaxAge; the open
// one never is.
//
// [Spool.Add] copies the call into a queue, which is bounded by bytes, and does not wait for
// the disk. One goroutine writes what is in the queue. From then on readers see it, and it
// survives the end of the process. A sync begins every 100 ms where there is something to
// sync, and runs beside the writing: it survives a power cut after that.
//
// Where a write or a sync fails, half of a frame is cut off, the segment is left, and a new
// one is tried every second. Calls wait in the queue meanwhile, and are dropped once it is
// full. No call is written twice: one whose write failed is not in the file.
//
// # Format
//
// A segment is a file of frames (package sink/frame) of kind "tap", version 1; its header has
// the number of the segment. A payload is one of
//
//	┌───┬────────┬──────┬───────┬─────────┬───────┬───────┬───┬────────┬───────┬────────┬──────────┬──────────┐
//	│ 1 │ number │ keep │ added │ dropped │ began │ ended │ … │ prompt │ asked │ output │ logprobs │ versions │
//	└───┴────────┴──────┴───────┴─────────┴───────┴───────┴───┴────────┴───────┴────────┴──────────┴──────────┘
//	┌───┬───────┬─────────┐
//	│ 2 │ added │ dropped │    a tick: every call that was added before then stands before
//	└───┴───────┴─────────┘
//	┌───┬────────┬─────────┐
//	│ 3 │ number │ process │    the head, first of all: the number of the segment before, or 0;
//	└───┴────────┴─────────┘    when the process that writes began, in nanoseconds since 1970
//	┌───┬────────┐
//	│ 4 │ closed │              the end: 1 if the process had nothing more to write, or else 0
//	└───┴────────┘
//
// with the other fields of [Call] in their order, those of [Sampling] last, before the prompt:
//
//	uv           unsigned varint; signed numbers are zig-zag varints, sv
//	text         length (uv), bytes
//	list         0 if nil, else 1 + length (uv), and the elements
//	ids          a list of uv; the id as 32 bits
//	pointer      0 if nil, else 1 and the value; a float64 has eight bytes, little-endian
//	number       uv: of the call in this segment, from 1. A gap tells of lost calls
//	keep         uv: no later call begins like one that is more than so many before this one
//	added        uv: nanoseconds since 1970 by the clock of the tap; never less than before
//	dropped      uv: calls that were not kept, and would have come before this one and after
//	             the last segment of the same process
//	began, ended seconds after added (sv), nanoseconds (uv)
//	cut          0 or 1
//	prompt       list: the length; how many tokens are those of an earlier call (uv); if there
//	             are any: which one, as the distance of the numbers (uv), and the checksum
//	             of the whole prompt (8 bytes); the other ids
//	asked        list: the length; how many ids are those that prompt begins with (uv), and
//	             ends with (uv); the ids in between
//	logprobs     list of float32: four bytes, little-endian; a NaN keeps its bits
//	versions     list of spans: the version (text), start and end (sv)
//
// The calls of a chain repeat their prompts: each is the one before, its output, and what is
// new. So a prompt may begin with the tokens of an earlier call of the segment, its prompt
// and then its output:
//
//	call 7      p p p p p p p p o o o        written whole
//	call 9      = = = = = = = = = = = t t t  11 tokens of call 7, and 3
//
// The earlier call is the one before in the chain, or one that was written whole. At most 16
// chains begin like one of those. So what is lost with a damaged frame is bounded: the rest
// of one chain, or of 16. A chain of 8 calls with 4,000 tokens of prompt and 100 of output
// costs 1 KB for each call after the first, where it would be 20 KB with four bytes per token.
//
// Both sides keep the tokens of the latest calls, 8 Mi at most, in some 18 MiB (window, IDs). A
// call that is the next one of another takes its place there; beyond that the oldest go.
//
// # Reading
//
// A [Reader] returns the calls in the order in which they were added, and follows: it goes
// on where a segment ends and the next one is there. Frames that are damaged are passed over
// and counted, with the calls that begin like theirs; so is a torn end of a tap that was
// killed. Nothing is decoded from a frame whose checksum is wrong, or with a beginning that
// is not known. A segment of a newer version ends the Reader with an error.
//
// Ticks say how far everything is there: the Reader's [Reader.Horizon]. One is written every
// 25 ms in the first second after a call, every 200 ms in the next nine, and then every second.
// Whoever has the server's answer to a call, and a horizon behind that moment, has read the
// call, or the Reader has counted that calls are missing. The collection needs to wait no
// longer. Where no process holds the lock, nothing more comes at all: a Reader of the folder
// looks for that when it has nothing to read.
//
// What is missing is always told: calls that were dropped by their number; calls in a damaged
// place by the numbers of the others; calls that a killed process had not written by the end
// that its segment does not have, or by the process in the next head; segments that were
// removed too early by the number in the next head.
//
// # Over HTTP
//
// [Spool.Handler] serves a spool to Readers on other machines:
//
//	GET /tap/segments?after=N&wait=S     {"version":1,"segments":[{"number":…,"bytes":…,"open":true}]}
//	GET /tap/segments/N?wait=S           the bytes of a segment, 1 MiB at most
//	    Range: bytes=1000-               from there on: 206; nothing there: 416
//	    Tap-Final: 123456                nothing more is written to it: so long it is
//	    Tap-Now: 1763912345678000000     the tap's clock when the request came, in nanoseconds
//
// With wait, an answer is held back up to so many seconds, until there is a segment newer than
// N, or there are bytes. A segment that was removed is 404. The requests change nothing.
package tap
