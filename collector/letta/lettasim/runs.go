package lettasim

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A run is one server run, which a send starts. The field due is the time at which the run
// finishes, even if the client has disconnected. Until then, a client sees the status created and
// no steps or messages.
type run struct {
	id        string
	created   time.Time // created_at in its state; for a replayed run, the recorded time
	agent     *agent
	requestID string // the client's x-api-request-log-id
	mode      sendMode
	due       time.Time
	cancelled chan struct{} // closed when cancelAgent cancels the run
	source    runSource
	steps     []*step
	// answer is recorded when the client has received the tokens. The field told is true once
	// answer has been recorded. The field traced contains the steps whose traces the client has
	// received.
	answer Answer
	told   bool
	traced map[int]bool
}

// A runSource provides the contents of a finished run. Replayed, scripted and failed runs have
// different sources.
type runSource interface {
	// state returns the finished run's JSON.
	state() *object
	// step returns the JSON of step k.
	step(k int) *object
	// messages returns the run's messages, oldest first.
	messages() [][]byte
	// trace returns the trace of step k, or nil if the step will never have a trace.
	trace(k int) []byte
}

// A step is one step in a run, with the feedback and tags that clients set.
type step struct {
	id       string
	run      *run
	k        int
	feedback []byte
	tags     []byte
}

func (s *Server) finished(r *run) bool { return !s.cfg.Now().Before(r.due) }

// enter registers a run. The caller holds Server.mu.
func (s *Server) enter(r *run, stepIDs []string) {
	r.created, _ = time.Parse(time.RFC3339Nano, r.source.state().string("created_at"))
	s.runs[r.id] = r
	r.agent.runs = append(r.agent.runs, r)
	s.addSteps(r, stepIDs)
}

// addSteps registers the steps of a run. The caller holds Server.mu.
func (s *Server) addSteps(r *run, stepIDs []string) {
	for k, id := range stepIDs {
		st := &step{id: id, run: r, k: k, feedback: []byte("null")}
		r.steps = append(r.steps, st)
		s.steps[id] = st
	}
}

// forget removes a run and its steps. It keeps the latest Config.KeptTraces traces of removed
// steps. A real server keeps all traces. The caller holds Server.mu.
func (s *Server) forget(r *run) {
	delete(s.runs, r.id)
	for _, st := range r.steps {
		delete(s.steps, st.id)
		source, k := r.source, st.k
		if len(s.keptOrder) < s.cfg.KeptTraces {
			s.keptOrder = append(s.keptOrder, st.id)
		} else {
			delete(s.keptTraces, s.keptOrder[s.keptNext])
			s.keptOrder[s.keptNext] = st.id
			s.keptNext = (s.keptNext + 1) % len(s.keptOrder)
		}
		s.keptTraces[st.id] = func() []byte { return source.trace(k) }
	}
}

// stateOfRun returns the run's current JSON.
func (s *Server) stateOfRun(r *run) *object {
	o := r.source.state()
	if finished := s.finished(r); !finished || r.mode != modeSync {
		o = o.clone()
		defer func() { r.mode.shape(o, finished) }()
	}
	if !s.finished(r) {
		o.text("status", "created")
		o.set("completed_at", []byte("null"))
		o.set("stop_reason", []byte("null"))
		o.set("metadata", []byte(`{"run_type":"send_message"}`))
	}
	return o
}

func (s *Server) findRun(id string) (*run, *answer) {
	if !isID(id, "run") {
		return nil, new(detail(http.StatusBadRequest, "INVALID_ARGUMENT: Invalid run ID format: %s. Expected format: 'run-<uuid4>'", id))
	}
	if r := s.runs[id]; r != nil {
		return r, nil
	}
	return nil, new(notFound("Run", id))
}

