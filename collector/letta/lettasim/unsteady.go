package lettasim

import "bytes"

// A Face is what a look at a replayed agent shows: its tools in another order, and
// another text somewhere in its system message or its tools. The real server reads an
// agent anew for every request, its tools in no order, and anybody may change it
// between two requests. The zero value is what was recorded.
type Face struct {
	// Rotate moves that many tools from the front of the list to its end.
	Rotate int
	// Old is replaced by New wherever it stands. Both are plain text that JSON does not
	// escape, and should be as many tokens, or the counts of the steps are wrong.
	Old, New string
}

// A Look is one reading of an agent by the server, for a client or for itself.
type Look struct {
	Sample int // by the agent's metadata
	Kind   LookKind
	N      int // which of this kind, from 0
}

// A LookKind says what an agent is read for.
type LookKind int

// The kinds of looks. A send is one, whatever the number of its calls.
const (
	LookCreate LookKind = iota // the answer to the create
	LookAgent                  // GET of the agent
	LookSystem                 // GET of its system message
	LookSend
	lookKinds
)

// A Given is the truth about one call of a replayed agent: what the model was given.
type Given struct {
	AgentID  string
	Send     int
	InputIDs []int32
	Output   []int32
}

// look is the face of the agent's next look of that kind. Server.mu is held.
func (s *Server) look(a *agent, kind LookKind) Face {
	if s.cfg.Face == nil || a.life == nil {
		return Face{}
	}
	n := a.looks[kind]
	a.looks[kind]++
	return s.cfg.Face(Look{Sample: a.who.sample, Kind: kind, N: n})
}

// give notes what the calls of a replayed send were given. Server.mu is held.
func (s *Server) give(a *agent, n int, f Face) {
	if s.cfg.Prompt == nil {
		return
	}
	for _, c := range a.life.exchanges[n].calls {
		s.given = append(s.given, Given{AgentID: a.id, Send: n, InputIDs: s.cfg.Prompt(c.prompt, f), Output: c.output})
	}
}

// Given returns what the model was given in every replayed call so far, in the order
// of the calls of each send. It is kept where Config.Prompt is set.
func (s *Server) Given() []Given {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Given(nil), s.given...)
}

// text is b with the face's text. b may be changed.
func (f Face) text(b []byte) []byte {
	if f.Old == "" {
		return b
	}
	return bytes.ReplaceAll(b, []byte(f.Old), []byte(f.New))
}

// state is an AgentState with the face.
func (f Face) state(o *object) *object {
	if f == (Face{}) {
		return o
	}
	o = o.clone()
	o.set("tools", f.text(f.rotated(o.values["tools"])))
	return o
}

// trace is a provider trace with the face.
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

// rotated is a JSON array with the face's order.
func (f Face) rotated(list []byte) []byte {
	items := split(list)
	if len(items) < 2 {
		return list
	}
	k := f.Rotate % len(items)
	return array(append(append([][]byte(nil), items[k:]...), items[:k]...))
}
