// Package journal records the attempts of a run across its processes. For each attempt it records
// the endpoint, the agent, the server runs and the end. A [Journal] implements collector.Journal
// and keeps the files of one run in one folder.
//
// # Purpose
//
//	process 1                                    process 2
//	Begin  k/1 at "a"      ┐                     Left(k): Attempts 1,
//	Agent  k/1 agent-7     │ the server works        Open {1, "a", agent-7, run-3}
//	Run    k/1 run-3       ┘                     … takes over agent-7 …
//	        kill -9                              End    k/1 none
//
// The dataset, not the journal, decides which samples are done. An attempt whose end is not in the
// journal still counts as ended if the dataset contains its sample. If an attempt succeeded (class
// none) but the dataset lacks its sample, the sample gets another attempt with the next number.
// Only the journal records which attempt numbers were used, which retries were charged to each
// sample, and which agents might still exist on a server.
//
// # Files
//
//	journal/
//	  00000001.journal     written by the first process
//	  00000002.journal     written by the second process
//
// Each process writes one segment, named after the number of the process. A segment is a file in
// the format of package sink/frame, with the kind "journal" and version 1.
//
// # Durability
//
// Open makes the name of the new segment and the name of the folder journal/ durable. A compaction
// syncs the new file before the rename. It syncs the folder after the rename, and again after it
// has removed the old segments.
//
// A method that records an entry returns after one write to the file. From then on the entry
// survives a crash of the process. The first entry also starts a sync in the background. Later
// syncs start at least Config.SyncEvery apart, and only if there is anything to sync. So an entry
// is normally durable after Config.SyncEvery plus the duration of one sync. Close syncs the rest.
// After a failed write or sync, Close and all methods that record an entry fail.
//
// A power failure can lose the last entries. If the entry for an agent is lost, the next process
// must find the agent by its tags. If all entries of an attempt are lost, the next attempt reuses
// its number. The package comment of collector describes the order in which entries and samples are
// written and synced.
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
// A uv is an unsigned varint. A text field consists of its length as a uv, followed by its bytes.
// The time is Unix time from the wall clock. This clock can jump, so only the order of the entries
// in the file counts. The key is a sample key: its group as 16 bytes, and its index as a uv.
//
// When Open compacts the segments of earlier processes, it writes one sums entry per sample. That
// entry replaces all earlier entries of the sample.
package journal
