package sink

import "time"

// Stats is a snapshot of a Dataset's counters since Create.
type Stats struct {
	// Commits counts commits, and Shards counts committed shards. Bytes is the total size of these
	// shards.
	Commits, Shards, Bytes int64
	// Merges counts merges of small commits. Commits does not include merges.
	Merges int64
	// MergeErrors counts failed merges. After a failed merge, the original entries remain in the
	// log.
	MergeErrors int64
	// Samples, Rows, Failures and Tokens count what the commits contain. Failed counts the
	// samples that failed as a whole. They are included in Samples.
	Samples, Failed, Rows, Failures int64
	Tokens                          Tokens
	// Pending counts durable samples that have not yet been committed.
	Pending int64
	// WALBytes is the current size of the write-ahead log. WALSyncs counts the syncs of this log.
	WALBytes, WALSyncs int64
	// BytesInFlight is the amount of memory used by samples that have been accepted but not yet
	// encoded.
	BytesInFlight int64
}

// Add adds the counts of o.
func (s *Stats) Add(o Stats) {
	s.Commits += o.Commits
	s.Shards += o.Shards
	s.Bytes += o.Bytes
	s.Merges += o.Merges
	s.MergeErrors += o.MergeErrors
	s.Samples += o.Samples
	s.Failed += o.Failed
	s.Rows += o.Rows
	s.Failures += o.Failures
	s.Tokens.Add(o.Tokens)
	s.Pending += o.Pending
	s.WALBytes += o.WALBytes
	s.WALSyncs += o.WALSyncs
	s.BytesInFlight += o.BytesInFlight
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

// Committing returns how long the current commit or call of Seal has taken, or 0 if there is none. While
// a store is away, full or slow, a commit waits for it.
func (d *Dataset) Committing() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return 0
	}
	return time.Since(d.since)
}

// beginCommit records the start of a commit, and returns a function that records its end.
func (d *Dataset) beginCommit() (end func()) {
	set := func(at time.Time) {
		d.mu.Lock()
		d.since = at
		d.mu.Unlock()
	}
	set(time.Now())
	return func() { set(time.Time{}) }
}

func (d *Dataset) pending(n int) {
	d.mu.Lock()
	d.stats.Pending += int64(n)
	d.mu.Unlock()
}
