package lettasim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// This file handles streamed and asynchronous sends. The answers to such sends have no turns, so
// the tokens are only in traces. The flags for token data come from the agent's model, not from the
// request.
//
//	POST …/messages            "streaming": true    events, for clients of version 1.0
//	POST …/messages/stream                          events
//	POST …/messages/async                           the run, at once
//
// A finished run has the status completed, unless it was canceled or its metadata contains an
// error. Until a stream ends, its run has the status running.
//
// Source: routers/v1/agents.py (run_type of each route), services/streaming_service.py
// (create_agent_stream, _create_error_aware_stream, _create_run).

type sendMode uint8

const (
	modeSync       sendMode = iota // returns the complete answer at the end
	modeStream                     // returns events
	modeTyped                      // returns events, on the separate route and with another run type
	modeBackground                 // returns the run at once
)

func (m sendMode) streams() bool { return m == modeStream || m == modeTyped }

func (s *Server) streamToAgent(q *request) answer {
	return s.send(q, q.args[0], modeTyped, false)
}

func (s *Server) sendAsync(q *request) answer {
	a := s.send(q, q.args[0], modeBackground, false)
	if a.status == http.StatusNotFound {
		return detail(http.StatusNotFound, "Agent not found")
	}
	return a
}

// modeOf returns the mode of a send to the route that supports modeSync and modeStream.
func modeOf(body []byte) sendMode {
	var b struct {
		Streaming bool `json:"streaming"`
	}
	if json.Unmarshal(body, &b) == nil && b.Streaming { // errors are reported when the whole body is decoded
		return modeStream
	}
	return modeSync
}

// checkMode rejects a send that the real server rejects in this mode, or that is not simulated. The
// caller must not hold s.mu.
func (s *Server) checkMode(q *request, a *agent, b *sendBody, mode sendMode) *answer {
	switch {
	case mode == modeStream && q.legacy():
		return new(detail(http.StatusUnprocessableEntity, "streaming=true is only supported for SDK v1.0+ clients."))
	case mode == modeSync && (b.StreamTokens || b.Background || b.IncludePings != nil && !*b.IncludePings):
		var wrong []string
		for _, option := range []struct {
			set  bool
			text string
		}{
			{b.StreamTokens, "stream_tokens can only be true"},
			{b.IncludePings != nil && !*b.IncludePings, "include_pings can only be set to false"},
			{b.Background, "background can only be true"},
		} {
			if option.set {
				wrong = append(wrong, option.text+" when streaming=true")
			}
		}
		return new(detail(http.StatusUnprocessableEntity, "Streaming options set without streaming enabled. %s. Either set streaming=true or use default values for streaming options.", strings.Join(wrong, "; ")))
	case mode.streams() && b.Background:
		return new(detail(http.StatusServiceUnavailable, "Background streaming requires Redis to be running."))
	case mode.streams() && b.StreamTokens:
		return new(detail(http.StatusNotImplemented, "lettasim does not stream tokens: remove stream_tokens"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if handle := a.state.string("model"); mode.streams() && flagsOf(a.state).Tokens && !strings.HasPrefix(handle, "sglang/") {
		return new(detail(http.StatusNotImplemented, "lettasim does not simulate streams of %s, which is not on the native path", handle))
	}
	if mode != modeSync {
		b.TokenIDs, b.Logprobs = false, false // only the flags of the agent's model count
	}
	return nil
}

func (m sendMode) shape(o *object, finished bool) {
	if m == modeSync {
		return
	}
	kind := map[sendMode]string{modeStream: "send_message", modeTyped: "send_message_streaming", modeBackground: "send_message_async"}[m]
	meta, err := parseObject(o.values["metadata"])
	if err != nil {
		meta = newObject()
	}
	meta.text("run_type", kind)
	if m == modeBackground {
		meta.set("lettuce", []byte("null"))
		o.set("background", []byte("true"))
	}
	o.set("metadata", meta.append(nil))
	switch _, failed := meta.values["error"]; {
	case !finished && m.streams():
		o.text("status", "running")
	case finished && !failed && o.string("status") != "cancelled":
		o.text("status", "completed")
	}
}

// deliverEvents writes the events of a stream: a ping with the run's id, the messages, the stop
// reason and the usage.
func (s *Server) deliverEvents(q *request, p *reply) answer {
	var body []byte
	for _, part := range p.parts() {
		body = append(body, part...)
	}
	h := q.w.Header()
	h.Set("Server", "uvicorn")
	h.Set("Content-Type", "text/event-stream")
	q.w.WriteHeader(http.StatusOK)
	event := func(text []byte) { _, _ = q.w.Write(append(append([]byte("data: "), text...), "\n\n"...)) } // an error means that the client disconnected
	event([]byte(`{"id":"ping-` + p.run.id + `","date":"2026-01-05T10:00:00+00:00","message_type":"ping","run_id":"` + p.run.id + `","seq_id":null}`))
	var response struct {
		Messages   []json.RawMessage `json:"messages"`
		StopReason json.RawMessage   `json:"stop_reason"`
		Usage      json.RawMessage   `json:"usage"`
	}
	if p.status != http.StatusOK || json.Unmarshal(body, &response) != nil {
		event([]byte(`{"message_type":"stop_reason","stop_reason":"error"}`))
		_, _ = q.w.Write([]byte("event: error\n"))
		event([]byte(`{"message_type":"error_message","run_id":"` + p.run.id + `","error_type":"internal_error",` +
			`"message":"An unknown error occurred with the LLM streaming request.","detail":null,"seq_id":null}`))
	} else {
		for _, m := range append(response.Messages, response.StopReason) {
			event(m)
		}
		if usage, err := parseObject(response.Usage); err == nil { // a stream reports unknown counts as zero
			for _, name := range []string{"cached_input_tokens", "cache_write_tokens", "reasoning_tokens"} {
				usage.set(name, []byte("0"))
			}
			event(usage.append(nil))
		}
	}
	event([]byte("[DONE]"))
	return answer{status: http.StatusOK}
}
