package lettasim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// The server plans a send and registers its run while holding the agent's planning lock. It then
// waits for the latency and writes the answer. Once the run is registered, it completes even if the
// client disconnects.

// A sendBody contains the members of a LettaRequest that the simulator uses.
type sendBody struct {
	Messages     []message       `json:"messages"`
	Input        json.RawMessage `json:"input"`
	MaxSteps     *int            `json:"max_steps"`
	StreamTokens bool            `json:"stream_tokens"`
	Background   bool            `json:"background"`
	IncludePings *bool           `json:"include_pings"`
	TokenIDs     bool            `json:"return_token_ids"`
	Logprobs     bool            `json:"return_logprobs"`
}

type message struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type reply struct {
	status      int
	contentType string
	run         *run // the last run that the send started
	due         time.Time
	parts       func() [][]byte
	fault       *Fault
	answer      Answer
}

func (s *Server) sendToAgent(q *request) answer {
	return s.send(q, q.args[0], modeOf(q.body), false)
}

func (s *Server) send(q *request, agentID string, mode sendMode, conversation bool) answer {
	s.mu.Lock()
	a, problem := s.findAgent(agentID)
	var l *life
	if a != nil {
		if a.life == nil && a.who.task == "" && a.sends == 0 && !s.cfg.KeepIDs {
			if l := s.lives[marker(q.body)]; l != nil {
				s.bind(a, l)
			}
		}
		l = a.life
	}
	s.mu.Unlock()

	var body sendBody
	if l == nil { // a replayed agent returns its recorded answer to any request
		if an := q.decode(&body); an != nil {
			return *an
		}
		if an := body.check(); an != nil {
			return *an
		}
	}
	if problem != nil {
		return *problem
	}
	if an := s.checkMode(q, a, &body, mode); an != nil {
		return *an
	}

	s.mu.Lock()
	s.stats.Sends++
	s.stats.InFlight++
	s.stats.MaxInFlight = max(s.stats.MaxInFlight, s.stats.InFlight)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.stats.InFlight--
		s.mu.Unlock()
	}()

	p, early := s.plan(q, a, &body, mode, conversation)
	if early != nil {
		return *early
	}
	if mode == modeBackground {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ok(s.stateOfRun(p.run).append(nil))
	}
	if !s.wait(q, p) {
		return answer{} // the client disconnected; the run continues
	}
	if mode.streams() {
		return s.deliverEvents(q, p)
	}
	return s.deliver(q, p)
}

var caseMarker = regexp.MustCompile(`\[case:([^\]\\"]+)\]`)

func marker(body []byte) string {
	if m := caseMarker.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return ""
}

// check rejects a body that the real server rejects.
func (b *sendBody) check() *answer {
	given := len(b.Input) > 0 && string(b.Input) != "null"
	switch {
	case given == (b.Messages != nil):
		return new(unprocessable("value_error", "'body',", "Value error, Either messages or input must be provided, not both"))
	case !given && len(b.Messages) == 0:
		return new(detail(http.StatusUnprocessableEntity, "Messages must not be empty"))
	}
	for i, m := range b.Messages {
		switch m.Type {
		case "", "message":
			if m.Role != "user" && m.Role != "system" && m.Role != "assistant" {
				return new(unprocessable("literal_error", fmt.Sprintf("'body', 'messages', %d, 'function-after[generate_otid_if_missing(), MessageCreate]', 'role'", i), "Input should be user, system or assistant"))
			}
			if plainText(m.Content) == "" {
				return new(detail(http.StatusBadRequest, "Message content is empty or invalid"))
			}
		case "approval", "tool_return":
			return new(detail(http.StatusBadRequest, "Cannot process approval response: No tool call is currently awaiting approval. If the last approval request was already processed, this may be a duplicate."))
		default:
			return new(unprocessable("literal_error", fmt.Sprintf("'body', 'messages', %d, 'function-after[generate_otid_if_missing(), MessageCreate]', 'type'", i), "Input should be message"))
		}
	}
	return nil
}

func (b *sendBody) texts() []string {
	var out []string
	if b.Messages == nil {
		return append(out, plainText(b.Input))
	}
	for _, m := range b.Messages {
		out = append(out, plainText(m.Content))
	}
	return out
}

const unknownError = "An unknown error occurred"

