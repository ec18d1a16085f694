package continuity

// Stats counts the decisions that a table has made and the calls that it contains.
type Stats struct {
	// Prompts counts the decisions by reason. It has an entry for every reason, even if the count
	// is 0.
	Prompts map[Reason]int64
	// Calls is the number of calls in the table. Bytes is the approximate memory of the table.
	Calls int
	Bytes int64
}

// Stats returns the current stats.
func (t *Table) Stats() Stats {
	s := Stats{Prompts: make(map[Reason]int64, reasons)}
	for r := range reasons {
		s.Prompts[r] = t.counts[r].Load()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Calls, s.Bytes = t.calls, t.bytes
	return s
}
