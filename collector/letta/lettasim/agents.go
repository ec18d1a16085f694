package lettasim

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// An agent is one agent on the simulated server. Its id and order never change. The lock planning
// guards history, and Server.mu guards all other fields.
type agent struct {
	id    string
	order int64

	who          who
	state        *object // replaced when it changes, never modified
	tags         []string
	systemID     string
	system       []byte // the response body of GET /v1/messages/{systemID}
	sigs         []signature
	life         *life    // nil if the agent is scripted
	ids          []string // the ids that replace the recorded ids in life; nil keeps the recorded ids
	sends        int
	runs         []*run
	deleteFailed bool // a request to delete the agent has already failed
	looks        [lookKinds]int

	// planning is held while a reply is planned. It makes sure that the sends to an agent are
	// planned one after the other.
	planning sync.Mutex
	history  history
}

// modelFlags contains the settings of an agent's model that affect its answers.
type modelFlags struct {
	Tokens    bool `json:"return_token_ids"` // if false, answers have no turns
	Reasoning bool `json:"enable_reasoner"`  // if true, text before tool calls stays in later prompts
}

func flagsOf(state *object) (f modelFlags) {
	_ = json.Unmarshal(state.values["llm_config"], &f)
	return f
}

var agentName = regexp.MustCompile(`^[\w '\-]+$`)

type newAgent struct {
	Name     *string         `json:"name"`
	Model    string          `json:"model"`
	System   *string         `json:"system"`
	Tags     []string        `json:"tags"`
	Metadata json.RawMessage `json:"metadata"`
	ToolIDs  []string        `json:"tool_ids"`
	Tools    []string        `json:"tools"`
	Window   int             `json:"context_window_limit"`
	Timezone string          `json:"timezone"`
	Settings *modelSettings  `json:"model_settings"`
}

type modelSettings struct {
	Temperature json.Number `json:"temperature"`
}

