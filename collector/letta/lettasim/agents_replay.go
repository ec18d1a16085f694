package lettasim

import (
	"encoding/json"
	"strings"
)

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
		return // cannot happen, because LoadCases has checked the case
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

func (l *life) agentNumber() int {
	return l.ids.number[member(l.agent.raw, "id")]
}

// bind turns a scripted agent without sends into a replayed agent. The caller holds Server.mu.
func (s *Server) bind(a *agent, l *life) {
	name, tags, metadata := a.state.values["name"], a.state.values["tags"], a.state.values["metadata"]
	a.life = l
	a.replay(s)
	a.state.set("name", name)
	a.state.set("tags", tags)
	a.state.set("metadata", metadata)
	s.systems[a.systemID] = a
}

// caseName returns the name of the case to which a task id refers, if there is such a case.
func caseName(task string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(task, "case:"), "#")
	return name
}