// plan determines the answer to the send and registers its runs.
func (s *Server) plan(q *request, a *agent, body *sendBody, mode sendMode, conversation bool) (*reply, *answer) {
	a.planning.Lock()
	defer a.planning.Unlock()
	s.mu.Lock()
	n, l := a.sends, a.life
	f := s.cfg.Faults.find(s.cfg.Seed, a.who, n, func(k FaultKind) bool { return k.ofSend(l == nil) })
	if f != nil {
		s.stats.Faults[f.Kind]++
	}
	if f != nil && f.Kind == Lost {
		s.mu.Unlock()
		reset(q.w)
		return nil, &answer{}
	}
	if refused := refusal(f); refused != nil { // refused before there is a run
		s.mu.Unlock()
		return nil, refused
	}
	a.sends++
	state, sigs, tags, system := a.state, a.sigs, a.tags, a.systemText()
	began := s.cfg.Now()
	due := s.due(began, s.cfg.Latency.at(s.drawFor(a.who, "latency", strconv.Itoa(n))))
	s.mu.Unlock()

	p := &reply{
		status: http.StatusOK, contentType: "application/json", fault: f, due: due,
		answer: Answer{Task: a.who.task, Sample: a.who.sample, Attempt: a.who.attempt, Send: n, AgentID: a.id},
	}
	if f != nil {
		p.answer.Fault = f.Kind
	}
	enter := func(id string, source runSource, stepIDs []string) {
		r := &run{id: id, agent: a, requestID: q.Header.Get("x-api-request-log-id"), mode: mode, due: p.due, cancelled: make(chan struct{}), source: source}
		p.run = r
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.agents[a.id] == a { // otherwise the agent was deleted in the meantime
			s.enter(r, stepIDs)
		}
	}
	switch {
	case f != nil && (f.Kind == EngineDown || f.Kind == NullCall):
		s.planFailure(p, a, n, f.Kind, due, state, enter)
	case l != nil:
		if n >= len(l.exchanges) {
			return nil, new(detail(http.StatusBadRequest, "lettasim: case %s has %d recorded sends; this is number %d", l.name, len(l.exchanges), n+1))
		}
		s.planReplay(p, a, l, n, enter)
	default:
		s.planScript(q, p, &scriptPlan{agent: a, n: n, body: body, state: state, sigs: sigs, tags: tags, system: system, due: due, began: began, conversation: conversation, fault: f}, enter)
	}
	if p.run == nil {
		p.run = &run{due: due, cancelled: make(chan struct{})}
	}
	p.answer.RunID = p.run.id
	if p.status == http.StatusOK {
		s.mu.Lock()
		p.run.answer = p.answer
		s.mu.Unlock()
	}
	return p, nil
}

// refusal returns the answer to a send that the fault f refuses before there is a run. If f does
// not refuse the send, refusal returns nil.
func refusal(f *Fault) *answer {
	if f == nil {
		return nil
	}
	var a answer
	switch f.Kind {
	case DatabaseFull:
		a = detail(http.StatusInternalServerError, unknownError)
	case Unavailable:
		a = detail(http.StatusServiceUnavailable, "Service is temporarily unavailable. Please try again later.")
		a.retryAfter = f.After
	case TooMany:
		a = answer{status: http.StatusTooManyRequests, body: []byte(`{"error":{"type":"llm_rate_limit","message":"Rate limit exceeded for LLM model provider.","detail":"(simulated)"}}`)}
		if a.retryAfter = f.After; a.retryAfter == 0 {
			a.retryAfter = time.Second
		}
	case Conflict:
		a = detail(http.StatusConflict, "CONFLICT: the object was changed by another request; try again")
		a.retryAfter = f.After
	default:
		return nil
	}
	return &a
}

type enterRun func(id string, source runSource, stepIDs []string)

// planFailure plans a send that fails because of the engine or because of an invalid model output.
func (s *Server) planFailure(p *reply, a *agent, n int, kind FaultKind, due time.Time, state *object, enter enterRun) {
	ids := s.drawFor(a.who, "failed", a.id, strconv.Itoa(n))
	r := &failedRun{
		runHead: runHead{id: "run-" + ids.uuid(), agent: a.id, handle: state.string("model"), began: s.cfg.Now(), ended: due},
		stepID:  "step-" + ids.uuid(), stop: "error", errorType: "HTTPStatusError",
		problem: "Server error '503 Service Unavailable' for url 'http://127.0.0.1:30000/generate'\nFor more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/503",
	}
	told := unknownError
	p.status = http.StatusInternalServerError
	if kind == NullCall {
		r.stop, r.errorType = "invalid_llm_response", "ValidationError"
		r.problem = "1 validation error for FunctionCall\narguments\n  Input should be a valid string [type=string_type, input_value=None, input_type=NoneType]\n    For further information visit https://errors.pydantic.dev/2.11/v/string_type"
		told, p.status = r.problem, http.StatusBadRequest
	}
	body := detail(p.status, "%s", told).body
	p.parts = func() [][]byte { return [][]byte{body} }
	enter(r.id, r, []string{r.stepID})
}

