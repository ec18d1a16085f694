package stream

// Held returns the number of entries that the tracker keeps for groups that are not reported.
func (t *Tracker) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tasks) + len(t.figures) + len(t.again)
}
