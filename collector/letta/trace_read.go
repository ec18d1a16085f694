package letta

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// A TraceResponse is the engine's answer in a trace. Its lists are kept as JSON text. The ids are
// parsed when they are needed, and the log-probabilities only if the trace replaces a lost answer.
type TraceResponse struct {
	// Text is the engine's output without a final stop token.
	Text string `letta:"text,loose"`
	// OutputIDs is the list of sampled ids. It is null or empty if the call did not use the native
	// path.
	OutputIDs RawJSON `letta:"output_ids"`
	// Logprobs is the list meta_info.output_token_logprobs.
	Logprobs RawJSON `letta:"meta_info.output_token_logprobs,loose"`
	// Finish is the engine's finish reason, or empty. Matched is the id or the text at which the
	// engine stopped.
	Finish  string  `letta:"meta_info.finish_reason.type,loose"`
	Matched RawJSON `letta:"meta_info.finish_reason.matched,loose"`
	// Version is the policy version as text. It is "default" if the engine's weights were never
	// updated, and empty if the engine's value is neither a string nor a number.
	Version string `letta:"meta_info.weight_version,version"`
	// Versions is the list meta_info.weight_versions. If the weights changed during the call, it
	// contains the spans of the output with their policy versions.
	Versions RawJSON `letta:"meta_info.weight_versions,loose"`
	// PromptTokens is the number of prompt ids that the engine counted.
	PromptTokens RawJSON `letta:"meta_info.prompt_tokens,loose"`
	// Mark is meta_info.rollout, which a tap with continuity sets. Otherwise, Mark is empty.
	Mark RawJSON `letta:"meta_info.rollout,loose"`
}

// Spans parses Versions. It returns nil if Versions is absent or null, and an empty list if
// Versions is malformed.
func (r *TraceResponse) Spans() []tokenize.VersionSpan {
	if r.Versions.IsNull() {
		return nil
	}
	s := newValidScanner(string(r.Versions))
	defer s.recycle()
	spans := []tokenize.VersionSpan{}
	for range s.Elements {
		v := tokenize.VersionSpan{Start: -1, End: -1}
		for name := range s.Members {
			switch name {
			case "version":
				v.Version = s.version()
			case "start":
				v.Start = int32(s.Int(32))
			case "end":
				v.End = int32(s.Int(32))
			}
		}
		spans = append(spans, v)
	}
	if s.End() != nil {
		return []tokenize.VersionSpan{}
	}
	return spans
}

// AppendIDs appends the sampled ids to dst. If there is an error, it returns dst unchanged.
func (r *TraceResponse) AppendIDs(dst []int32) ([]int32, error) {
	if r.OutputIDs.IsNull() {
		return dst, nil
	}
	s, n := newValidScanner(string(r.OutputIDs)), len(dst)
	defer s.recycle()
	dst = slices.Grow(dst, strings.Count(string(r.OutputIDs), ",")+1)
	for range s.Elements {
		dst = append(dst, int32(s.Int(32)))
	}
	if err := s.End(); err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// A TraceRequest is the request in a trace: an OpenAI-style body that was never sent. Its members
// are kept as JSON text, so that messages are parsed only when they are needed.
type TraceRequest struct {
	// Messages is the JSON text of the list that ReadMessages parses.
	Messages RawJSON `letta:"messages"`
	// Tools is the list of tools in the order in which the model saw them.
	Tools RawJSON `letta:"tools"`
	// InputIDs is the list of prompt ids. Server 0.16.7 does not keep it.
	InputIDs RawJSON `letta:"input_ids"`
}

// A TraceMessage is one message of a TraceRequest.
type TraceMessage struct {
	Role string `letta:"role"`
	// Content is the text of the message. Text parts are joined by newlines.
	Content    string      `letta:"content,text"`
	Name       string      `letta:"name"`
	ToolCallID string      `letta:"tool_call_id"`
	ToolCalls  []TraceCall `letta:"tool_calls"`
}

// A TraceCall is a tool call in a TraceMessage.
type TraceCall struct {
	ID        string `letta:"id"`
	Name      string `letta:"function.name"`
	Arguments string `letta:"function.arguments"`
}

// ReadMessages parses the messages.
func (r *TraceRequest) ReadMessages() ([]TraceMessage, error) {
	if r.Messages.IsNull() {
		return nil, nil
	}
	list, err := readWith[[]TraceMessage](newValidScanner(string(r.Messages)))
	if err != nil {
		return nil, err
	}
	return *list, nil
}
