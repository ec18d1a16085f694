package sink

// Stats is a snapshot of what a Dataset has done since Create.
type Stats struct {
	// Commits and Shards count what was committed; Bytes are the shards' sizes.
	Commits, Shards, Bytes int64
	// Merges counts merges of small commits, which are not among Commits.
	Merges int64
	// MergeErrors counts merges that failed. Their commits stay, and are tried again.
	MergeErrors int64
	// Samples, Rows, Failures and Tokens count what is in those commits. Failed
	// counts the samples that failed as a whole.
	Samples, Failed, Rows, Failures int64
	Tokens                          Tokens
	// Pending counts samples that are durable and not committed yet.
	Pending int64
	// WALBytes is the size of the write-ahead log now, WALSyncs how often it was
	// synced.
	WALBytes, WALSyncs int64
	// BytesInFlight is the memory of accepted samples that were not yet encoded.
	BytesInFlight int64
}

// Stats returns a snapshot.
func (d *Dataset) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.BytesInFlight = d.budget.inUse()
	d.wal.mu.Lock()
	defer d.wal.mu.Unlock()
	s.WALBytes, s.WALSyncs = d.wal.bytes, d.wal.syncs
	return s
}

// pending adds n to the samples that wait for their commit.
func (d *Dataset) pending(n int) {
	d.mu.Lock()
	d.stats.Pending += int64(n)
	d.mu.Unlock()
}
