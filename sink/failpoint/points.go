package failpoint

// A Name is the name of a step.
type Name string

// The steps, in the order in which a run comes to them.
const (
	RecoverStarted  Name = "recover.started"  // the log is read, nothing is changed
	RecoverOrphans  Name = "recover.orphans"  // leftovers are removed or set aside
	RecoverReplayed Name = "recover.replayed" // what the write-ahead log held is committed
	RecoverDone     Name = "recover.done"     // the write-ahead log holds nothing else

	WALWritten Name = "wal.written" // a sample is in the file, and not durable
	WALSynced  Name = "wal.synced"  // it is durable, and nobody knows
	WALAcked   Name = "wal.acked"   // Append returns
	WALDeleted Name = "wal.deleted" // a segment is gone

	ShardCreated   Name = "shard.created"
	ShardWritten   Name = "shard.written"
	ShardSynced    Name = "shard.synced"
	ShardVerified  Name = "shard.verified"
	ShardRenamed   Name = "shard.renamed"
	ShardDirSynced Name = "shard.dir_synced"

	CommitWritten Name = "commit.written" // the entry is durable under a temporary name
	CommitLinked  Name = "commit.linked"  // it has its own
	CommitSynced  Name = "commit.synced"  // which is durable

	JournalBegin Name = "journal.begin" // an attempt is noted, and no agent made
	JournalAgent Name = "journal.agent" // its agent is
	JournalRun   Name = "journal.run"   // a server run of it is
	JournalEnd   Name = "journal.end"   // its end is, and the agent is there
)

// The steps of runs that commit whole groups, beside those of all runs.
const (
	RecoverKept Name = "recover.kept" // what waits for its group is in a segment of its own

	MergeStarted   Name = "merge.started"   // the entries are chosen, nothing is written
	MergeWritten   Name = "merge.written"   // the merged shards are durable, no entry names them
	MergeCommitted Name = "merge.committed" // the entry is durable, what it replaces lies where it was
	MergeMoving    Name = "merge.moving"    // a replaced shard was moved
	MergeMoved     Name = "merge.moved"     // all shards were, and no entry
)

// GroupNames returns the names of the steps of runs that commit whole groups.
func GroupNames() []Name {
	return []Name{RecoverKept, MergeStarted, MergeWritten, MergeCommitted, MergeMoving, MergeMoved}
}

// Names returns the names of the steps of all runs: a test goes through them.
func Names() []Name {
	return []Name{
		RecoverStarted, RecoverOrphans, RecoverReplayed, RecoverDone,
		WALWritten, WALSynced, WALAcked, WALDeleted,
		ShardCreated, ShardWritten, ShardSynced, ShardVerified, ShardRenamed, ShardDirSynced,
		CommitWritten, CommitLinked, CommitSynced,
		JournalBegin, JournalAgent, JournalRun, JournalEnd,
	}
}
