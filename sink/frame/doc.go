// Package frame is the format of files that are only ever appended to and may end
// anywhere: a write-ahead log, a journal. It finds out what of such a file can be
// believed after a crash, and tells what a crash can do from what it cannot.
//
// # File
//
// A file is a header and frames, without gaps. Numbers are little-endian. A file is
// written by one process, from its beginning: whoever continues begins a new one.
//
//	header, 32 bytes                         frame, 20 bytes and its payload
//	┌────┬──────────────────────────────┐    ┌────┬──────────────────────────────┐
//	│  0 │ "rollout" 1a                 │    │  0 │ mark ff 'R' 'L' fe           │
//	│  8 │ kind, 8 bytes, padded with 0 │    │  4 │ length of the payload, u32   │
//	│ 16 │ version of the framing, u16  │    │  8 │ synced, u64                  │
//	│ 18 │ version of the kind, u16     │    │ 16 │ CRC-32C, u32                 │
//	│ 20 │ 0, 8 bytes                   │    │ 20 │ payload                      │
//	│ 28 │ CRC-32C of 0 to 28, u32      │    └────┴──────────────────────────────┘
//	└────┴──────────────────────────────┘
//
// The checksum of a frame is over its offset in the file (u64), the bytes 4 to 16,
// and the payload: a frame that was copied elsewhere, or lies in the payload of
// another, is none. The framing has Version; what the payloads mean, and their
// version, is for the kind to say. A reader refuses a newer version of either
// (ErrNewer).
//
// # What is believed
//
// synced is the length of the file up to which it was durable when the frame was
// written. So each frame vouches for those before it:
//
//	offset   32      100     180     260     330
//	         ┌──────┬───────┬───────┬───────┬───────┐
//	         │  A   │   B   │   C   │   D   │   E   │   A B | C D | E: three syncs
//	         └──────┴───────┴───────┴───────┴───────┘
//	synced   0       0       180     180     330
//
//	E ends early, or is broken      it was not synced: torn, dropped
//	C is broken, E is whole         E says that C was durable: corrupt, loud
//	C is broken, D is whole, no E   C and D were not synced, and a power cut may
//	                                keep either: C is torn, D is taken
//
// Nothing vouches for the last frames, so damage done to them later looks torn. A
// tail of zeros, which some file systems leave, is torn as well.
package frame
