package lettasim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// listSteps always fails, as in 0.16.7.
func (s *Server) listSteps(q *request) answer {
	order := "False"
	if q.URL.Query().Get("order") == "asc" {
		order = "True"
	}
	return detail(http.StatusBadRequest, "Argument order does not match type typing.Optional[str]; is %s of type <class 'bool'>", order)
}

// findStep returns the step with this id, or an error answer. The caller holds Server.mu.
func (s *Server) findStep(id string) (*step, *answer) {
	if !isID(id, "step") {
		return nil, new(badID("step"))
	}
	if st := s.steps[id]; st != nil && s.finished(st.run) {
		return st, nil
	}
	return nil, new(notFound("Step", id))
}

func (*Server) getStep(_ *request, st *step) answer {
	return ok(st.state())
}

func (*Server) stepMetrics(_ *request, st *step) answer {
	return ok(fmt.Appendf(nil, `{"id":"%s","organization_id":"%s","provider_id":null,"run_id":"%s","agent_id":"%s","step_start_ns":null,"llm_request_start_ns":null,"llm_request_ns":150000000,`+
		`"tool_execution_ns":20000000,"step_ns":200000000,"base_template_id":null,"template_id":null,"project_id":null}`, st.id, organization, st.run.id, st.run.agent.id))
}

// stepTrace answers with null if the step is unknown. The traces of deleted agents are still
// available.
func (s *Server) stepTrace(q *request) answer {
	if !isID(q.args[0], "step") {
		return badID("step")
	}
	s.mu.Lock()
	var trace func() []byte
	st := s.steps[q.args[0]]
	if st != nil && s.finished(st.run) {
		trace = func() []byte { return st.run.source.trace(st.k) }
	} else if st == nil {
		trace = s.keptTraces[q.args[0]]
	}
	s.mu.Unlock()
	if trace != nil && !s.cfg.NoTraces {
		if body := trace(); body != nil {
			if st != nil {
				s.countTrace(st)
			}
			return ok(body)
		}
	}
	return ok([]byte("null"))
}

func (s *Server) stepFeedback(q *request) answer {
	var body struct {
		Feedback *string  `json:"feedback"`
		Tags     []string `json:"tags"`
	}
	if a := q.decode(&body); a != nil {
		return *a
	}
	if f := body.Feedback; f != nil && *f != "positive" && *f != "negative" {
		return unprocessable("enum", "'body', 'feedback'", "Input should be positive or negative")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, problem := s.findStep(q.args[0])
	if problem != nil {
		return *problem
	}
	feedback, err := json.Marshal(body.Feedback)
	if err != nil {
		return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
	}
	st.feedback = feedback
	if body.Tags != nil {
		st.tags = quoteAll(nil, body.Tags)
	}
	return ok(st.state())
}

// stepMessages answers with the step's messages. On this route, the assistant's text is a reasoning
// message.
func (*Server) stepMessages(q *request, st *step) answer {
	var out [][]byte
	for _, m := range st.run.source.messages() {
		if member(m, "step_id") == st.id {
			out = append(out, asReasoning(m))
		}
	}
	query := q.URL.Query()
	return ok(array(page(out, messageID, query, query.Get("order") != "desc", 100)))
}

func asReasoning(m []byte) []byte {
	if member(m, "message_type") != "assistant_message" {
		return m
	}
	o, err := parseObject(m)
	if err != nil {
		return m
	}
	r := newObject()
	for _, k := range o.keys {
		switch k {
		case "message_type":
			r.text(k, "reasoning_message")
		case "content":
			r.text("source", "reasoner_model")
			r.set("reasoning", o.values[k])
			r.set("signature", []byte("null"))
		default:
			r.set(k, o.values[k])
		}
	}
	return r.append(nil)
}

func (s *Server) agentMessages(q *request, a *agent) answer {
	list := split(a.system)
	for _, r := range a.runs {
		if s.finished(r) {
			list = append(list, r.source.messages()...)
		}
	}
	query := q.URL.Query()
	if problem := checkPage(query, 0); problem != nil {
		return *problem
	}
	list, unknown := between(list, messageID, query)
	if unknown != "" {
		return detail(http.StatusNotFound, "No message found with id '%s' for agent '%s'.", unknown, a.id)
	}
	list = page(list, messageID, query, query.Get("order") == "asc", 100)
	if query.Get("order") != "asc" { // the page contains the newest messages, sorted oldest first
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	return ok(array(list))
}
