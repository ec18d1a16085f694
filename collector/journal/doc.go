// Package journal keeps the attempts of a run beyond the life of its processes: which
// were begun, where, with which agent and which runs of the server, and how they ended.
// A Journal is the collector.Journal of a run that lives in one folder.
//
// # What it is for
//
//	process 1                                    process 2
//	Begin  k/1 at "a"      ┐                     Left(k): Attempts 1,
//	Agent  k/1 agent-7     │ the server works        Open {1, "a", agent-7, run-3}
//	Run    k/1 run-3       ┘                     … takes agent-7 over …
//	        kill -9                              End    k/1 none
//
// The dataset decides which samples are done, not the journal. An attempt without an end
// is over if the dataset has its sample. If an attempt ended well (class none) but the
// dataset lacks its sample, the sample gets another attempt, under the next number. Only the
// journal knows which numbers were given, what the samples were charged, and what may still
// live on a server.
//
// # Files
//
//	journal/
//	  00000001.journal     of the first process
//	  00000002.journal     of the second
//
// Each process writes one segment, which is named by the number of the process. A segment
// is a file of frames (package sink/frame) of kind "journal", version 1.
//
// # What is durable when
//
// Open syncs the name of the segment, and of the folder journal/ in its parent. If it compacts,
// it first syncs the new file, then the folder after the rename, and again after the old
// segments are removed.
//
// A method that notes something returns after one write to the file: from then on the entry
// survives a crash of the process. The first entry also starts a sync, in the background.
// Each later sync begins Config.SyncEvery after the one before it, if there is anything to
// sync. So an entry survives a power cut after Config.SyncEvery and the time of one sync.
// Close syncs what is left. After an error of a write or a sync every method fails.
//
// A power cut may take the last entries. What is lost by that is small: an agent must be
// found by its tags, or a number is given again to an attempt of which nothing else is
// left. The package comment of collector has the order of notes, samples and their syncs.
//
// # Entries
//
//	┌────┬───────────┬──────────────────┬──────────────┬───────────────┐
//	│ op │ time      │ key              │ attempt      │ fields of op  │
//	│ 1  │ ms, uv    │ 16 bytes, uv     │ uv           │               │
//	└────┴───────────┴──────────────────┴──────────────┴───────────────┘
//
//	op 1  begin   kind (1 byte), endpoint (text)
//	op 2  agent   id (text)
//	op 3  run     id (text)
//	op 4  end     charged (1 byte: 0, 1), class (text: its name)
//	op 5  sums    charged (uv), data retries (uv); attempt is the last number
//
// A uv is an unsigned varint. A text is its length as a uv, and its bytes. The time is Unix
// time by the wall clock, which may jump: the order of entries is their order in the file.
// The key is a sample key: its group as 16 bytes, and its index.
//
// When Open compacts the segments of earlier processes, it writes one sums entry for each
// sample. That entry replaces everything that came before for its sample.
package journal
