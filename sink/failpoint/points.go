package failpoint

// A Name is the name of a step.
type Name string

// Every run reaches these steps.
const (
	RecoverStarted  Name = "recover.started"  // the log has been read, but nothing has been changed
	RecoverOrphans  Name = "recover.orphans"  // leftovers have been removed or set aside
	RecoverReplayed Name = "recover.replayed" // the samples of the write-ahead log are committed
	RecoverDone     Name = "recover.done"     // the write-ahead log is empty

	WALWritten Name = "wal.written" // a sample is in the file but not yet durable
	WALSynced  Name = "wal.synced"  // the sample is durable, but Append cannot return yet
	WALAcked   Name = "wal.acked"   // Append can return
	WALDeleted Name = "wal.deleted" // a segment is deleted

	ShardCreated   Name = "shard.created"
	ShardWritten   Name = "shard.written"
	ShardSynced    Name = "shard.synced"
	ShardVerified  Name = "shard.verified"
	ShardRenamed   Name = "shard.renamed"
	ShardDirSynced Name = "shard.dir_synced"

	CommitWritten Name = "commit.written" // the entry is durable under a temporary name
	CommitLinked  Name = "commit.linked"  // the entry has its final name
	CommitSynced  Name = "commit.synced"  // the final name is durable

	JournalBegin Name = "journal.begin" // the attempt is recorded, but has no agent yet
	JournalAgent Name = "journal.agent" // the attempt's agent is recorded
	JournalRun   Name = "journal.run"   // a server run of the attempt is recorded
	JournalEnd   Name = "journal.end"   // the end of the attempt is recorded, but its agent still exists
)

// Only runs with Config.CommitGroups reach these steps.
const (
	RecoverKept Name = "recover.kept" // samples of incomplete groups are in a separate segment

	MergeStarted   Name = "merge.started"   // the entries have been chosen, but nothing has been written
	MergeWritten   Name = "merge.written"   // the merged shards are durable, but no entry names them
	MergeCommitted Name = "merge.committed" // the entry is durable, but the replaced files have not yet been moved
	MergeMoving    Name = "merge.moving"    // one replaced shard has been moved
	MergeMoved     Name = "merge.moved"     // all replaced shards have been moved, but no replaced entries
)

// Only rescore reaches these steps.
const (
	ScoresMade    Name = "scores.made"    // the folder of a scores set has its description, but no log
	ScoresCleared Name = "scores.cleared" // leftovers of the set have been removed
	ScoresAdded   Name = "scores.added"   // a score is in the open shard
)

// Only import and rescore --out reach these steps.
const (
	BuildFilled    Name = "build.filled"    // the temporary folder has everything except run.json
	BuildDescribed Name = "build.described" // the temporary folder is complete
	BuildNamed     Name = "build.named"     // the folder has its name, but the name is not durable yet
)

// BuildNames returns the steps that only import and rescore --out reach.
func BuildNames() []Name { return []Name{BuildFilled, BuildDescribed, BuildNamed} }

// ScoreNames returns the steps that only rescore reaches.
func ScoreNames() []Name { return []Name{ScoresMade, ScoresCleared, ScoresAdded} }

// GroupNames returns the steps that only runs with Config.CommitGroups reach.
func GroupNames() []Name {
	return []Name{RecoverKept, MergeStarted, MergeWritten, MergeCommitted, MergeMoving, MergeMoved}
}

// Names returns the steps that every run reaches. Tests kill the process at each of these steps.
func Names() []Name {
	return []Name{
		RecoverStarted, RecoverOrphans, RecoverReplayed, RecoverDone,
		WALWritten, WALSynced, WALAcked, WALDeleted,
		ShardCreated, ShardWritten, ShardSynced, ShardVerified, ShardRenamed, ShardDirSynced,
		CommitWritten, CommitLinked, CommitSynced,
		JournalBegin, JournalAgent, JournalRun, JournalEnd,
	}
}
