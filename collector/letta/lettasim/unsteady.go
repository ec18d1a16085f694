package lettasim

import "bytes"

// A Face is the view of a replayed agent in one look: the order of its tools, and the text of its
// system message and tools. On the real server, the view can vary, because the server reloads an
// agent for every request, with the tools in any order. Clients can also change the agent between
// requests. The zero value shows the agent as recorded.
type Face struct {
	// Rotate is the number of tools to move from the front of the list to its end.
	Rotate int
	// Old is replaced with New everywhere. Old and New must not contain characters that JSON
	// escapes. They should have the same number of tokens, because otherwise the token counts in the
	// steps are wrong.
	Old, New string
}

// A Look is one occasion on which the server loads an agent, for a client or for its own use.
type Look struct {
	Sample int // sample index in the agent's metadata
	Kind   LookKind
	N      int // index of the look among the agent's looks of this kind, from 0
}

// A LookKind is the purpose of a look.
type LookKind int

// The kinds of looks. A send is one look, even if it has several calls.
const (
	LookCreate LookKind = iota // answer to the request that creates the agent
	LookAgent                  // GET of the agent
	LookSystem                 // GET of its system message
	LookSend
	lookKinds
)

// A Given is one call of a replayed agent, with the true prompt of the model.
type Given struct {
	AgentID  string
	Send     int
	InputIDs []int32
	Output   []int32
}

// look returns the face for the agent's next look of this kind. The caller holds Server.mu.
func (s *Server) look(a *agent, kind LookKind) Face {
	if s.cfg.Face == nil || a.life == nil {
		return Face{}
	}
	n := a.looks[kind]
	a.looks[kind]++
	return s.cfg.Face(Look{Sample: a.who.sample, Kind: kind, N: n})
}

// recordPrompts records the true prompts of a replayed send. The caller holds Server.mu.
func (s *Server) recordPrompts(a *agent, n int, f Face) {
	if s.cfg.Prompt == nil {
		return
	}
	for _, c := range a.life.exchanges[n].calls {
		s.given = append(s.given, Given{AgentID: a.id, Send: n, InputIDs: s.cfg.Prompt(c.prompt, f), Output: c.output})
	}
}

// Given returns all replayed calls so far. The calls in each send are in order. Config.Prompt must
// be set.
func (s *Server) Given() []Given {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Given(nil), s.given...)
}

// text returns b with Old replaced with New.
func (f Face) text(b []byte) []byte {
	if f.Old == "" {
		return b
	}
	return bytes.ReplaceAll(b, []byte(f.Old), []byte(f.New))
}

func (f Face) state(o *object) *object {
	if f == (Face{}) {
		return o
	}
	o = o.clone()
	o.set("tools", f.text(f.rotated(o.values["tools"])))
	return o
}

func (f Face) trace(b []byte) []byte {
	members(b, func(key string, from, to int) {
		if key != "request_json" || f.Rotate == 0 {
			return
		}
		if o, err := parseObject(b[from:to]); err == nil && o.values["tools"] != nil {
			o.set("tools", f.rotated(o.values["tools"]))
			b = append(append(append([]byte(nil), b[:from]...), o.append(nil)...), b[to:]...)
		}
	})
	return f.text(b)
}

func (f Face) rotated(list []byte) []byte {
	items := split(list)
	if len(items) < 2 {
		return list
	}
	k := f.Rotate % len(items)
	return array(append(append([][]byte(nil), items[k:]...), items[:k]...))
}
