package lettasim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The routes under /sim/ control the simulator. Tests use these routes instead of the Go API if the
// server runs in another process. The routes do not require a password. Real servers do not have
// such routes.
//
//	GET  /sim/answers   Server.Answers, as a JSON array
//	GET  /sim/stats     Server.Stats
//	POST /sim/refuse    Server.Refuse: ?status=503&retry_after=89s, ?status=0 ends the refusals
var adminRoutes = []route{
	{"GET", "/sim/answers", true, (*Server).serveAnswers},
	{"GET", "/sim/stats", true, (*Server).serveStats},
	{"POST", "/sim/refuse", true, (*Server).setRefusal},
}

func (s *Server) serveAnswers(*request) answer { return serveJSON(s.Answers()) }
func (s *Server) serveStats(*request) answer   { return serveJSON(s.Stats()) }

func serveJSON(v any) answer {
	b, err := json.Marshal(v)
	if err != nil {
		return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
	}
	return ok(b)
}

func (s *Server) setRefusal(q *request) answer {
	query := q.URL.Query()
	status, err := strconv.Atoi(query.Get("status"))
	if err != nil || status != 0 && (status < 400 || status > 599) {
		return detail(http.StatusBadRequest, "status: want 0, or 400 to 599")
	}
	var after time.Duration
	if text := query.Get("retry_after"); text != "" {
		if after, err = time.ParseDuration(text); err != nil {
			return detail(http.StatusBadRequest, "retry_after: want a duration such as 89s")
		}
	}
	s.Refuse(status, after)
	return ok([]byte(`{}`))
}

// Refuse makes the server answer every API request with the given status. If retryAfter is
// positive, the answers have the header Retry-After. Refuse(0, 0) makes the server answer normally
// again. Runs in progress continue.
func (s *Server) Refuse(status int, retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusing = nil
	if status != 0 {
		a := detail(status, "%s", fmt.Sprintf("(simulated) %s", http.StatusText(status)))
		a.retryAfter = retryAfter
		s.refusing = &a
	}
}

func (s *Server) refused() *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing != nil {
		s.stats.Refused++
	}
	return s.refusing
}
