package sink

// Stats is a snapshot of a Dataset's counters since Create.
type Stats struct {
	// Commits counts commits, Shards committed shards. Bytes is the sum of the shards' sizes.
	Commits, Shards, Bytes int64
	// Merges counts merges of small commits. Commits does not include them.
	Merges int64
	// MergeErrors counts failed merges. The log keeps their commits.
	MergeErrors int64
	// Samples, Rows, Failures and Tokens count the content of those commits. Failed counts the
	// samples that failed as a whole.
	Samples, Failed, Rows, Failures int64
	Tokens                          Tokens
	// Pending counts durable samples that are not committed yet.
	Pending int64
	// WALBytes is the current size of the write-ahead log, WALSyncs the number of its syncs.
	WALBytes, WALSyncs int64
	// BytesInFlight is the memory of accepted samples that are not encoded yet.
	BytesInFlight int64
}

// Stats returns a snapshot of the counters.
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

func (d *Dataset) pending(n int) {
	d.mu.Lock()
	d.stats.Pending += int64(n)
	d.mu.Unlock()
}
