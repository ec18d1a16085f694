// Package frame is the format of files that are only ever appended to and may end
// anywhere: a write-ahead log, a journal. It finds out what of such a file can be
// believed after a crash, and tells what a crash can do from what it cannot.
//
// # File
//
// A file is a header and frames, without gaps. Numbers are little-endian. A file is
// written by one process, from its beginning: the next process begins a new one.
//
//	header, 32 bytes                         frame, 20 bytes and its payload
//	┌────┬──────────────────────────────┐    ┌────┬──────────────────────────────┐
//	│  0 │ "rollout" 1a                 │    │  0 │ mark ff 'R' 'L' fe           │
//	│  8 │ kind, 8 bytes, padded with 0 │    │  4 │ length of the payload, u32   │
//	│ 16 │ version of the framing, u16  │    │  8 │ synced, u64                  │
//	│ 18 │ version of the kind, u16     │    │ 16 │ CRC-32C, u32                 │
//	│ 20 │ number of the file, u64      │    │ 20 │ payload                      │
//	│ 28 │ CRC-32C of 0 to 28, u32      │    └────┴──────────────────────────────┘
//	└────┴──────────────────────────────┘
//
// The checksum of a frame is over its offset in the file (u64), the bytes 4 to 16,
// and the payload: a frame that was copied elsewhere, or lies in the payload of
// another, is not taken for a frame. The framing has Version; what the payloads mean, and their
// version, is for the kind to say. A reader refuses a newer version of either
// (ErrNewer).
//
// A mark is a frame without payload that begins with ff 'R' 'S' fe. It is written after
// a sync, and only says what is durable. Marks and the number came with version 2 of the
// framing; version 1 is still read.
//
// # What is believed
//
// synced is the length of the file up to which it was durable when the frame was
// written. So each frame vouches for those before it, and a mark for the last ones:
//
//	offset   32      100     180  200    280     360  380
//	         ┌──────┬───────┬────┬──────┬───────┬────┬──────┐
//	         │  A   │   B   │mark│  C   │   D   │mark│  E   │   A B | C D: two syncs
//	         └──────┴───────┴────┴──────┴───────┴────┴──────┘
//	synced   0       0       180  180    180     360  360
//
//	E ends early                    it was not synced: torn, dropped
//	C is broken                     the second mark says that C was durable: corrupt, loud
//	C is broken, and neither the    C and D may have been written only, and a power cut may
//	second mark nor E is whole      keep either: C is torn if it is short or has a sector of
//	                                zeros, and D is taken
//
// So a part is torn, and dropped without a word, only if no frame that is whole says that
// it was durable, and it is what a stop leaves behind: the file ends within a frame, or a
// sector of 512 bytes is all zeros, as far as it lies in the part. A disk writes a sector
// or it does not; a frame that is all there and whose checksum is wrong is damage wherever
// it is. A sync of which the power cut left no mark cannot be told from none: a file that
// is cut at its end, or zeroed there, looks torn.
//
// Ended reports whether a file ends with a mark for all of it. A writer that continues in
// another file can make that mark durable first, and its readers can then expect it.
//
// A file can be read while it is written ([NewGrowing]): what stands at its end and is not
// a whole frame is waited for, and is damage only once a whole frame stands behind it.
package frame
