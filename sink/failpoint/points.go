package failpoint

// A Name is the name of a step.
type Name string

// The steps, in the order in which a run reaches them.
const (
	RecoverStarted  Name = "recover.started"  // the log is read, nothing is changed
	RecoverOrphans  Name = "recover.orphans"  // leftovers are removed or set aside
	RecoverReplayed Name = "recover.replayed" // the samples of the write-ahead log are committed
	RecoverDone     Name = "recover.done"     // the write-ahead log is empty

	WALWritten Name = "wal.written" // a sample is in the file, but not durable
	WALSynced  Name = "wal.synced"  // the sample is durable, but not reported
	WALAcked   Name = "wal.acked"   // Append returns
	WALDeleted Name = "wal.deleted" // a segment is deleted

	ShardCreated   Name = "shard.created"
	ShardWritten   Name = "shard.written"
	ShardSynced    Name = "shard.synced"
	ShardVerified  Name = "shard.verified"
	ShardRenamed   Name = "shard.renamed"
	ShardDirSynced Name = "shard.dir_synced"

	CommitWritten Name = "commit.written" // the entry is durable under a temporary name
	CommitLinked  Name = "commit.linked"  // the entry has its name
	CommitSynced  Name = "commit.synced"  // the name is durable

	JournalBegin Name = "journal.begin" // the attempt is recorded, but has no agent
	JournalAgent Name = "journal.agent" // the attempt's agent is recorded
	JournalRun   Name = "journal.run"   // a server run of the attempt is recorded
	JournalEnd   Name = "journal.end"   // the end of the attempt is recorded, but its agent still exists
)

// Additional steps of runs with Config.CommitGroups.
const (
	RecoverKept Name = "recover.kept" // samples that wait for their group are in a segment of their own

	MergeStarted   Name = "merge.started"   // the entries are chosen, nothing is written
	MergeWritten   Name = "merge.written"   // the merged shards are durable, no entry names them
	MergeCommitted Name = "merge.committed" // the entry is durable, the replaced files are not moved yet
	MergeMoving    Name = "merge.moving"    // one replaced shard is moved
	MergeMoved     Name = "merge.moved"     // all replaced shards are moved, but no entry
)

// GroupNames returns the additional steps of runs with Config.CommitGroups.
func GroupNames() []Name {
	return []Name{RecoverKept, MergeStarted, MergeWritten, MergeCommitted, MergeMoving, MergeMoved}
}

// Names returns the steps that every run has, for tests that kill at each step.
func Names() []Name {
	return []Name{
		RecoverStarted, RecoverOrphans, RecoverReplayed, RecoverDone,
		WALWritten, WALSynced, WALAcked, WALDeleted,
		ShardCreated, ShardWritten, ShardSynced, ShardVerified, ShardRenamed, ShardDirSynced,
		CommitWritten, CommitLinked, CommitSynced,
		JournalBegin, JournalAgent, JournalRun, JournalEnd,
	}
}
