package lettasim

// TaskOptions says which tasks to write.
type TaskOptions struct {
	// Cases writes one task for every recorded case.
	Cases bool
	// Scripted is the number of scripted tasks.
	Scripted int
}

// Tasks returns task lines (JSON Lines) that this server knows how to answer.
func (s *Server) Tasks(o TaskOptions) []byte { return nil }
