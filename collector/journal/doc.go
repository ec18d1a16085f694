// Package journal records the attempts of a run across its processes. For each attempt it records
// the endpoint, the agent, the server runs and the end. A Journal is the collector.Journal of a run
// in one folder.
//
// # Purpose
//
//	process 1                                    process 2
//	Begin  k/1 at "a"      ┐                     Left(k): Attempts 1,
//	Agent  k/1 agent-7     │ the server works        Open {1, "a", agent-7, run-3}
//	Run    k/1 run-3       ┘                     … takes over agent-7 …
//	        kill -9                              End    k/1 none
//
// The dataset decides which samples are done, not the journal. An attempt without an end is over if
// the dataset has its sample. If an attempt succeeded (class none) but the dataset lacks its
// sample, the sample gets another attempt with the next number. Only the journal records which
// attempt numbers were used, which retries were charged to each sample, and which agents might
// still exist on a server.
//
// # Files
//
//	journal/
//	  00000001.journal     of the first process
//	  00000002.journal     of the second
//
// Each process writes one segment, named after the number of the process. A segment is a file of
// frames (package sink/frame) of kind "journal", version 1.
//
// # Durability
//
// Open syncs the name of the segment, and the name of the folder journal/ in its parent folder. A
// compaction syncs the new file before the rename. It syncs the folder after the rename, and again
// after it has removed the old segments.
//
// A method that records an entry returns after one write to the file. From then on the entry
// survives a crash of the process. The first entry also starts a sync in the background. Each later
// sync starts Config.SyncEvery or more after the start of the previous sync, if there is anything
// to sync. So an entry survives a power cut that comes at least Config.SyncEvery, plus the time of
// one sync, after the entry was written. Close syncs the rest. After a write or sync error, later
// entries and Close fail.
//
// A power cut can lose the last entries. Then an agent must be found by its tags, or the number of
// an attempt that left no other trace is reused. The package comment of collector describes the
// order of entries, samples and their syncs.
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
// A uv is an unsigned varint. A text consists of its length as a uv, followed by its bytes. The
// time is Unix time from the wall clock, which can jump, so only the order in the file counts. The
// key is a sample key: its group as 16 bytes, and its index.
//
// When Open compacts the segments of earlier processes, it writes one sums entry per sample. That
// entry replaces all earlier entries of the sample.
package journal