func (s *Server) listRuns(q *request) answer {
	query := q.URL.Query()
	if problem := checkPage(query, 1000); problem != nil {
		return *problem
	}
	agents := query["agent_ids"]
	if id := query.Get("agent_id"); id != "" {
		agents = []string{id}
	}
	var list []*run
	for _, r := range s.runs {
		if len(agents) > 0 && !slices.Contains(agents, r.agent.id) {
			continue
		}
		list = append(list, r)
	}
	slices.SortFunc(list, byCreation)
	statuses := query["statuses"]
	if statuses == nil && query.Get("active") == "true" {
		statuses = []string{"created", "running"}
	}
	for _, status := range statuses {
		if !slices.Contains([]string{"created", "running", "completed", "failed", "cancelled"}, status) {
			return detail(http.StatusBadRequest, "'%s' is not a valid RunStatus", status)
		}
	}
	if id := query.Get("conversation_id"); id != "" { // in 0.16.7, a run does not record its conversation
		list = nil
	}
	stop := query.Get("stop_reason")
	if stop != "" && !slices.Contains(stopReasons, stop) {
		return unprocessable("enum", "'query', 'stop_reason'", "Input should be '"+strings.Join(stopReasons, "', '")+"'")
	}
	background := query.Get("background")
	if len(statuses) > 0 || stop != "" || background != "" {
		list = slices.DeleteFunc(list, func(r *run) bool {
			o := s.stateOfRun(r)
			return len(statuses) > 0 && !slices.Contains(statuses, o.string("status")) || stop != "" && o.string("stop_reason") != stop ||
				background != "" && background != string(o.values["background"])
		})
	}
	ascending := query.Get("order") == "asc" || query.Get("ascending") == "true"
	// As on the real server, the cursors "before" and "after" are swapped, and each stands for the
	// creation time of its run. A run of another agent is a valid cursor. A cursor with an unknown
	// run is ignored. Source: services/helpers/run_manager_helper.py.
	for cursor, later := range map[string]bool{"after": !ascending, "before": ascending} {
		if at := s.runs[query.Get(cursor)]; at != nil {
			list = slices.DeleteFunc(list, func(r *run) bool { return r == at || byCreation(r, at) > 0 != later })
		}
		query.Del(cursor)
	}
	list = page(list, func(r *run) string { return r.id }, query, ascending, 100)
	out := make([][]byte, len(list))
	for i, r := range list {
		o := s.stateOfRun(r)
		if s.finished(r) { // only runs in a list have this member
			o = o.clone()
			o.set("total_duration_ns", r.duration())
		}
		out[i] = o.append(nil)
	}
	return ok(array(out))
}

func byCreation(a, b *run) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id, b.id))
}

var stopReasons = []string{
	"end_turn", "error", "llm_api_error", "invalid_llm_response", "invalid_tool_call", "max_steps", "max_tokens_exceeded", "no_tool_call",
	"tool_rule", "cancelled", "insufficient_credits", "requires_approval", "context_window_overflow_in_system_prompt",
}

func (r *run) duration() []byte {
	o := r.source.state()
	var at [2]time.Time
	for i, name := range []string{"created_at", "completed_at"} {
		at[i], _ = time.Parse("2006-01-02T15:04:05.999999999", strings.TrimSuffix(o.string(name), "Z"))
	}
	return strconv.AppendInt(nil, int64(max(0, at[1].Sub(at[0]))), 10)
}

func (s *Server) getRun(_ *request, r *run) answer {
	return ok(s.stateOfRun(r).append(nil))
}

func (s *Server) runMessages(q *request, r *run) answer {
	var list [][]byte
	if s.finished(r) {
		list = r.source.messages()
	}
	query := q.URL.Query()
	if problem := checkPage(query, 0); problem != nil {
		return *problem
	}
	list, unknown := between(list, messageID, query)
	if unknown != "" {
		return detail(http.StatusNotFound, "No message found with id '%s' for agent 'None'.", unknown)
	}
	return ok(array(page(list, messageID, query, query.Get("order") != "desc", 100)))
}

func (s *Server) runSteps(q *request, r *run) answer {
	var list []*step
	if s.finished(r) {
		list = r.steps
	}
	query := q.URL.Query()
	if problem := checkPage(query, 0); problem != nil {
		return *problem
	}
	id := func(st *step) string { return st.id }
	for _, cursor := range []string{"before", "after"} {
		if query.Has(cursor) && !slices.ContainsFunc(list, func(st *step) bool { return st.id == query.Get(cursor) }) {
			return detail(http.StatusNotFound, "No Step found with id %s", query.Get(cursor))
		}
	}
	if query.Has("before") && query.Has("after") { // with both cursors, the requested order does not affect their meaning
		list, _ = between(list, id, query)
	}
	list = page(list, id, query, query.Get("order") == "asc", 100)
	out := make([][]byte, len(list))
	for i, st := range list {
		out[i] = st.state()
	}
	return ok(array(out))
}

// state returns the step's JSON with the feedback and tags that clients set.
func (st *step) state() []byte {
	o := st.run.source.step(st.k)
	if st.run.requestID != "" {
		o.text("request_id", st.run.requestID)
	}
	if string(st.feedback) != "null" {
		o.set("feedback", st.feedback)
	}
	if st.tags != nil {
		o.set("tags", st.tags)
	}
	return o.append(nil)
}
