package lettasim

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Server is a simulated Letta server. It implements [http.Handler] and does not start goroutines.
type Server struct {
	cfg     Config
	lives   map[string]*life
	scripts scriptCache
	engine  http.Client
	trainer trainer
	base    *object // initial state of scripted agents

	// mu guards the fields below. It is not held while a reply is rendered or written.
	mu            sync.Mutex
	order         int64 // number of agents created, for the order of lists
	agents        map[string]*agent
	runs          map[string]*run
	steps         map[string]*step
	systems       map[string]*agent // by the id of the system message
	conversations map[string]*conversation
	tools         []*tool
	keptTraces    map[string]func() []byte
	keptOrder     []string // keys of keptTraces, as a ring buffer
	keptNext      int
	anonymous     int // number of agents created without metadata
	stats         Stats
	answers       []Answer
	refusing      *answer // the answer to every request; nil if requests are not refused
	given         []Given
	busyUntil     []time.Time // one entry for each of the Config.Capacity places
	connected     int         // number of database connections in use
}

// New returns a server. The caller must serve it over HTTP.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:           cfg.withDefaults(),
		lives:         map[string]*life{},
		agents:        map[string]*agent{},
		runs:          map[string]*run{},
		steps:         map[string]*step{},
		systems:       map[string]*agent{},
		conversations: map[string]*conversation{},
		keptTraces:    map[string]func() []byte{},
	}
	s.busyUntil = make([]time.Time, s.cfg.Capacity)
	s.stats.Faults = map[FaultKind]int64{}
	s.stats.Requests = map[string]int64{}
	for _, c := range s.cfg.Cases {
		s.lives[c.Name] = c.life(s.cfg.InputIDs, s.cfg.InputIDs && !s.cfg.BareTraces)
	}
	var err error
	if s.base, err = parseObject([]byte(baseAgent)); err != nil {
		return nil, fmt.Errorf("lettasim: internal error: base agent: %w", err)
	}
	for _, t := range builtinTools {
		s.tools = append(s.tools, newTool(t.source, nil, nil, draw(s.cfg.Seed, "tool", t.name)))
	}
	s.engine.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 5 * time.Second}
	s.trainer.Weights, s.trainer.began = s.cfg.Weights, s.cfg.Now()
	s.scripts.entries = make([]cachedScript, s.cfg.BodyCache)
	return s, nil
}

// HTTPServer returns an http.Server for s. Like the real server, it closes connections after 5 s
// without a request.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{Handler: s, IdleTimeout: 5 * time.Second, ReadHeaderTimeout: time.Minute}
}

type request struct {
	*http.Request
	w    http.ResponseWriter
	args []string // the path segments that match {} in the route
	body []byte
}

// An answer is the response of a route. If body is nil, the response has already been written, or
// the client disconnected.
type answer struct {
	status     int
	body       []byte
	retryAfter time.Duration
}

const maxRequestBytes = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a := s.dispatch(&request{Request: r, w: w}); a.body != nil {
		s.write(w, a)
	}
}

// dispatch counts the request and returns the answer from its route.
func (s *Server) dispatch(q *request) answer {
	route, args, allowed := match(q.Method, q.URL.Path)
	name, other, redirected := "unknown", "", false
	switch {
	case route != nil:
		name, q.args = route.name(), args
	case !allowed:
		if other, redirected = otherSlash(q.Method, q.URL.Path); redirected {
			name = "redirect"
		}
	}
	s.mu.Lock()
	s.stats.Requests[name]++
	s.mu.Unlock()
	switch {
	case redirected:
		return s.redirect(q, other)
	case route == nil && allowed:
		return detail(http.StatusMethodNotAllowed, "Method Not Allowed")
	case route == nil:
		return detail(http.StatusNotFound, "Not Found")
	case !route.open && !s.authorized(q.Request):
		return detail(http.StatusUnauthorized, "Unauthorized")
	}
	if strings.HasPrefix(q.URL.Path, "/sim/") {
		return route.serve(s, q)
	}
	if a := s.refused(); a != nil {
		return *a
	}
	if !route.open && !s.queried() {
		return detail(http.StatusInternalServerError, unknownError)
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.Body, maxRequestBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return detail(http.StatusRequestEntityTooLarge, "request body too large")
	case err != nil:
		return answer{} // the client disconnected
	}
	q.body = body
	return route.serve(s, q)
}

