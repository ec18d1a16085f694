package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
)

// A marker adds a member to an answer. The member records how the Continuer changed the prompt:
//
//	"meta_info": {…, "rollout": {"continuity": true, "spliced": 2}}
//
// spliced is the number of turns in which the engine's prompt differs from the server's prompt. The
// marker adds the member to each JSON document: to the answer itself or to each event in a stream.
// If a document has no meta_info, as in OpenAI's API, the marker adds this object. It does not
// change anything else. The member comes last in meta_info, because many parsers, such as Python's,
// use the last of several members with the same name. If a proxy closer to the engine has already
// added such a member, spliced is the sum of both numbers.
//
// The marker does not hold back any bytes, and does not change a body that is not JSON.
type marker struct {
	spliced int
	stream  bool
	added   bool // the body contains a mark

	// These fields describe the current line of a stream.
	head []byte // the first bytes of the line, at most len("data:")
	skip bool   // the line has no data
	any  bool   // the line is not empty

	// These fields describe the current document.
	off      bool    // the document is not JSON, or it is complete
	depth    int     // number of open brackets
	base     int     // depth inside the document's object: 1, or 2 in a list of objects; 0 outside
	meta     int     // depth inside meta_info; 0 outside
	marked   bool    // the member was added to the object
	empty    [2]bool // whether the object and meta_info are still empty, by depth
	text     bool    // the next byte is inside a string
	escaped  bool    // the last byte was a backslash
	wantsKey bool    // the next string, or the current one, is a key
	word     []byte  // the current key, or the value of "rollout"
	words    bool    // the next bytes belong to word
	key      string  // the last key in the object or in meta_info
	inner    int     // number of spliced turns that another proxy reported
}

// maxWordBytes limits the length of a key and of a mark from another proxy. Longer keys and marks
// are not parsed.
const maxWordBytes = 128

const (
	metaKey = "meta_info"
	markKey = "rollout"
)

// append appends the next bytes of the answer, b, to dst and inserts the mark into each document.
func (m *marker) append(dst, b []byte) []byte {
	for _, c := range b {
		if m.stream && !m.data(c) {
			dst = append(dst, c)
			continue
		}
		dst = m.next(dst, c)
	}
	return dst
}

// data processes the next byte of a stream, c. It reports whether the byte belongs to the data of
// an event.
func (m *marker) data(c byte) bool {
	const field = "data:"
	switch c {
	case '\n':
		if !m.any {
			m.document() // an empty line ends the event
		}
		m.head, m.skip, m.any = m.head[:0], false, false
		return false
	case '\r':
		return false
	}
	m.any = true
	switch {
	case m.skip:
		return false
	case len(m.head) < len(field):
		m.head = append(m.head, c)
		m.skip = m.head[len(m.head)-1] != field[len(m.head)-1]
		return false
	}
	return true
}

func (m *marker) document() {
	*m = marker{spliced: m.spliced, stream: m.stream, added: m.added, head: m.head, word: m.word[:0]}
}

func (m *marker) next(dst []byte, c byte) []byte {
	if m.off {
		return append(dst, c)
	}
	if m.words && len(m.word) <= maxWordBytes {
		m.word = append(m.word, c)
	}
	if m.text {
		switch {
		case m.escaped:
			m.escaped = false
		case c == '\\':
			m.escaped = true
		case c == '"':
			m.text = false
			if m.wantsKey {
				m.keyed()
			}
		}
		return append(dst, c)
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return append(dst, c)
	}
	if m.depth == 0 && c != '{' && c != '[' {
		m.off = true // a scalar
		return append(dst, c)
	}
	if at := m.depth - m.base; m.base > 0 && at >= 0 && at < len(m.empty) && c != '}' {
		m.empty[at] = false
	}
	switch c {
	case '"':
		m.text = true
		if m.wantsKey = m.wantsKey && m.names(); m.wantsKey {
			m.word, m.words = append(m.word[:0], c), true
		}
	case ',':
		m.valued()
		m.wantsKey = true
	case ':':
		m.wantsKey = false
		if m.meta > 0 && m.depth == m.meta && m.key == markKey {
			m.word, m.words = m.word[:0], true
		}
	case '{', '[':
		m.open(c)
	case '}', ']':
		return append(m.close(dst, c), c)
	}
	return append(dst, c)
}

// names reports whether the marker needs the keys at this depth. It needs only the keys of the
// document's object and of meta_info.
func (m *marker) names() bool { return m.base > 0 && (m.depth == m.base || m.depth == m.meta) }

func (m *marker) keyed() {
	m.words, m.wantsKey, m.key = false, false, ""
	if json.Unmarshal(m.word, &m.key) != nil {
		m.key = "" // keys that the marker needs are shorter
	}
}

