// Package journal remembers the attempts of a run beyond the life of its processes:
// which were begun, where, with which agent and which runs of the server, and how
// they ended. It is the collector.Journal of a run that keeps one folder.
//
// # What it is for
//
//	process 1                                    process 2
//	Begin  k/1 at "a"      ┐                     Left(k): Attempts 1,
//	Agent  k/1 agent-7     │ the server works        Open {1, "a", agent-7, run-3}
//	Run    k/1 run-3       ┘                     … agent-7 is taken over …
//	        kill -9                              End    k/1 none
//
// The journal is not the truth about samples: the dataset is. An attempt without an
// end whose sample the dataset has is over, and one with the end "none" whose sample
// the dataset lacks is made again, under the next number. What the journal alone
// knows is which numbers were given, what was paid for them, and what may live on a
// server.
//
// # Files
//
//	journal/
//	  00000001.journal     of the first process
//	  00000002.journal     of the second
//
// Each process writes a segment of its own, named by its number: a file of frames
// (package sink/frame), of kind "journal", version 1. An entry is written by one
// write before the method returns, so that it outlives the process; a goroutine syncs
// what was written, so that within Config.SyncEvery and the time of one sync it
// outlives the machine. After a power cut the last entries may be missing. What that
// costs is an agent that has to be found by its tags, or a number that is given
// again to an attempt of which nothing else is left.
//
// # Entries
//
//	┌────┬───────────┬──────────────────┬──────────────┬───────────────┐
//	│ op │ time      │ key              │ attempt      │ what op says  │
//	│ 1  │ ms, uv    │ 16 bytes, uv     │ uv           │               │
//	└────┴───────────┴──────────────────┴──────────────┴───────────────┘
//
//	op 1  begin   kind (1 byte), endpoint (text)
//	op 2  agent   id (text)
//	op 3  run     id (text)
//	op 4  end     charged (1 byte: 0, 1), class (text: its name)
//	op 5  sums    charged (uv), rerolled (uv); attempt is the last number
//
// uv is an unsigned varint, a text its length as uv and its bytes. time is Unix time
// by the wall clock, which may jump. The key is a sample key: its group as 16 bytes,
// and its index. sums is written when segments are compacted, and replaces all that
// came before for its sample.
package journal
