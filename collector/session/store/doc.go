// Package store keeps the calls of sessions in files, one file per session.
//
// A session is everything that an agent sends to a model through one URL (package
// collector/session). The tap begins a session, adds its calls and seals it. Then another program,
// or another part of the same program, reads the session and makes rows of it.
//
// # The life of a session
//
//	Begin ──► open ──────────────────────► ending ──────────► sealed ──► Remove, or MaxAge, MaxBytes
//	           │  Admit ─► Add ─► Done       │                   │
//	           │  Admit ─► Done              │  no new call      │  Sealed, Wait, Read
//	           └── removed after MaxAge      └── End waits       └── End again: the same result
//
// [Store.Begin] creates a session and returns its key. The key is a secret. The store keeps only the
// id, which is a hash of the key, in names and files. Each call is admitted first ([Session.Admit]),
// which assigns its number. Then the tap forwards the request. When the answer is complete, or is
// cut off, [Admission.Add] writes the call to the file, before the client has the end of the answer.
// When the client has it, [Admission.Delivered] writes that to the file. [Admission.Done] ends the
// call. A call that never reached a model ends without Add, and its number is then missing in the
// record.
//
// [Session.End] seals the session: it stops the admission, cancels the calls in flight or waits for
// them, writes the end with the number and the digest of the calls, syncs the file and moves it to
// the sealed sessions. Only sealed sessions are listed. The end can be repeated: the same body gets
// the same result, before and after a restart, and a different body gets [ErrConflict].
//
// # Files
//
//	sessions/
//	  lock                                 locked by the process that writes to this folder; contains
//	                                       the number in the last name in sealed/
//	  open/
//	    7c0f…e1.session                    an open session; the name is its id
//	  sealed/
//	    1763912345678000000-19ab…07.session    a sealed session: a number and its id
//	    1763912345678000001-aa52…9c.session
//
// The number is the time of the sealing in nanoseconds since 1970, or the previous number plus one
// if that is higher. So names sort in the order of sealing. A rename moves a session from open/ to
// sealed/. Nothing is written to a file after the rename. A reader that has seen a name never has to
// look for lower names. The name without the extension is the cursor of [Store.Sealed].
//
// # Format
//
// A file consists of frames (package sink/frame) of kind "session", version 1. The number in the
// header of the file is the first half of the id. A payload has one of these forms:
//
//	┌───┬────┬──────┐
//	│ 1 │ id │ JSON │   the head, the first payload: the session's id and its session.Head
//	└───┴────┴──────┘
//	┌───┬──────┐
//	│ 2 │ JSON │        a text: a message or a list of tools; the first text has the index 0
//	└───┴──────┘
//	┌───┬────────┬──────────┬───────┬────────┬─────────┬───────┬───────┬────────┬────────┬──────────┐
//	│ 3 │ number │ messages │ tools │ answer │ spliced │ retry │ model │ unread │ agents │ tap call │
//	└───┴────────┴──────────┴───────┴────────┴─────────┴───────┴───────┴────────┴────────┴──────────┘
//	┌───┬────────┐
//	│ 4 │ number │      the client received the whole answer of the call with this number
//	└───┴────────┘
//	┌───┬──────┐
//	│ 5 │ JSON │        the end, the last payload: the session.End
//	└───┴──────┘
//
// The values of a call are encoded as follows. uv is an unsigned varint, sv a zig-zag varint, and a
// list is 0 if nil, otherwise 1 + length (uv), then the elements:
//
//	number       uv: the number that Admit assigned
//	messages     list of uv: the indexes of the texts of the request's messages
//	tools        sv: the index of the text of the request's tools, or -1
//	answer       list of bytes: the answer's message, as JSON
//	spliced      1 if the prompt was spliced, otherwise 0
//	retry        sv
//	model        length (uv), bytes
//	unread       the same
//	agents       the same twice: the agent and its parent
//	tap call     the rest: a payload of package collector/tap, kind 1
//
// A text is in the file once, before the first call that uses it. The prompt of a call shares the
// tokens of an earlier call in the file, as in the segments of a spool. So the file grows with the
// conversation, and not with the square of its length. In a session of 20 calls with prompts of
// 1,000, 2,000, …, 20,000 tokens, the prompts take 60 KB. Written whole, they would take 600 KB.
//
// The digest is the SHA-256 of all payloads before the end, in the order of the file. Each payload is
// preceded by its length in eight bytes, little-endian.
//
// # Guarantees
//
// A call survives a crash of the process when Add has returned, and a power failure when a sync has
// followed. The store syncs the written files every 100 ms (Config.SyncEvery). A sealed session
// survives a power failure when End has returned.
//
// Either the whole call is in the file or no part of it: a failed write is removed from the file, and
// the next process removes the torn end that a crash leaves. If a write fails, the session continues
// with the next call that can be written. If a sync fails, the session cannot continue in this
// process, because the system can have dropped bytes. The next process writes again what was not yet
// synced, and the session continues with it.
//
// [Store.Read] returns a whole session or an error. A sealed file is read only if every byte belongs
// to a whole frame, and the number and the digest of the calls match the end. Otherwise the error
// wraps [ErrDamaged]. In an open file, a part that was never synced and looks like an interrupted
// write is torn. The store drops it and everything after it. Other damage makes the session unusable:
// Admit, End and Read return ErrDamaged. A damaged file never affects other sessions.
//
// A process that is killed during End leaves the session open, or seals it when the store is opened
// again. A power failure during End can do the same, and a reader can then see a session twice, with
// two names. So a reader must recognize a session by its id.
//
// # Memory and open files
//
// An open session keeps no text in memory, only 16 bytes of the hash of each text. It keeps the
// tokens of the latest calls, packed, for the prompts of the next calls. This takes at most 100 KB
// for a conversation of 20,000 tokens. After five minutes without a call, this memory is released:
// the next call reads the file again, and its prompt is written whole. A file is open only until its
// bytes are synced, and at most about 128 files are open at the same time.
//
// # Over HTTP
//
// [Store.Handler] serves the sealed sessions to a [Remote] on another machine:
//
//	GET /tap/sessions?after=NAME&wait=S    {"version":1,"sessions":[{"name":…,"id":…,"bytes":…,"about":…}]}
//	GET /tap/sessions/ID                   the file of the session, or 404
//
// A list contains sessions with names higher than NAME, at most 10,000 and about 6 MiB. An [About]
// contains the task and the metadata of the session, so that a program need not read the session to
// plan it. If wait is set and there is no such session, the response is delayed by up to S seconds. A
// [Folder] reads the folder on the same machine.
package store