func (s *Server) createAgent(q *request) answer {
	var n newAgent
	if a := q.decode(&n); a != nil {
		return *a
	}
	if n.Name != nil && !agentName.MatchString(*n.Name) {
		return detail(http.StatusInternalServerError, "Export failed: Agent name '%s' contains invalid characters. Only letters (any language), digits, spaces, hyphens, underscores, and apostrophes are allowed.", *n.Name)
	}
	switch {
	case n.Model == "":
		return detail(http.StatusBadRequest, "INVALID_ARGUMENT: Must specify either model or llm_config in request")
	case !strings.Contains(n.Model, "/"):
		return detail(http.StatusBadRequest, "INVALID_ARGUMENT: The model handle should be in the format provider/model-name")
	case !slices.Contains(s.handles(), n.Model):
		return s.noModel(n.Model)
	}
	a, problem := s.makeAgent(n)
	if problem != nil {
		return *problem
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(s.look(a, LookCreate).state(s.stateOf(a)).append(nil))
}

func (s *Server) makeAgent(n newAgent) (*agent, *answer) {
	a := &agent{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order++
	a.order = s.order
	var named bool
	if a.who, named = identity(n.Metadata); !named {
		s.anonymous++
		a.who = who{sample: s.anonymous - 1, attempt: 1}
	}
	if f := s.cfg.Faults.find(s.cfg.Seed, a.who, -1, func(k FaultKind) bool { return k == CreateFails }); f != nil {
		s.stats.Faults[CreateFails]++
		return nil, new(detail(http.StatusInternalServerError, unknownError))
	}
	a.life = s.lives[caseName(a.who.task)]
	if a.life != nil && s.cfg.KeepIDs {
		a.id = a.life.ids.names[a.life.agentNumber()]
		if s.agents[a.id] != nil {
			return nil, new(detail(http.StatusConflict, "CONFLICT: case %s keeps its recorded ids, and its agent %s still exists", a.life.name, a.id))
		}
	}
	for i := 0; a.id == "" || s.agents[a.id] != nil; i++ {
		a.id = "agent-" + s.drawFor(a.who, "agent", strconv.Itoa(i)).uuid()
	}
	a.scripted(s, n)
	if a.life != nil {
		a.replay(s)
	}
	a.describe(n)
	s.agents[a.id] = a
	s.systems[a.systemID] = a
	s.stats.AgentsCreated++
	s.stats.AgentsAlive++
	return a, nil
}

func (s *Server) drawFor(w who, words ...string) *rng {
	return draw(s.cfg.Seed, append(words, w.task, strconv.Itoa(w.sample), strconv.Itoa(w.attempt))...)
}

func (a *agent) scripted(s *Server, n newAgent) {
	o := s.base.clone()
	handle, window := n.Model, contextWindow
	if n.Window > 0 {
		window = min(window, n.Window)
	}
	tokens := !plain(handle)
	if f := s.cfg.Faults.find(s.cfg.Seed, a.who, -1, func(k FaultKind) bool { return k == PlainAgent }); f != nil {
		s.stats.Faults[PlainAgent]++
		tokens = false
	}
	o.text("id", a.id)
	o.text("name", "agent-"+a.id[6:14])
	now := s.cfg.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	o.text("created_at", now)
	o.text("updated_at", now)
	o.text("model", handle)
	o.set("llm_config", llmConfig(handle, window, tokens, n.Settings))
	base := "You are a careful assistant."
	if n.System != nil {
		base = *n.System
	}
	o.text("system", base)
	if n.Timezone != "" {
		o.text("timezone", n.Timezone)
	}
	tools := s.toolsFor(n)
	o.set("tools", tools)
	a.sigs = signatures(tools)
	a.systemID = "message-" + s.drawFor(a.who, "system", a.id).uuid()
	o.set("message_ids", quoteAll(nil, []string{a.systemID}))
	a.state = o
	a.setSystem(base + systemTail)
}

func (s *Server) toolsFor(n newAgent) []byte {
	if len(n.ToolIDs) == 0 && len(n.Tools) == 0 {
		var all [][]byte
		for _, t := range s.tools[:min(len(s.tools), len(builtinTools))] {
			all = append(all, t.raw)
		}
		return array(all)
	}
	var out [][]byte
	for _, t := range s.tools {
		if slices.Contains(n.ToolIDs, t.id) || slices.Contains(n.Tools, t.name) {
			out = append(out, t.raw)
		}
	}
	return array(out)
}

// describe sets the agent's name, tags and metadata to the values in n, if n contains them.
func (a *agent) describe(n newAgent) {
	o := a.state.clone()
	if n.Name != nil {
		o.text("name", *n.Name)
	}
	if n.Tags != nil {
		a.tags = n.Tags
		o.set("tags", quoteAll(nil, n.Tags))
	}
	if n.Metadata != nil {
		o.set("metadata", n.Metadata)
	}
	a.state = o
}

// identity parses the task, the sample and the attempt in the metadata. The result named is false
// if the metadata does not contain a task id.
func identity(metadata json.RawMessage) (w who, named bool) {
	var m struct {
		Rollout struct {
			TaskID  string `json:"task_id"`
			Sample  int    `json:"sample_index"`
			Attempt int    `json:"attempt"`
		} `json:"rollout"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || m.Rollout.TaskID == "" {
		return who{}, false
	}
	return who{task: m.Rollout.TaskID, sample: m.Rollout.Sample, attempt: max(1, m.Rollout.Attempt)}, true
}

// stateOf returns the agent's current state. The caller holds Server.mu.
func (s *Server) stateOf(a *agent) *object {
	o := a.state.clone()
	ids := []string{a.systemID}
	for _, r := range a.runs {
		if !s.finished(r) {
			continue
		}
		for _, m := range r.source.messages() {
			ids = append(ids, messageID(m))
		}
		if stop := r.source.state().string("stop_reason"); a.life == nil && stop != "" {
			o.text("last_stop_reason", stop)
		}
	}
	if len(ids) > 1 {
		o.set("message_ids", quoteAll(nil, ids))
	}
	return o
}

// findAgent returns the agent with this id, or an error answer. The caller holds Server.mu.
func (s *Server) findAgent(id string) (*agent, *answer) {
	if !isID(id, "agent") {
		return nil, new(badID("agent"))
	}
	if a := s.agents[id]; a != nil {
		return a, nil
	}
	return nil, new(detail(http.StatusNotFound, "Agent with ID %s not found", id))
}

func (s *Server) getAgent(q *request, a *agent) answer {
	o := s.look(a, LookAgent).state(s.stateOf(a))
	if !q.legacy() {
		withRelations(o, q.URL.Query()["include"])
	}
	return ok(o.append(nil))
}

// withRelations empties the relations that are not in include. Clients since version 1.0 must
// request each relation.
func withRelations(o *object, include []string) {
	for _, relation := range []string{"blocks", "tools", "sources", "tags", "secrets", "identities"} {
		if !slices.Contains(include, "agent."+relation) {
			o.set(relation, []byte("[]"))
		}
	}
}

func (s *Server) patchAgent(q *request, a *agent) answer {
	var n newAgent
	if an := q.decode(&n); an != nil {
		return *an
	}
	patch, err := parseObject(q.body)
	if err != nil {
		return undecoded(q.body, err)
	}
	if w, named := identity(n.Metadata); named && a.sends == 0 {
		a.who = w
		if l := s.lives[caseName(w.task)]; l != nil && a.life == nil && !s.cfg.KeepIDs {
			s.bind(a, l)
		}
	}
	a.describe(n)
	o := a.state.clone()
	for _, key := range []string{"llm_config", "description", "message_buffer_autoclear", "timezone", "model_settings", "tool_rules"} {
		if v, given := patch.values[key]; given {
			o.set(key, v)
		}
	}
	if n.System != nil {
		o.text("system", *n.System)
	}
	o.text("updated_at", s.cfg.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	a.state = o
	return ok(s.stateOf(a).append(nil))
}

func (s *Server) deleteAgent(_ *request, a *agent) answer {
	if !a.deleteFailed {
		if f := s.cfg.Faults.find(s.cfg.Seed, a.who, -1, func(k FaultKind) bool { return k == DeleteFails }); f != nil {
			a.deleteFailed = true
			s.stats.Faults[DeleteFails]++
			return detail(http.StatusInternalServerError, "An unknown error occurred")
		}
	}
	delete(s.agents, a.id)
	for key, owner := range s.systems {
		if owner == a && (key == a.systemID || a.life != nil) {
			delete(s.systems, key)
		}
	}
	for key, c := range s.conversations {
		if c.agent == a {
			delete(s.conversations, key)
		}
	}
	for _, r := range a.runs {
		s.forget(r)
	}
	s.stats.AgentsAlive--
	s.stats.AgentsDeleted++
	return ok([]byte(`{"message":"Agent id=` + a.id + ` successfully deleted"}`))
}
