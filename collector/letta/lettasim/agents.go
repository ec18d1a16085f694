package lettasim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An agent is one agent of the server. Its identity does not change; the rest is
// guarded by Server.mu, and what is below planning by planning too.
type agent struct {
	id    string
	order int64

	who      who
	state    *object // replaced, never changed in place
	tags     []string
	systemID string
	system   []byte // what GET /v1/messages/{systemID} answers
	prompt   string // the system text itself
	sigs     []signature
	life     *life    // nil: scripted
	ids      []string // of the life; nil: as recorded
	sends    int
	runs     []*run
	spared   bool // a deletion failed already
	looks    [lookKinds]int

	// planning is held while a reply is planned: the sends of one agent see each
	// other's history in the order in which they came.
	planning sync.Mutex
	history  history
}

// plain says whether the agent answers without turns.
func (a *agent) plain() bool {
	var c struct {
		Tokens bool `json:"return_token_ids"`
	}
	_ = json.Unmarshal(a.state.values["llm_config"], &c)
	return !c.Tokens
}

// keepsReasoning says whether text before tool calls stays in later prompts.
func (a *agent) keepsReasoning() bool {
	var c struct {
		Reasoner bool `json:"enable_reasoner"`
	}
	_ = json.Unmarshal(a.state.values["llm_config"], &c)
	return c.Reasoner
}

var agentName = regexp.MustCompile(`^[\w '\-]+$`)

// A newAgent is what lettasim reads of a body that creates an agent.
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
}

