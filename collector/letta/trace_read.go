package letta

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// A TraceResponse is the engine's answer in a trace. Its lists are raw text: the ids are parsed
// when needed, the log-probabilities when a trace serves as an answer.
type TraceResponse struct {
	// Text is the engine's output without a final stop token.
	Text string
	// OutputIDs is the list of sampled ids: null or empty if the call was not native.
	OutputIDs RawJSON
	// Logprobs is the list of meta_info.output_token_logprobs.
	Logprobs RawJSON
	// Finish is the engine's finish reason, or empty. Matched is the id or the text at which it
	// stopped.
	Finish  string
	Matched RawJSON
	// Version is the policy version as text: "default" if the engine was never updated, and empty
	// if the engine's value is neither a string nor a number.
	Version string
	// Versions is the list of meta_info.weight_versions: the spans of the output with their
	// versions, if the weights changed during the call.
	Versions RawJSON
	// PromptTokens is the engine's count of prompt ids.
	PromptTokens RawJSON
	// Mark is meta_info.rollout, the mark of a tap with continuity, or empty.
	Mark RawJSON
}

// Response returns the parsed response_json.
func (t *ProviderTrace) Response() (*TraceResponse, error) { return &t.response, t.responseErr }

func (r *TraceResponse) read(s *scanner) {
	for name := range s.members {
		switch name {
		case "text":
			s.orEmpty(&r.Text)
		case "output_ids":
			r.OutputIDs = s.raw()
		case "meta_info":
			for name := range s.orMembers {
				switch name {
				case "output_token_logprobs":
					r.Logprobs = s.raw()
				case "weight_version":
					r.Version = s.version()
				case "weight_versions":
					r.Versions = s.raw()
				case "prompt_tokens":
					r.PromptTokens = s.raw()
				case "rollout":
					r.Mark = s.raw()
				case "finish_reason":
					for name := range s.orMembers {
						switch name {
						case "type":
							s.orEmpty(&r.Finish)
						case "matched":
							r.Matched = s.raw()
						}
					}
				}
			}
		}
	}
}

// version reads a weight version: a string, or a number as text. It returns "" for anything else.
func (s *scanner) version() (word string) {
	switch s.Kind() {
	case '"':
		return s.Text()
	case '0':
		return tokenize.VersionWord(s.Number())
	}
	s.Skip()
	return ""
}

// Spans parses Versions. It returns nil if there are none, and an empty list if they are
// malformed.
func (r *TraceResponse) Spans() []tokenize.VersionSpan {
	if r.Versions.IsNull() {
		return nil
	}
	s := newValidScanner(string(r.Versions))
	defer s.recycle()
	spans := []tokenize.VersionSpan{}
	for range s.elements {
		v := tokenize.VersionSpan{Start: -1, End: -1}
		for name := range s.members {
			switch name {
			case "version":
				v.Version = s.version()
			case "start":
				s.int32(&v.Start)
			case "end":
				s.int32(&v.End)
			}
		}
		spans = append(spans, v)
	}
	if s.End() != nil {
		return []tokenize.VersionSpan{}
	}
	return spans
}

// AppendIDs appends the sampled ids to dst. After an error it returns dst unchanged.
func (r *TraceResponse) AppendIDs(dst []int32) ([]int32, error) {
	if r.OutputIDs.IsNull() {
		return dst, nil
	}
	s, n := newValidScanner(string(r.OutputIDs)), len(dst)
	defer s.recycle()
	dst = slices.Grow(dst, strings.Count(string(r.OutputIDs), ",")+1)
	for range s.elements {
		var id int32
		s.int32(&id)
		dst = append(dst, id)
	}
	if err := s.End(); err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// A TraceRequest is the request in a trace: an OpenAI-style body that was never sent. Its members
// are raw text, so that unneeded messages are not parsed.
type TraceRequest struct {
	// Messages is the raw list for ReadMessages.
	Messages RawJSON
	// Tools is the list of tools in the order that the model saw.
	Tools RawJSON
	// InputIDs is the prompt. Server 0.16.7 does not keep it.
	InputIDs RawJSON
}

// Request returns the parsed request_json.
func (t *ProviderTrace) Request() (*TraceRequest, error) { return &t.request, t.requestErr }

func (r *TraceRequest) read(s *scanner) {
	for name := range s.members {
		switch name {
		case "messages":
			r.Messages = s.raw()
		case "tools":
			r.Tools = s.raw()
		case "input_ids":
			r.InputIDs = s.raw()
		}
	}
}

// A TraceMessage is one message of a TraceRequest.
type TraceMessage struct {
	Role string
	// Content is the text parts of the content, joined by newlines.
	Content    string
	Name       string
	ToolCallID string
	ToolCalls  []TraceCall
}

// A TraceCall is a call of a tool.
type TraceCall struct{ ID, Name, Arguments string }

// ReadMessages parses the messages.
func (r *TraceRequest) ReadMessages() ([]TraceMessage, error) {
	if r.Messages.IsNull() {
		return nil, nil
	}
	return readListWith[TraceMessage](newValidScanner(string(r.Messages)))
}

func (m *TraceMessage) read(s *scanner) {
	for name := range s.members {
		switch name {
		case "role":
			s.str(&m.Role)
		case "content":
			var content Content
			content.read(s)
			m.Content = content.String()
		case "name":
			s.str(&m.Name)
		case "tool_call_id":
			s.str(&m.ToolCallID)
		case "tool_calls":
			listOf(s, &m.ToolCalls)
		}
	}
}

func (c *TraceCall) read(s *scanner) {
	for name := range s.members {
		switch name {
		case "id":
			s.str(&c.ID)
		case "function":
			for name := range s.members {
				switch name {
				case "name":
					s.str(&c.Name)
				case "arguments":
					s.str(&c.Arguments)
				}
			}
		}
	}
}
