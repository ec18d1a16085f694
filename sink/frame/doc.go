// Package frame implements a format for append-only files that a crash can cut off anywhere, such
// as a write-ahead log or a journal. After a crash, the package determines which part of a file is
// valid. It distinguishes the effects of a crash from damage.
//
// # File
//
// A file consists of a header and frames, without gaps. Numbers are little-endian. Each file is
// written by one process at a time. The next process starts a new file, or it truncates the torn
// end of the file and then appends to the file ([Continue]).
//
//	header, 32 bytes                         frame, 20 bytes and its payload
//	┌────┬──────────────────────────────┐    ┌────┬──────────────────────────────┐
//	│  0 │ "rollout" 1a                 │    │  0 │ ff 'R' 'L' fe                │
//	│  8 │ kind, 8 bytes, padded with 0 │    │  4 │ length of the payload, u32   │
//	│ 16 │ version of the framing, u16  │    │  8 │ synced, u64                  │
//	│ 18 │ version of the kind, u16     │    │ 16 │ CRC-32C, u32                 │
//	│ 20 │ number of the file, u64      │    │ 20 │ payload                      │
//	│ 28 │ CRC-32C of 0 to 28, u32      │    └────┴──────────────────────────────┘
//	└────┴──────────────────────────────┘
//
// The checksum of a frame covers the frame's offset in the file (u64), bytes 4 to 15 of the frame,
// and the payload. A Reader therefore does not accept a frame that was copied to a different
// offset, or that is inside the payload of another frame. [Version] is the version of the framing.
// The version of the kind is the version of the payload format. A Reader refuses a file if either
// version differs from the expected version (ErrNewer).
//
// A mark is a frame without a payload. It begins with ff 'R' 'S' fe. The Writer writes a mark after
// a sync to record the durable length of the file.
//
// # Torn or corrupt
//
// The field synced is the durable length of the file at the time the frame was written. A whole
// frame therefore vouches for the earlier frames: it proves that all frames up to that length were
// durable. A mark vouches for the frames that the last sync made durable:
//
//	offset   32      100     180  200    280     360  380
//	         ┌──────┬───────┬────┬──────┬───────┬────┬──────┐
//	         │  A   │   B   │mark│  C   │   D   │mark│  E   │   A B | C D: two syncs
//	         └──────┴───────┴────┴──────┴───────┴────┴──────┘
//	synced   0       0       180  180    180     360  360
//
//	E is cut short                  no frame vouches for E: torn, dropped
//	C is broken                     the second mark vouches for C: corrupt, reported
//	C is broken, and neither the    C and D might not have been synced, and a power failure can
//	second mark nor E is whole      preserve D without C: C is torn if it is short or has a sector
//	                                of zeros, and D is accepted
//
// A part of a file is torn only if no whole frame vouches for it and it looks like an interrupted
// write. That is the case if the file ends within a frame, or if the part contains only zeros in
// one of the 512-byte sectors that it overlaps. The caller can drop a torn part. A disk writes a
// whole sector or nothing. Therefore, a complete frame that has a wrong checksum and no sector of
// zeros is always damaged. If a power failure removes the mark of a sync, the Reader cannot detect
// that sync. In this case, damage that cuts off or zeroes the end of the file looks like a torn
// part.
//
// [Reader.Ended] reports whether a file ends with a mark that vouches for all earlier frames.
// Before a writer continues in another file, it can make the last mark of the current file durable.
// Readers can then require this mark.
//
// A file can be read while it is being written ([NewGrowing]). The Reader then treats an incomplete
// frame at the end of the file as a write in progress. It reports an incomplete frame as damage
// only if a whole frame follows.
package frame
