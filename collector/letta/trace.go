package letta

import (
	"errors"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A ProviderTrace is the server's record of one model call. Request is an OpenAI-style body that
// has no input_ids and was never sent to the engine. Response is the engine's answer with
// output_ids.
//
// A trace can be late. There is no trace if the call failed, if a log-probability was not finite,
// or if a compaction ran in the step.
//
// Source: the published Steps API; schemas/provider_trace.py of the server.
type ProviderTrace struct {
	JSON     RawJSON
	Request  TraceBody[TraceRequest]  `letta:"request_json"`
	Response TraceBody[TraceResponse] `letta:"response_json"`
	StepID   string                   `letta:"step_id,loose"`
	AgentID  string                   `letta:"agent_id,loose"`
	CallType string                   `letta:"call_type,loose"` // agent_step, summarization, …
	RunID    string                   `letta:"run_id,loose"`
}

// A TraceBody is one of the two bodies in a trace. The body can have a form other than T.
type TraceBody[T any] struct {
	JSON  RawJSON
	value T
	err   error
}

// Parsed returns the body, or an error if it does not have the form of T.
func (b *TraceBody[T]) Parsed() (*T, error) { return &b.value, b.err }

func (b *TraceBody[T]) read(s *scanner) {
	*b = TraceBody[T]{}
	from, here := s.start(), s.Mark()
	if into(s, &b.value); s.Err() != nil {
		b.err = s.Err()
		if e, ok := errors.AsType[*strictjson.Error](b.err); ok {
			e.Offset -= from // the offset within the body
		}
		s.Return(here)
		s.Skip()
	}
	b.JSON = s.since(from)
}
