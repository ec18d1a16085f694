package continuity

// Stats are what a table has decided since it was made, and what it holds now.
type Stats struct {
	// Prompts counts the decisions by reason; every reason is in it. Their sum is the number
	// of calls of Prompt that returned.
	Prompts map[Reason]int64
	// Calls and Bytes are what the table keeps, Bytes roughly.
	Calls int
	Bytes int64
}

// Stats returns a snapshot.
func (t *Table) Stats() Stats {
	s := Stats{Prompts: make(map[Reason]int64, reasons)}
	for _, r := range AllReasons() {
		s.Prompts[r] = t.counts[r].Load()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Calls, s.Bytes = t.calls, t.bytes
	return s
}