// planReplay plans the n-th exchange in a life.
func (s *Server) planReplay(p *reply, a *agent, l *life, n int, enter enterRun) {
	x := &l.exchanges[n]
	s.mu.Lock()
	f := s.look(a, LookSend)
	s.recordPrompts(a, n, f)
	s.mu.Unlock()
	for _, rec := range x.runs {
		r := &replayedRun{rec: rec, ids: a.ids, face: f}
		ids := make([]string, len(rec.steps))
		for k := range ids {
			ids[k] = r.step(k).string("id")
		}
		enter(r.state().string("id"), r, ids)
	}
	p.status, p.contentType = x.status, x.contentType
	p.parts = func() [][]byte { return [][]byte{x.body.with(a.ids)} }
	p.answer.Sampled, p.answer.Digest = x.sampled, x.digest
}

type scriptPlan struct {
	agent        *agent
	n            int
	body         *sendBody
	state        *object
	sigs         []signature
	tags         []string
	system       string
	began, due   time.Time
	conversation bool
	fault        *Fault
}

func (s *Server) planScript(q *request, p *reply, in *scriptPlan, enter enterRun) {
	a := in.agent
	flags := flagsOf(in.state)
	tokens, keep := flags.Tokens, flags.Reasoning
	if !in.conversation && (in.body.TokenIDs || in.body.Logprobs) {
		tokens = tokens && in.body.TokenIDs // if the request sets only one flag, the other is off
	}
	words := []string{"script", a.who.task, strconv.Itoa(a.who.sample), strconv.Itoa(in.n)}
	w := author{shape: s.cfg.Script, r: draw(s.cfg.Seed, words...), system: in.system, sigs: in.sigs, keepsText: keep}
	if in.body.MaxSteps != nil {
		w.maxSteps = *in.body.MaxSteps
	}
	if in.fault != nil {
		w.fault = in.fault.Kind
	}
	ids := s.drawFor(a.who, "run", a.id, strconv.Itoa(in.n))
	r := &scriptedRun{
		runHead: runHead{id: "run-" + ids.uuid(), agent: a.id, handle: in.state.string("model"), began: in.began, ended: in.due},
		seed:    s.cfg.Seed, tags: in.tags, tools: in.state.values["tools"], config: in.state.values["llm_config"], keepsText: keep,
		conversation: in.conversation, inputIDs: s.cfg.InputIDs && !s.cfg.BareTraces, trainer: &s.trainer,
	}
	var cached *cachedScript
	switch n := s.cfg.BodyCache; {
	case s.cfg.Engine != "":
		if !s.planEngine(q, p, in, r, &w, ids, enter) {
			return
		}
	case n > 0:
		cached = s.cached(draw(s.cfg.Seed, words...).n(n))
		r.script = cached.script
	default:
		r.script, _ = w.write(&a.history, in.body.texts()) // only an engine can cause an error
	}
	if s.cfg.Engine == "" {
		r.end(in.fault, draw(s.cfg.Seed, append(words, "mangle")...))
		for range r.script.calls {
			r.stepIDs = append(r.stepIDs, "step-"+ids.uuid())
		}
		s.trainer.assign(r, a, in.n)
		enter(r.id, r, r.stepIDs)
	}
	p.parts = func() [][]byte {
		s.mu.Lock()
		final := *r // the run might have been canceled in the meantime
		s.mu.Unlock()
		if cached != nil && tokens && final.mangle == (mangle{}) && final.script == cached.script {
			return [][]byte{final.appendHead(nil), cached.tail}
		}
		return [][]byte{final.appendHead(nil), final.script.appendTail(nil, s.cfg.InputIDs, tokens, final.mangle)}
	}
	if s.cfg.KeepAnswers && tokens {
		if cached != nil {
			p.answer.Sampled, p.answer.Digest = cached.sampled, cached.digest
		} else {
			p.answer.Sampled, p.answer.Digest = r.script.digest()
		}
	}
}

// end applies a data fault to the script.
func (r *scriptedRun) end(f *Fault, at *rng) {
	if f == nil {
		return
	}
	sc := r.script
	switch f.Kind {
	case StopError:
		r.script = sc.upTo(len(sc.calls), "error")
	case StopCancelled:
		r.script = sc.upTo(max(1, len(sc.calls)-1), "cancelled")
	case StopUnknown:
		r.script = sc.upTo(len(sc.calls), "lost_interest")
	case Abort, AbortEarly, LengthCall: // the author has already applied these faults
	default:
		r.mangle = newMangle(f.Kind, sc, at)
	}
}

// wait waits until the send is due or canceled. It returns false if the client disconnected.
func (s *Server) wait(q *request, p *reply) bool {
	if left := p.due.Sub(s.cfg.Now()); left > 0 {
		_ = wait.For(q.Context(), left, p.run.cancelled)
	}
	return q.Context().Err() == nil
}
