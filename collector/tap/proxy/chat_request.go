package proxy

import (
	"encoding/json"
	"errors"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A chatRequest is the body of a chat completion in a session. All its slices share the memory of
// the body.
type chatRequest struct {
	request
	messages []json.RawMessage
	// messagesAt contains the positions of the messages in the body.
	messagesAt []int
	tools      json.RawMessage // nil if there are none
	options    *object         // stream_options; nil if absent or not an object
	usage      bool            // the client wants the usage in a stream
}

var errMessages = errors.New("messages: want a list of messages")

// parseChat parses the body of a chat completion.
func parseChat(s *tokenize.Scanner, body []byte) (*chatRequest, error) {
	q := &chatRequest{request: request{path: chatPath, body: body, keys: &chatNames}}
	s.ResetBytes(body)
	wanted := func(key []byte) bool {
		switch string(key) {
		case "messages", "tools", "model", "stream", "stream_options", "n", "max_tokens",
			"logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info", "return_routed_experts", "return_sampling_mask":
			return true
		}
		return q.keys.has(key)
	}
	var err error
	q.root, err = q.object(s, wanted, func(key string) (err error) {
		switch key {
		case "messages":
			return q.list(s)
		case "tools":
			q.tools, err = raw(s, body)
			if string(q.tools) == "null" {
				q.tools = nil
			}
			return err
		case "stream":
			q.streamed, err = q.truth(s)
			return err
		case "stream_options":
			return q.streamOptions(s)
		case "n":
			return q.outputs(s)
		}
		return s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && q.messages == nil {
		err = errMessages
	}
	q.sampling = []*object{&q.root}
	return q, err
}

// raw skips a value and returns its text.
func raw(s *tokenize.Scanner, body []byte) ([]byte, error) {
	s.Next()
	at := s.Offset()
	err := s.Skip()
	if err != nil {
		return nil, err
	}
	return body[at:s.Offset():s.Offset()], nil
}

func (q *chatRequest) list(s *tokenize.Scanner) error {
	if s.Next() != '[' {
		return errMessages
	}
	q.messages = []json.RawMessage{}
	return s.Array(func(int) error {
		s.Next()
		q.messagesAt = append(q.messagesAt, int(s.Offset()))
		m, err := raw(s, q.body)
		q.messages = append(q.messages, m)
		return err
	})
}

func (q *chatRequest) streamOptions(s *tokenize.Scanner) error {
	if s.Next() != '{' {
		return s.Skip()
	}
	o, err := q.object(s, func(key []byte) bool { return string(key) == "include_usage" }, func(string) (err error) {
		q.usage, err = q.truth(s)
		return err
	})
	q.options = &o
	return err
}

// has reports whether the client itself asks for something with a member of the body.
func (q *chatRequest) has(key string) bool { return string(q.root.value(q.body, key)) == "true" }

// parts returns the body for an engine with the given ability and model as a list of parts, most of
// which share the memory of the client's body. Only these members differ: the settings in set, model, the
// members that make the engine return ids, and the members that decide about a stream. The edits in
// splices are applied to the messages.
func (q *chatRequest) parts(set *Set, a *ability, model string, splices []edit) [][]byte {
	edits := append(q.edits(set, nil), splices...)
	members := append([]ask{{"model", string(quoted(model))}}, a.asks...)
	const withUsage = `{"include_usage":true}`
	switch {
	case q.streamed && a.mode == modeWhole:
		members = append(append(members, wholeAsks...), ask{"stream", "false"})
		if q.root.find("stream_options") >= 0 {
			members = append(members, ask{"stream_options", "null"}) // engines refuse it without a stream
		}
	case q.streamed && q.options != nil:
		edits = q.options.put(edits, []ask{{"include_usage", "true"}})
		members = append(members, streamAsks[a.mode]...)
	case q.streamed:
		members = append(append(members, streamAsks[a.mode]...), ask{"stream_options", withUsage})
	default:
		members = append(members, wholeAsks...)
	}
	return split(q.body, q.root.put(edits, members))
}

// split returns body with the edits applied, as a list of parts.
func split(body []byte, edits []edit) (parts [][]byte) {
	sortEdits(edits)
	at := 0
	for _, e := range edits {
		if e.from > at {
			parts = append(parts, body[at:e.from])
		}
		if len(e.text) > 0 {
			parts = append(parts, e.text)
		}
		at = e.to
	}
	return append(parts, body[at:])
}

// sampled returns the sampling parameters that the engine receives. Most clients use the older name
// of the token limit.
func (q *chatRequest) sampled(set *Set) tap.Sampling {
	c := q.told(set)
	if c.MaxNewTokens == nil {
		if value := q.root.value(q.body, "max_tokens"); value != nil {
			read(&c, maxNewTokens, value)
		}
	}
	return c
}
