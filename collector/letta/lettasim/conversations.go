package lettasim

import (
	"encoding/json"
	"net/http"
	"sort"
	"strconv"
)

// A conversation belongs to one agent. For a replayed agent, it is the recorded conversation. For a
// scripted agent, the conversation shares the agent's history.
type conversation struct {
	id    string
	order int64
	agent *agent
	state *object
}

func (s *Server) createConversation(q *request) answer {
	if !q.URL.Query().Has("agent_id") {
		return unprocessable("missing", "'query', 'agent_id'", "Field required")
	}
	a, problem := s.findAgent(q.URL.Query().Get("agent_id"))
	if problem != nil {
		return detail(http.StatusNotFound, "Agent not found")
	}
	s.order++
	c := &conversation{order: s.order, agent: a}
	if a.life != nil && a.life.conversation.raw != nil {
		o, err := parseObject(a.life.conversation.with(a.ids))
		if err != nil {
			return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
		}
		c.state, c.id = o, o.string("id")
		// The recorded state is from the end of the recording, so the system message already
		// exists.
		if system := split(a.system); len(system) > 0 {
			s.systems[messageID(system[0])] = a
		}
	} else {
		for i := 0; c.id == "" || s.conversations[c.id] != nil; i++ {
			c.id = "conv-" + draw(s.cfg.Seed, "conversation", a.id, strconv.Itoa(i)).uuid()
		}
		now := s.cfg.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		c.state = newObject("created_by_id", user, "last_updated_by_id", user, "created_at", now, "updated_at", now, "id", c.id, "agent_id", a.id,
			"summary", nil, "in_context_message_ids", []byte("[]"), "isolated_block_ids", []byte("[]"), "model", nil, "model_settings", nil,
			"last_message_at", nil)
	}
	s.conversations[c.id] = c
	return ok(c.state.append(nil))
}

func (s *Server) findConversation(id string) (*conversation, *answer) {
	if len(id) < len("conv-")+36 {
		return nil, new(unprocessable("string_too_short", "'path', 'conversation_id'", "String should have at least 41 characters"))
	}
	if c := s.conversations[id]; c != nil {
		return c, nil
	}
	return nil, new(notFound("Conversation", id))
}

func (*Server) getConversation(_ *request, c *conversation) answer {
	if c.agent.life == nil { // the system message is created on the first read
		c.state = c.state.clone()
		c.state.set("in_context_message_ids", quoteAll(nil, []string{c.agent.systemID}))
	}
	return ok(c.state.append(nil))
}

func (s *Server) listConversations(q *request) answer {
	query := q.URL.Query()
	var list []*conversation
	for _, c := range s.conversations {
		if id := query.Get("agent_id"); id == "" || c.agent.id == id {
			list = append(list, c)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].order < list[j].order })
	if problem := checkPage(query, 0); problem != nil {
		return *problem
	}
	query.Del("before") // the real server ignores this cursor
	if id := query.Get("after"); id != "" && s.conversations[id] == nil {
		return notFound("Conversation", id)
	}
	list = page(list, func(c *conversation) string { return c.id }, query, query.Get("order") == "asc", 100)
	out := make([][]byte, len(list))
	for i, c := range list {
		out[i] = c.state.append(nil)
	}
	return ok(array(out))
}

func (s *Server) deleteConversation(_ *request, c *conversation) answer {
	delete(s.conversations, c.id)
	return ok([]byte("null"))
}

func badConversationID() answer {
	return unprocessable("string_pattern_mismatch", "'path', 'conversation_id'", "String should match pattern")
}

func (s *Server) conversationMessages(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, problem := s.findConversation(q.args[0])
	if problem != nil && problem.status == http.StatusNotFound {
		return ok([]byte("[]"))
	}
	if problem != nil {
		return badConversationID()
	}
	list := split(c.agent.system)
	for _, r := range c.agent.runs {
		if s.finished(r) {
			list = append(list, r.source.messages()...)
		}
	}
	query := q.URL.Query()
	return ok(array(page(list, messageID, query, query.Get("order") == "asc", 100)))
}

func (s *Server) sendToConversation(q *request) answer {
	var body struct {
		Streaming *bool  `json:"streaming"`
		AgentID   string `json:"agent_id"`
	}
	if a := q.decode(&body); a != nil {
		return *a
	}
	if body.Streaming == nil || *body.Streaming {
		return detail(http.StatusNotImplemented, "lettasim does not stream: send \"streaming\": false")
	}
	id := body.AgentID
	if q.args[0] != "default" {
		s.mu.Lock()
		c, problem := s.findConversation(q.args[0])
		s.mu.Unlock()
		if problem != nil && problem.status != http.StatusNotFound {
			return badConversationID()
		}
		if problem != nil {
			return *problem
		}
		id = c.agent.id
	}
	return s.send(q, id, modeSync, true)
}

func noneToCancel(agent string) answer {
	return detail(http.StatusConflict, "CONFLICT: No active runs to cancel for agent %s", agent)
}

// cancelAgent cancels the unfinished runs of an agent.
func (s *Server) cancelAgent(q *request) answer {
	var body struct {
		RunIDs []string `json:"run_ids"`
	}
	if len(q.body) > 0 && json.Unmarshal(q.body, &body) != nil {
		return unprocessable("json_invalid", "'body', 0", "JSON decode error")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, problem := s.findAgent(q.args[0])
	if problem != nil && problem.status == http.StatusNotFound {
		return noneToCancel(q.args[0])
	}
	if problem != nil {
		return *problem
	}
	out := newObject()
	if len(body.RunIDs) == 0 {
		for _, r := range a.runs {
			if !s.finished(r) {
				body.RunIDs = append(body.RunIDs, r.id)
			}
		}
		if len(body.RunIDs) == 0 {
			return noneToCancel(a.id)
		}
	}
	for _, id := range body.RunIDs {
		out.text(id, "failed")
		r := s.runs[id]
		if r == nil || r.agent != a || s.finished(r) {
			continue
		}
		if scripted, can := r.source.(*scriptedRun); can && scripted.cancel() {
			r.due = s.cfg.Now()
			close(r.cancelled)
			out.text(id, "cancelled")
		}
	}
	return ok(out.append(nil))
}
