package lettasim

import (
	"net/url"
	"slices"
	"sort"
	"strconv"
)

// agentsFor returns the agents that match the query, oldest first. The caller holds Server.mu.
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
	query := q.URL.Query()
	if problem := checkPage(query, 0); problem != nil {
		return *problem
	}
	ascending := query.Get("order") == "asc" || query.Get("ascending") == "true"
	list := page(s.agentsFor(query), func(a *agent) string { return a.id }, query, ascending, 50)
	out := make([][]byte, len(list))
	for i, a := range list {
		o := s.stateOf(a)
		if !q.legacy() {
			withRelations(o, query["include"])
		}
		out[i] = o.append(nil)
	}
	return ok(array(out))
}

func (s *Server) countAgents(q *request) answer {
	return ok(strconv.AppendInt(nil, int64(len(s.agentsFor(q.URL.Query()))), 10))
}

// checkPage rejects an invalid limit or order. The parameter most is the highest allowed limit, or
// 0 for no maximum.
func checkPage(query url.Values, most int) *answer {
	refuse := func(kind, name, msg string) *answer {
		return new(unprocessable(kind, "'query', '"+name+"'", msg))
	}
	if text := query.Get("limit"); text != "" {
		switch n, err := strconv.Atoi(text); {
		case err != nil:
			return refuse("int_parsing", "limit", "Input should be a valid integer, unable to parse string as an integer")
		case most > 0 && n < 1:
			return refuse("greater_than_equal", "limit", "Input should be greater than or equal to 1")
		case most > 0 && n > most:
			return refuse("less_than_equal", "limit", "Input should be less than or equal to "+strconv.Itoa(most))
		}
	}
	if order := query.Get("order"); order != "" && order != "asc" && order != "desc" {
		return refuse("literal_error", "order", "Input should be 'asc' or 'desc'")
	}
	return nil
}

// The function between returns the elements that are newer than the cursor "after" and older than
// the cursor "before". The list must be sorted oldest first. The requested order does not affect
// the cursors. Adjacent elements can have the same id.
func between[T any](list []T, id func(T) string, query url.Values) (out []T, unknown string) {
	out = list
	find := func(cursor string) int {
		return slices.IndexFunc(out, func(v T) bool { return id(v) == query.Get(cursor) })
	}
	if query.Has("before") {
		i := find("before")
		if i < 0 {
			return nil, query.Get("before")
		}
		out = out[:i]
	}
	if query.Has("after") {
		i := find("after")
		if i < 0 {
			return nil, query.Get("after")
		}
		for i < len(out) && id(out[i]) == query.Get("after") {
			i++
		}
		out = out[i:]
	}
	query.Del("before")
	query.Del("after")
	return out, ""
}

// page applies the order, the cursors and the limit to a list that is sorted oldest first.
func page[T any](list []T, id func(T) string, query url.Values, ascending bool, limit int) []T {
	if !ascending {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	find := func(cursor string) int {
		return slices.IndexFunc(list, func(v T) bool { return query.Has(cursor) && id(v) == query.Get(cursor) })
	}
	from, to := find("after")+1, len(list)
	if i := find("before"); i >= 0 {
		to = i
	}
	list = list[min(from, to):to]
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n >= 0 {
		limit = min(n, 1000)
	}
	return list[:min(limit, len(list))]
}
