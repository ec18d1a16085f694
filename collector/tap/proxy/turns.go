package proxy

import (
	linked "container/list"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// turns keeps the answers of open sessions, so that continuity can recognize them in later requests.
// See Continuity in the package comment.
type turns struct {
	mu       sync.Mutex
	sessions map[string]*linked.Element
	used     linked.List // of *history; the session that was used last is at the front
	bytes    int64
}

const (
	// maxHistory limits the memory for the answers of one session, and maxHistories the memory for
	// all sessions. If a session needs more, its further answers are not kept. If all sessions need
	// more, the sessions that were used least recently are forgotten.
	maxHistory   = 4 << 20
	maxHistories = 256 << 20
	// maxIdle is the time after which a session without a call is forgotten.
	maxIdle = time.Hour
)

// A history contains the answers of one session, by the place after which they came.
type history struct {
	id    string    // of the session
	used  time.Time // protected by turns.mu
	bytes int64     // protected by turns.mu

	mu      sync.RWMutex
	answers map[place]*site
	full    bool // an answer was not kept
}

// A site contains the answers that came after a place.
type site struct {
	answers []*said
	// seen contains the matches of messages, by the sum of the message. It is cleared for every new
	// answer, because the answer could make a match ambiguous.
	seen map[sum]match
}

// A match is the answer that a message is, and the edits to the message. If the message is not an
// answer, said is nil.
type match struct {
	said  *said
	edits []edit
}

// bytes returns how much more memory the texts in the edits take than the answer.
func (m *match) bytes() (n int64) {
	for _, e := range m.edits {
		n += int64(len(e.text))
	}
	if m.said != nil {
		n -= m.said.bytes()
	}
	return n
}

// maxSeen limits the number of matches at a site. Usually, a client writes an answer in one form.
const maxSeen = 4

// A place is a list of messages, and the tools of the request: the sum over all of them. If a
// message was recognized as an answer, the place contains the answer and not the message. So the
// place does not depend on how the client wrote the answer.
type place sum

func placeOf(tools json.RawMessage) place { return place(sumOf(tools)) }

func (p place) after(kind byte, s sum) place {
	var b [33]byte
	copy(b[:], p[:])
	copy(b[16:], s[:])
	b[32] = kind
	return place(sumOf(b[:]))
}

func newTurns() *turns { return &turns{sessions: map[string]*linked.Element{}} }

// of returns the history of a session. If the session has none, of returns nil, or a new history if
// create is true.
func (t *turns) of(id string, create bool) *history {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.sessions[id]
	switch {
	case e != nil:
		t.used.MoveToFront(e)
	case !create:
		return nil
	default:
		e = t.used.PushFront(&history{id: id, answers: map[place]*site{}})
		t.sessions[id] = e
	}
	h := e.Value.(*history) //nolint:forcetypeassert // the list contains nothing else
	h.used = time.Now()
	return h
}

// forget frees the history of a session.
func (t *turns) forget(id string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.sessions[id]; e != nil {
		t.remove(e)
	}
}

func (t *turns) remove(e *linked.Element) {
	h := t.used.Remove(e).(*history) //nolint:forcetypeassert // the list contains nothing else
	delete(t.sessions, h.id)
	t.bytes -= h.bytes
}

// size returns the approximate memory of all histories.
func (t *turns) size() int64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// hold accounts for n more bytes of h. It returns false if h would become too large. It forgets
// other sessions if that is needed.
func (t *turns) hold(h *history, n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.bytes+n > maxHistory {
		return false
	}
	e := t.sessions[h.id]
	if e == nil || e.Value != h {
		return false // it was forgotten meanwhile
	}
	h.bytes += n
	t.bytes += n
	for last := t.used.Back(); last != nil && last != e; last = t.used.Back() {
		if x := last.Value.(*history); t.bytes <= maxHistories && time.Since(x.used) < maxIdle { //nolint:forcetypeassert // the list contains nothing else
			break
		}
		t.remove(last)
	}
	return true
}

// add keeps an answer. at is the place of its request.
func (t *turns) add(id string, at place, a *said) {
	h := t.of(id, true)
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.answers[at]
	if x != nil && slices.ContainsFunc(x.answers, func(b *said) bool { return b.sum == a.sum && b.full == a.full && b.wild == a.wild }) {
		return
	}
	h.full = h.full || !t.hold(h, a.bytes())
	switch {
	case h.full && x == nil:
	case h.full: // the answer could be any message
		h.answers[at] = &site{answers: []*said{{wild: true}}}
	case x == nil:
		h.answers[at] = &site{answers: []*said{a}}
	default:
		x.answers, x.seen = append(x.answers, a), nil
	}
}

// match returns the answer after a place that the message is. s is the sum of the message.
func (h *history) match(at place, message []byte, s sum) (m match) {
	if h == nil {
		return m
	}
	h.mu.RLock()
	x := h.answers[at]
	if x == nil {
		h.mu.RUnlock()
		return m
	}
	answers := x.answers
	m, known := x.seen[s]
	h.mu.RUnlock()
	if known {
		return m
	}
	m = matchOf(answers, message)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(x.answers) == len(answers) && len(x.seen) < maxSeen && m.bytes() <= saidBytes {
		if x.seen == nil {
			x.seen = map[sum]match{}
		}
		x.seen[s] = m
	}
	return m
}

// matchOf returns the only answer that the message can be. If several answers with the same texts
// can be it, any of them is returned.
func matchOf(answers []*said, message []byte) (m match) {
	t, ok := parseTurn(string(message))
	if !ok {
		return m
	}
	var found *said
	full := false
	for _, a := range answers {
		switch {
		case a.wild:
			return m
		case !a.is(&t):
			continue
		case found != nil && found.sum != a.sum:
			return m
		}
		found, full = a, full || a.full
	}
	if !full {
		return m
	}
	return match{found, found.edits(&t)}
}

// splice returns the place of a request, and the edits to its body that replace the answers in it
// with the answers of the engine.
func (t *turns) splice(id string, q *chatRequest) (at place, edits []edit) {
	h := t.of(id, false)
	at = placeOf(q.tools)
	for i, text := range q.messages {
		s := sumOf(text)
		m := h.match(at, text, s)
		if m.said == nil {
			at = at.after('m', s)
			continue
		}
		for _, e := range m.edits {
			e.from, e.to = e.from+q.messagesAt[i], e.to+q.messagesAt[i]
			edits = append(edits, e)
		}
		at = at.after('a', m.said.sum)
	}
	return at, edits
}
