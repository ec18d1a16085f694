package letta

// A ProviderTrace is the server's record of one model call. RequestJSON is an OpenAI-style body
// without input_ids that the native path did not send. ResponseJSON is the engine's answer with
// output_ids.
//
// The trace can be late. There is no trace if the call failed, a log-probability was not finite,
// or a compaction ran in the step.
//
// Source: the published Steps API; schemas/provider_trace.py of the server.
type ProviderTrace struct {
	JSON RawJSON
	// RequestJSON and ResponseJSON are the two bodies; see Request and Response.
	RequestJSON  RawJSON
	ResponseJSON RawJSON
	StepID       string
	AgentID      string
	CallType     string // agent_step, summarization, …
	RunID        string

	request     TraceRequest
	requestErr  error
	response    TraceResponse
	responseErr error
}

func (t *ProviderTrace) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "request_json":
			t.RequestJSON = s.aside(func() { t.request, t.requestErr = TraceRequest{}, nil; t.request.read(s) }, &t.requestErr)
		case "response_json":
			t.ResponseJSON = s.aside(func() { t.response, t.responseErr = TraceResponse{}, nil; t.response.read(s) }, &t.responseErr)
		case "step_id":
			s.orEmpty(&t.StepID)
		case "agent_id":
			s.orEmpty(&t.AgentID)
		case "call_type":
			s.orEmpty(&t.CallType)
		case "run_id":
			s.orEmpty(&t.RunID)
		}
	}
	t.JSON = s.since(from)
}
