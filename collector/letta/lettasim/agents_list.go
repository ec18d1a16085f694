package lettasim

import (
	"net/url"
	"slices"
	"sort"
	"strconv"
)

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

func (s *Server) countAgents(q *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(strconv.AppendInt(nil, int64(len(s.agentsFor(q.URL.Query()))), 10))
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
