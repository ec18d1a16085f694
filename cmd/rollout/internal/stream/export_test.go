package stream

// Held counts what the tracker keeps of groups that are not told.
func (t *Tracker) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tasks) + len(t.figures) + len(t.again)
}