// queried occupies a database connection for Database.Takes. If no connection is free, it returns
// false at once.
func (s *Server) queried() bool {
	db := s.cfg.Database
	if db == (Database{}) {
		return true
	}
	s.mu.Lock()
	full := db.Connections > 0 && s.connected >= db.Connections
	if !full {
		s.connected++
	}
	s.mu.Unlock()
	if full {
		return false
	}
	time.Sleep(db.Takes)
	s.mu.Lock()
	s.connected--
	s.mu.Unlock()
	return true
}

// authorized reports whether the request has the password, or whether no password is required.
func (s *Server) authorized(r *http.Request) bool {
	if s.cfg.Password == "" {
		return true
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	bare, _ := strings.CutPrefix(r.Header.Get("X-BARE-PASSWORD"), "password ")
	same := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(s.cfg.Password)) == 1 }
	return same(bearer) || same(bare)
}

func (s *Server) redirect(q *request, path string) answer {
	target := "http://" + q.Host + path
	if q.URL.RawQuery != "" {
		target += "?" + q.URL.RawQuery
	}
	q.w.Header().Set("Location", target)
	return answer{status: http.StatusTemporaryRedirect, body: []byte{}}
}

// write writes an answer, with its length, in a single write.
func (s *Server) write(w http.ResponseWriter, a answer) {
	h := w.Header()
	h.Set("Server", "uvicorn")
	if len(a.body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int(a.retryAfter.Round(time.Second)/time.Second))))
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	n, _ := w.Write(a.body) // an error means that the client disconnected
	s.mu.Lock()
	s.stats.BytesSent += int64(n)
	s.mu.Unlock()
}

func ok(body []byte) answer { return answer{status: http.StatusOK, body: body} }

func detail(status int, format string, args ...any) answer {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	return answer{status: status, body: append(quote([]byte(`{"detail":`), text), '}')}
}

// unprocessable returns a validation error. As on the real server, its detail is the text of a
// Python list, not JSON.
func unprocessable(kind, loc, msg string) answer {
	body := append(quote([]byte(`{"trace_id":"","detail":`), fmt.Sprintf("[{'type': '%s', 'loc': (%s), 'msg': '%s'}]", kind, loc, msg)), '}')
	return answer{status: http.StatusUnprocessableEntity, body: body}
}

func notFound(kind, id string) answer {
	return detail(http.StatusNotFound, "%s not found with id='['%s']', access level in ['read'] for actor='id='%s' organization_id='%s' name='default_user''", kind, id, user, organization)
}

func badID(prefix string) answer {
	text := fmt.Sprintf("[{'type': 'string_pattern_mismatch', 'loc': ('path', '%s_id'), 'msg': \"String should match pattern '%s-{uuid4}'\"}]", prefix, prefix)
	body := quote([]byte(`{"trace_id":"","detail":`), text)
	body = append(body, `,"examples":["`+prefix+`-123e4567-e89b-42d3-8456-426614174000"]}`...)
	return answer{status: http.StatusUnprocessableEntity, body: body}
}

// decode decodes the request's body into v. An empty body leaves v unchanged.
func (q *request) decode(v any) *answer {
	if len(q.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(q.body, v); err != nil {
		return new(undecoded(q.body, err))
	}
	return nil
}

// undecoded returns the error for a body that is not JSON or that has a member of the wrong type.
func undecoded(body []byte, err error) answer {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field == "":
		return unprocessable("model_attributes_type", "'body',", "Input should be a valid dictionary or object to extract fields from")
	case ok:
		kind, want := "dict", "dictionary"
		switch wrong.Type.Kind() {
		case reflect.String:
			kind, want = "string", "string"
		case reflect.Int:
			kind, want = "int", "integer"
		case reflect.Bool:
			kind, want = "bool", "boolean"
		case reflect.Slice:
			kind, want = "list", "list"
		}
		return unprocessable(kind+"_type", "'body', '"+strings.ReplaceAll(wrong.Field, ".", "', '")+"'", "Input should be a valid "+want)
	}
	at := len(body)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = int(syntax.Offset)
	}
	return unprocessable("json_invalid", "'body', "+strconv.Itoa(at), "JSON decode error")
}

// legacy reports whether the request's headers show a client that is older than the SDKs of version
// 1.0.
func (q *request) legacy() bool {
	agent := q.UserAgent()
	return agent != "" && q.Header.Get("X-Stainless-Package-Version") == "" &&
		!strings.HasPrefix(agent, "letta-client/1.") && !strings.HasPrefix(agent, "@letta-ai/letta-client/1.")
}
