package lettasim

import (
	"net/http"
	"regexp"
	"strings"
)

// A route is a method and a path pattern. In a pattern, {} matches one segment.
type route struct {
	method, pattern string
	open            bool // requires no password
	serve           handler
}

type handler func(*Server, *request) answer

// locked returns a handler that holds Server.mu while serve runs.
func locked(serve handler) handler {
	return func(s *Server, q *request) answer {
		s.mu.Lock()
		defer s.mu.Unlock()
		return serve(s, q)
	}
}

// The function found returns a handler that finds the object whose id is in the path and passes it
// to serve. The handler holds Server.mu. If missing is not nil, missing returns the answer for an
// unknown id.
func found[T any](find func(*Server, string) (T, *answer), missing func(id string) answer, serve func(*Server, *request, T) answer) handler {
	return locked(func(s *Server, q *request) answer {
		v, problem := find(s, q.args[0])
		switch {
		case problem == nil:
			return serve(s, q, v)
		case problem.status == http.StatusNotFound && missing != nil:
			return missing(q.args[0])
		}
		return *problem
	})
}

func missing(kind string) func(id string) answer {
	return func(id string) answer { return notFound(kind, id) }
}

func emptyList(string) answer { return ok([]byte("[]")) }

func agentNotFound(string) answer { return detail(http.StatusNotFound, "Agent not found") }

func (r *route) name() string { return r.method + " " + strings.ReplaceAll(r.pattern, "{}", "{id}") }

// routes are tried in order. Only the paths of collections end with a slash. A path with a missing
// or extra slash is redirected.
var routes = []route{
	{"GET", "/v1/health/", true, (*Server).health},
	{"GET", "/v1/ready/", true, (*Server).health},
	{"GET", "/v1/models/", false, (*Server).listModels},

	{"GET", "/v1/agents/", false, locked((*Server).listAgents)},
	{"POST", "/v1/agents/", false, (*Server).createAgent},
	{"GET", "/v1/agents/count", false, locked((*Server).countAgents)},
	{"POST", "/v1/agents/import", false, (*Server).importAgent},
	{"GET", "/v1/agents/{}", false, found((*Server).findAgent, nil, (*Server).getAgent)},
	{"PATCH", "/v1/agents/{}", false, found((*Server).findAgent, missing("Agent"), (*Server).patchAgent)},
	{"DELETE", "/v1/agents/{}", false, found((*Server).findAgent, missing("Agent"), (*Server).deleteAgent)},
	{"GET", "/v1/agents/{}/export", false, locked((*Server).exportAgent)},
	{"GET", "/v1/agents/{}/messages", false, found((*Server).findAgent, agentNotFound, (*Server).agentMessages)},
	{"POST", "/v1/agents/{}/messages", false, (*Server).sendToAgent},
	{"POST", "/v1/agents/{}/messages/cancel", false, (*Server).cancelAgent},
	{"POST", "/v1/agents/{}/messages/async", false, (*Server).sendAsync},
	{"POST", "/v1/agents/{}/messages/stream", false, (*Server).streamToAgent},

	{"GET", "/v1/messages/{}", false, locked((*Server).getMessage)},

	{"GET", "/v1/conversations/", false, locked((*Server).listConversations)},
	{"POST", "/v1/conversations/", false, locked((*Server).createConversation)},
	{"GET", "/v1/conversations/{}", false, found((*Server).findConversation, nil, (*Server).getConversation)},
	{"DELETE", "/v1/conversations/{}", false, found((*Server).findConversation, nil, (*Server).deleteConversation)},
	{"GET", "/v1/conversations/{}/messages", false, (*Server).conversationMessages},
	{"POST", "/v1/conversations/{}/messages", false, (*Server).sendToConversation},

	{"GET", "/v1/runs/", false, locked((*Server).listRuns)},
	{"GET", "/v1/runs/{}", false, found((*Server).findRun, nil, (*Server).getRun)},
	{"GET", "/v1/runs/{}/messages", false, found((*Server).findRun, nil, (*Server).runMessages)},
	{"GET", "/v1/runs/{}/steps", false, found((*Server).findRun, nil, (*Server).runSteps)},

	{"GET", "/v1/steps/", false, (*Server).listSteps},
	{"GET", "/v1/steps/{}", false, found((*Server).findStep, nil, (*Server).getStep)},
	{"GET", "/v1/steps/{}/metrics", false, found((*Server).findStep, missing("StepMetrics"), (*Server).stepMetrics)},
	{"GET", "/v1/steps/{}/trace", false, (*Server).stepTrace},
	{"PATCH", "/v1/steps/{}/feedback", false, (*Server).stepFeedback},
	{"GET", "/v1/steps/{}/messages", false, found((*Server).findStep, emptyList, (*Server).stepMessages)},

	{"GET", "/v1/tools/", false, locked((*Server).listTools)},
	{"POST", "/v1/tools/", false, locked((*Server).makeTool)},
	{"PUT", "/v1/tools/", false, locked((*Server).makeTool)},
	{"POST", "/v1/tools/run", false, (*Server).runTool},
	{"GET", "/v1/tools/{}", false, locked((*Server).getTool)},
	{"DELETE", "/v1/tools/{}", false, locked((*Server).deleteTool)},

	// The pages of the simulated engine (see Config.Weights).
	{"GET", "/model_info", true, (*Server).modelInfo},
	{"GET", "/get_model_info", true, (*Server).modelInfo},
}

// Routes returns the simulated routes in the form "METHOD PATH", with {id} for an id.
func Routes() []string {
	names := make([]string, len(routes))
	for i := range routes {
		names[i] = routes[i].name()
	}
	return names
}

// match finds the route for a method and path, and the values of {} in its pattern. The result
// allowed reports whether a route with this path exists for any method. The path prefix /latest is
// an alias for /v1.
func match(method, path string) (found *route, args []string, allowed bool) {
	if rest, ok := strings.CutPrefix(path, "/latest/"); ok {
		path = "/v1/" + rest
	}
	table := routes
	if strings.HasPrefix(path, "/sim/") {
		table = adminRoutes
	}
	for i := range table {
		r := &table[i]
		got, fits := fit(r.pattern, path)
		if !fits {
			continue
		}
		if r.method == method {
			return r, got, true
		}
		allowed = true
	}
	return nil, nil, allowed
}

func fit(pattern, path string) (args []string, fits bool) {
	for {
		i := strings.Index(pattern, "{}")
		if i < 0 {
			return args, pattern == path
		}
		if !strings.HasPrefix(path, pattern[:i]) {
			return nil, false
		}
		pattern, path = pattern[i+2:], path[i:]
		end := strings.IndexByte(path, '/')
		if end < 0 {
			end = len(path)
		}
		if end == 0 {
			return nil, false
		}
		args = append(args, path[:end])
		path = path[end:]
	}
}

// otherSlash returns the path with the final slash added or removed, and whether a route exists for
// the result.
func otherSlash(method, path string) (string, bool) {
	other, had := strings.CutSuffix(path, "/")
	if !had {
		other = path + "/"
	}
	r, _, _ := match(method, other)
	return other, r != nil
}

var uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// isID reports whether id consists of prefix, a hyphen and a UUID.
func isID(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, prefix+"-")
	return ok && uuidText.MatchString(rest)
}

func (s *Server) health(*request) answer {
	body := append(quote([]byte(`{"version":`), s.cfg.Version), `,"status":"ok"}`...)
	return ok(body)
}