func (m *marker) open(c byte) {
	m.depth++
	m.wantsKey = c == '{'
	switch {
	case m.base == 0 && c == '{' && m.depth <= 2:
		m.base, m.meta, m.marked, m.inner, m.key = m.depth, 0, false, 0, ""
		m.empty = [2]bool{true, true}
	case m.base == 0 && m.depth > 1:
		m.off = true // a list of lists is not a document
	case c == '{' && m.meta == 0 && m.depth == m.base+1 && m.key == metaKey:
		m.meta, m.key = m.depth, ""
		m.empty[m.depth-m.base] = true
	}
}

func (m *marker) close(dst []byte, c byte) []byte {
	switch {
	case c == '}' && m.meta > 0 && m.depth == m.meta:
		m.valued()
		dst = m.member(dst)
		m.meta, m.marked = 0, true
		m.key = ""
	case c == '}' && m.base > 0 && m.depth == m.base:
		if !m.marked {
			dst = m.comma(dst)
			dst = append(dst, `"`+metaKey+`":{`...)
			m.empty[0] = true
			dst = append(m.member(dst), '}')
		}
		m.base = 0
	}
	m.depth--
	m.wantsKey = false
	if m.depth == 0 {
		m.off = true // the document is complete
	}
	return dst
}

func (m *marker) member(dst []byte) []byte {
	m.added = true
	dst = append(m.comma(dst), `"`+markKey+`":{"continuity":true,"spliced":`...)
	return append(strconv.AppendInt(dst, int64(m.spliced+m.inner), 10), '}')
}

func (m *marker) comma(dst []byte) []byte {
	if m.empty[m.depth-m.base] {
		return dst
	}
	return append(dst, ',')
}

// valued is called at the end of each member. If the member is a mark from another proxy, valued
// records its number of spliced turns.
func (m *marker) valued() {
	if !m.words || m.meta == 0 || m.depth != m.meta {
		return
	}
	m.words = false
	var said struct {
		Continuity bool `json:"continuity"`
		Spliced    int  `json:"spliced"`
	}
	value := m.word[:max(len(m.word)-1, 0)] // without the byte after the value
	if len(m.word) <= maxWordBytes && json.Unmarshal(value, &said) == nil && said.Continuity {
		m.inner = max(said.Spliced, 0)
	}
}

// A marking wraps an answer body and adds the mark while the body is read.
type marking struct {
	x    *exchange
	body io.ReadCloser
	m    *marker
	buf  []byte
	rest []byte // the part of buf that has not yet been returned
	err  error
}

// marked reports whether an answer with this status must be marked. If the prompt was spliced, this
// is the case for every 2xx status, because the server stores the contents of these answers.
func (x *exchange) marked(status int) bool {
	return x.p.cfg.Continuer != nil && status == http.StatusOK || x.spliced > 0 && status/100 == 2
}

// mark wraps the body in a marking and removes the content length. If the answer is compressed,
// mark returns the result of unmarkable.
func (x *exchange) mark(res *http.Response) error {
	if encoded(res.Header) {
		return x.unmarkable("the engine compressed the answer although the tap asked for no compression")
	}
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = &marking{x: x, body: res.Body, m: &marker{spliced: x.spliced, stream: isStream(res.Header)}}
	return nil
}

// unmarkable disables the Continuer after an answer that cannot be marked. If this call's prompt
// was spliced, unmarkable returns an error and the call must fail. Otherwise the answer would look
// like an answer to the server's own prompt.
func (x *exchange) unmarkable(why string) error {
	x.p.unmarked.Store(true)
	x.p.once(slog.LevelWarn, "unmarked", fmt.Errorf("--continuity is now off, because an answer cannot be marked (%s)", why))
	if x.spliced == 0 {
		return nil
	}
	return unmarkedError(why)
}

type unmarkedError string

func (e unmarkedError) Error() string {
	return "the tap withheld the answer, because the answer cannot record that --continuity changed the prompt (" + string(e) + "). --continuity is now off; retry the call"
}

func (b *marking) Read(p []byte) (int, error) {
	if len(b.rest) == 0 && b.err == nil {
		var n int
		n, b.err = b.body.Read(p)
		whole := b.x.p.guard("mark", func() { b.buf = b.m.append(b.buf[:0], p[:n]) })
		switch spliced := b.x.spliced > 0; {
		case !whole && spliced:
			b.buf, b.err = b.buf[:0], b.x.unmarkable("internal error in the tap")
		case !whole:
			b.buf = append(b.buf[:0], p[:n]...)
		case b.err == io.EOF && spliced && !b.m.added:
			b.err = b.x.unmarkable("the answer is not JSON")
		}
		b.rest = b.buf
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) > 0 {
		return n, nil
	}
	return n, b.err
}

func (b *marking) Close() error { return b.body.Close() }
