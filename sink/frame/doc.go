// Package frame implements a format for append-only files that can end anywhere, such as a
// write-ahead log or a journal. After a crash it determines which part of a file is valid, and
// distinguishes the effects of the crash from damage.
//
// # File
//
// A file is a header and frames, without gaps. Numbers are little-endian. One process writes a file
// from its beginning; the next process begins a new file.
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
// The checksum of a frame covers its offset in the file (u64), the bytes 4 to 16, and the payload.
// So a frame that was copied elsewhere, or is inside the payload of another frame, is not accepted.
// Version is the version of the framing. The kind defines the payloads and their version. A reader
// refuses another version of either (ErrNewer).
//
// A mark is a frame without payload that begins with ff 'R' 'S' fe. It is written after a sync and
// records the durable length.
//
// # Torn or corrupt
//
// synced is the durable length of the file when the frame was written. So each frame vouches for
// the earlier synced frames, and a mark vouches for the frames of the last sync:
//
//	offset   32      100     180  200    280     360  380
//	         ┌──────┬───────┬────┬──────┬───────┬────┬──────┐
//	         │  A   │   B   │mark│  C   │   D   │mark│  E   │   A B | C D: two syncs
//	         └──────┴───────┴────┴──────┴───────┴────┴──────┘
//	synced   0       0       180  180    180     360  360
//
//	E ends early                    it was not synced: torn, dropped
//	C is broken                     the second mark vouches for C: corrupt, reported
//	C is broken, and neither the    C and D were perhaps not synced, and a power cut can
//	second mark nor E is whole      keep either: C is torn if it is short or has a sector of
//	                                zeros, and D is accepted
//
// A part is torn, and silently dropped, only if no whole frame vouches for it and it looks like an
// interrupted write: the file ends within a frame, or the part of a 512-byte sector that it
// overlaps is all zeros. A disk writes a whole sector or nothing. So a complete frame with a wrong
// checksum is always damage. If a power cut removes the mark of a sync, the Reader cannot detect
// that sync. Then damage that cuts or zeroes the end of the file looks torn.
//
// [Reader.Ended] reports whether a file ends with a mark that vouches for all earlier frames. A
// writer that continues in another file can make that mark durable first, so that readers can
// require it.
//
// A file can be read while it is written ([NewGrowing]). The reader waits for an incomplete frame at
// the end. It reports damage only if a whole frame follows.
package frame