func (s *Server) createAgent(q *request) answer {
	var n newAgent
	if a := q.decode(&n); a != nil {
		return *a
	}
	if n.Name != nil && !agentName.MatchString(*n.Name) {
		return detail(http.StatusInternalServerError, "An unknown error occurred")
	}
	switch {
	case n.Model == "":
		return detail(http.StatusBadRequest, "Must specify either model or llm_config in request")
	case !strings.Contains(n.Model, "/"):
		return detail(http.StatusBadRequest, "model handle must be in the format 'provider/model-name', got '%s'", n.Model)
	case !slices.Contains(s.handles(), n.Model):
		return detail(http.StatusNotFound, "NOT_FOUND: Handle %s not found, must be one of ['%s']", n.Model, strings.Join(s.handles(), "', '"))
	}
	a, problem := s.makeAgent(n)
	if problem != nil {
		return *problem
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(s.look(a, LookCreate).state(s.stateOf(a)).append(nil))
}

// makeAgent makes an agent and enters it.
func (s *Server) makeAgent(n newAgent) (*agent, *answer) {
	refuse := func(an answer) (*agent, *answer) { return nil, &an }
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
		return refuse(detail(http.StatusInternalServerError, "An unknown error occurred"))
	}
	a.life = s.lives[caseName(a.who.task)]
	if a.life != nil && s.cfg.KeepIDs {
		a.id = a.life.ids.names[a.life.agentNumber()]
		if s.agents[a.id] != nil {
			return refuse(detail(http.StatusConflict, "CONFLICT: case %s keeps its recorded ids, and its agent %s is alive", a.life.name, a.id))
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

// drawFor starts a stream for the attempt.
func (s *Server) drawFor(w who, words ...string) *rng {
	return draw(s.cfg.Seed, append(words, w.task, strconv.Itoa(w.sample), strconv.Itoa(w.attempt))...)
}

// scripted gives the agent the state of a scripted one.
func (a *agent) scripted(s *Server, n newAgent) {
	o := s.base.clone()
	handle, window := n.Model, s.cfg.ContextWindow
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
	o.set("llm_config", s.llmConfig(handle, window, tokens))
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

// systemTail is what the server appends to a system text. The id in it is that
// of no agent, as in agents imported from one file: so all samples of a task
// share one prompt.
const systemTail = "\n\n\n\n<memory_metadata>\n- AGENT_ID: agent-00000000-0000-4000-8000-000000000000\n- CONVERSATION_ID: default\n" +
	"- System prompt last recompiled: 2026-01-05 09:59:58 AM UTC+0000\n- 0 previous messages between you and the user are stored in recall memory\n</memory_metadata>"

func (a *agent) setSystem(text string) {
	a.prompt = text
	out := quote([]byte(`[{"id":`), a.systemID)
	out = append(out, `,"date":"2026-01-05T09:59:58+00:00","name":null,"message_type":"system_message","otid":null,"sender_id":null,"step_id":null,"is_err":null,"seq_id":null,"run_id":null,"content":`...)
	a.system = append(quote(out, text), `}]`...)
}

// toolsFor returns the tools that an agent asks for, or the built-in ones.
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

// replay gives the agent the recorded state of its life.
func (a *agent) replay(s *Server) {
	l := a.life
	if !s.cfg.KeepIDs {
		a.ids = make([]string, len(l.ids.names))
		for i, name := range l.ids.names {
			prefix := name[:len(name)-36]
			a.ids[i] = prefix + draw(s.cfg.Seed, "replayed", a.id, name).uuid()
		}
		a.ids[l.agentNumber()] = a.id
	}
	o, err := parseObject(l.agent.with(a.ids))
	if err != nil {
		return // a case is checked when it is loaded
	}
	if !s.cfg.KeepIDs {
		o.set("created_at", a.state.values["created_at"])
		o.set("updated_at", a.state.values["updated_at"])
	}
	a.state = o
	a.sigs = nil
	var ids []string
	_ = json.Unmarshal(o.values["message_ids"], &ids)
	if len(ids) > 0 {
		a.systemID = ids[0]
	}
	a.system = l.system.with(a.ids)
}

// agentNumber is the number of the recorded agent's own id.
func (l *life) agentNumber() int {
	id := ""
	members(l.agent.raw, func(key string, from, to int) {
		if key == "id" {
			id = string(l.agent.raw[from+1 : to-1])
		}
	})
	return l.ids.number[id]
}

// describe sets what a client may say of any agent.
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

// identity reads who an agent is from its metadata.
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

// caseName is the case that a task id names, if there is such a case.
func caseName(task string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(task, "case:"), "#")
	return name
}

// stateOf is the agent's state as it is now. Server.mu is held.
func (s *Server) stateOf(a *agent) *object {
	o := a.state.clone()
	ids := []string{a.systemID}
	for _, r := range a.runs {
		if s.finished(r) {
			for _, m := range r.source.messages() {
				ids = append(ids, messageID(m))
			}
		}
	}
	if len(ids) > 1 {
		o.set("message_ids", quoteAll(nil, ids))
	}
	return o
}

// findAgent returns the agent of the path or what to answer instead. Server.mu is
// held.
func (s *Server) findAgent(id string) (*agent, *answer) {
	if !isID(id, "agent") {
		a := badID("agent")
		return nil, &a
	}
	if a := s.agents[id]; a != nil {
		return a, nil
	}
	a := detail(http.StatusNotFound, "Agent with ID %s not found", id)
	return nil, &a
}

func (s *Server) getAgent(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, problem := s.findAgent(q.args[0])
	if problem != nil {
		return *problem
	}
	o := s.look(a, LookAgent).state(s.stateOf(a))
	if !q.legacy() {
		include := q.URL.Query()["include"]
		for _, relation := range []string{"blocks", "tools", "sources", "tags", "secrets", "identities"} {
			if !slices.Contains(include, "agent."+relation) {
				o.set(relation, []byte("[]"))
			}
		}
	}
	return ok(o.append(nil))
}

func (s *Server) patchAgent(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, problem := s.findAgent(q.args[0])
	if problem != nil {
		return *problem
	}
	patch, err := parseObject(q.body)
	if err != nil {
		return unprocessable("json_invalid", "'body'", "JSON decode error")
	}
	var n newAgent
	if an := q.decode(&n); an != nil {
		return *an
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

// bind makes a scripted agent that has not spoken yet a replayed one. Server.mu is
// held.
func (s *Server) bind(a *agent, l *life) {
	name, tags, metadata := a.state.values["name"], a.state.values["tags"], a.state.values["metadata"]
	a.life = l
	a.replay(s)
	a.state.set("name", name)
	a.state.set("tags", tags)
	a.state.set("metadata", metadata)
	s.systems[a.systemID] = a
}

func (s *Server) deleteAgent(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := q.args[0]
	if !isID(id, "agent") {
		return badID("agent")
	}
	a := s.agents[id]
	if a == nil {
		return detail(http.StatusNotFound, "NoResultFound: Agent not found with id=['%s'] in organization_id=%s; query: SELECT agents.id, agents.name FROM agents WHERE agents.id = '%s' AND agents.is_deleted = false", id, organization, id)
	}
	if !a.spared {
		if f := s.cfg.Faults.find(s.cfg.Seed, a.who, -1, func(k FaultKind) bool { return k == DeleteFails }); f != nil {
			a.spared = true
			s.stats.Faults[DeleteFails]++
			return detail(http.StatusInternalServerError, "An unknown error occurred")
		}
	}
	delete(s.agents, id)
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
	return ok([]byte(`{"message":"Agent id=` + id + ` successfully deleted"}`))
}

// agentsFor returns the agents that the query asks for, oldest first. Server.mu
// is held.
func (s *Server) agentsFor(query url.Values) []*agent {
	tags, all := query["tags"], query.Get("match_all_tags") == "true"
	name := query.Get("name")
	var list []*agent
	for _, a := range s.agents {
		if len(tags) > 0 {
			hits := 0
			for _, t := range tags {
				if slices.Contains(a.tags, t) {
					hits++
				}
			}
			if hits == 0 || all && hits < len(tags) {
				continue
			}
		}
		if name == "" || a.state.string("name") == name {
			list = append(list, a)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].order < list[j].order })
	return list
}

func (s *Server) listAgents(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := q.URL.Query()
	ascending := query.Get("order") == "asc" || query.Get("ascending") == "true"
	list := page(s.agentsFor(query), func(a *agent) string { return a.id }, query, ascending, 50)
	out := make([][]byte, len(list))
	for i, a := range list {
		out[i] = s.stateOf(a).append(nil)
	}
	return ok(array(out))
}

func (s *Server) countAgents(*request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(strconv.AppendInt(nil, int64(len(s.agents)), 10))
}

// page applies order, cursors and limit to a list that is oldest first.
func page[T any](list []T, id func(T) string, query url.Values, ascending bool, limit int) []T {
	if !ascending {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	if after := query.Get("after"); after != "" {
		if i := slices.IndexFunc(list, func(v T) bool { return id(v) == after }); i >= 0 {
			list = list[i+1:]
		}
	}
	if before := query.Get("before"); before != "" {
		if i := slices.IndexFunc(list, func(v T) bool { return id(v) == before }); i >= 0 {
			list = list[:i]
		}
	}
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n >= 0 {
		limit = min(n, 1000)
	}
	return list[:min(limit, len(list))]
}

// exportAgent answers with an agent file: the state and the system message.
func (s *Server) exportAgent(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, problem := s.findAgent(q.args[0])
	if problem != nil {
		return *problem
	}
	o := a.state.clone()
	o.set("messages", append(append([]byte(`[{"type":"message","role":"system","content":[{"type":"text","text":`), quote(nil, a.systemText())...), `}]}]`...))
	body := o.append([]byte(`{"agents":[`))
	return ok(append(body, `],"groups":[],"blocks":[],"files":[],"sources":[],"tools":[],"mcp_servers":[],"metadata":{"revision_id":"lettasim"},"created_at":null}`...))
}

// systemText is the text of the agent's system message.
func (a *agent) systemText() string {
	var list []struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(a.system, &list) != nil || len(list) == 0 {
		return ""
	}
	return list[0].Content
}

// importAgent makes an agent from an agent file. Its system text stays as the
// file has it, so all imports of one file have one prompt.
func (s *Server) importAgent(q *request) answer {
	bad := func(text string) answer { return detail(http.StatusBadRequest, "Invalid agent file: %s", text) }
	form := q.Clone(q.Context())
	form.Body = io.NopCloser(strings.NewReader(string(q.body)))
	if err := form.ParseMultipartForm(maxRequestBytes); err != nil {
		return unprocessable("missing", "'body', 'file'", "Field required")
	}
	file, _, err := form.FormFile("file")
	if err != nil {
		return unprocessable("missing", "'body', 'file'", "Field required")
	}
	defer func() { _ = file.Close() }() // only read
	text, err := io.ReadAll(file)
	if err != nil {
		return bad("unreadable")
	}
	var af struct {
		Agents []struct {
			newAgent
			LLMConfig struct {
				Handle string `json:"handle"`
			} `json:"llm_config"`
			Tools    []json.RawMessage `json:"tools"`
			Messages []struct {
				Role    string
				Content json.RawMessage
			} `json:"messages"`
		} `json:"agents"`
	}
	if err := json.Unmarshal(text, &af); err != nil || len(af.Agents) != 1 {
		return bad("want the v2 format with one agent")
	}
	in := af.Agents[0]
	n := in.newAgent
	if n.Model == "" {
		n.Model = in.LLMConfig.Handle
	}
	if m := form.FormValue("model"); m != "" {
		n.Model = m
	}
	if !slices.Contains(s.handles(), n.Model) {
		return detail(http.StatusNotFound, "NOT_FOUND: Handle %s not found, must be one of ['%s']", n.Model, strings.Join(s.handles(), "', '"))
	}
	name := form.FormValue("name")
	if name == "" && n.Name != nil {
		name = *n.Name
	}
	if form.FormValue("append_copy_suffix") != "false" {
		name += "_copy"
	}
	n.Name = &name
	a, problem := s.makeAgent(n)
	if problem != nil {
		return *problem
	}
	s.mu.Lock()
	if a.life == nil {
		for _, m := range in.Messages {
			if m.Role == "system" {
				a.setSystem(plainText(m.Content))
				break
			}
		}
		if len(in.Tools) > 0 {
			raw := make([][]byte, len(in.Tools))
			for i, t := range in.Tools {
				raw[i] = t
			}
			o := a.state.clone()
			o.set("tools", array(raw))
			a.state, a.sigs = o, signatures(array(raw))
		}
	}
	s.mu.Unlock()
	return ok(append(quoteAll([]byte(`{"agent_ids":`), []string{a.id}), '}'))
}

// plainText is the text of a content: a string, or parts joined by newlines.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n")
}

func (s *Server) resetMessages(q *request) answer {
	s.mu.Lock()
	a, problem := s.findAgent(q.args[0])
	s.mu.Unlock()
	if problem != nil {
		return *problem
	}
	if len(q.body) == 0 {
		return unprocessable("missing", "'body'", "Field required")
	}
	a.planning.Lock()
	a.history = history{}
	a.planning.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.life != nil {
		return detail(http.StatusBadRequest, "lettasim: a recorded life cannot be reset")
	}
	a.setSystem(fmt.Sprintf("%s\n- reset at %s", a.prompt, s.cfg.Now().UTC().Format(time.RFC3339)))
	if !q.legacy() {
		return ok([]byte("null"))
	}
	return ok(s.stateOf(a).append(nil))
}

func (s *Server) getMessage(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.systems[q.args[0]]; a != nil {
		return ok(s.look(a, LookSystem).text(a.system))
	}
	for _, r := range s.runs {
		if s.finished(r) {
			for _, m := range r.source.messages() {
				if messageID(m) == q.args[0] {
					return ok(array([][]byte{m}))
				}
			}
		}
	}
	return detail(http.StatusNotFound, "Message with id %s not found", q.args[0])
}

// messageID reads the id of a message.
func messageID(m []byte) string { return member(m, "id") }

// member reads a member that is a plain string, empty where it is none.
func member(b []byte, key string) string {
	value := ""
	members(b, func(k string, from, to int) {
		if k == key && to-from >= 2 && b[from] == '"' {
			value = string(b[from+1 : to-1])
		}
	})
	return value
}
