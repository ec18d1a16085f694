package continuity

// Stats counts a table's decisions since New, and the calls that it holds.
type Stats struct {
	// Prompts counts the decisions by reason, with an entry for every reason.
	Prompts map[Reason]int64
	// Calls and Bytes measure the content of the table. Bytes is approximate.
	Calls int
	Bytes int64
}

// Stats returns a snapshot.
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
