package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap/internal/canon"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A said is an answer of the engine, as far as continuity needs it.
type said struct {
	sum  sum  // of all texts below
	full bool // the answer is complete
	// wild is true if the texts are unknown. Such an answer could be any message.
	wild bool

	// content is the sum of the content without the white space at its ends, before and after.
	content       sum
	before, after string
	null          bool   // the content is null
	spoken        bool   // the content is not only white space
	thoughts      []byte // JSON, or empty
	thoughtsName  int    // index in thoughtNames
	calls         []saidCall
}

type saidCall struct {
	id, name  string
	arguments []byte // JSON: a string that contains JSON
}

// A sum is the beginning of a SHA-256.
type sum [16]byte

func sumOf[T ~string | ~[]byte](text T) sum {
	full := sha256.Sum256([]byte(text))
	return sum(full[:16])
}

// saidBytes is the approximate memory of a said without its texts.
const saidBytes = 512

// newSaid returns the answer with the given JSON. thoughtsName is the index of the name under which
// the engine sent the reasoning. If the answer is incomplete and not readable, newSaid returns nil.
func newSaid(answer string, thoughtsName int, full bool) *said {
	t, ok := parseTurn(answer)
	switch {
	case !ok && full:
		return &said{wild: true}
	case !ok:
		return nil
	}
	a := &said{full: full, thoughtsName: thoughtsName, null: t.content.null}
	before, content, after := cut(t.content.text)
	a.content, a.spoken = sumOf(content), content != ""
	a.before, a.after = strings.Clone(before), strings.Clone(after)
	if p := &t.thoughts[0]; p.text != "" { // Answer uses only this name
		a.thoughts = []byte(p.json(answer))
	}
	parts := []string{string(a.content[:]), a.before, a.after, string(a.thoughts)}
	for _, c := range t.calls {
		own := saidCall{strings.Clone(c.id), strings.Clone(c.name), []byte(c.arguments.json(answer))}
		a.calls = append(a.calls, own)
		parts = append(parts, own.id, own.name, string(own.arguments))
	}
	var all []byte
	for _, p := range parts {
		all = append(binary.AppendUvarint(all, uint64(len(p))), p...)
	}
	a.sum = sumOf(all)
	return a
}

func (a *said) bytes() int64 {
	n := saidBytes + len(a.before) + len(a.after) + len(a.thoughts)
	for _, c := range a.calls {
		n += 64 + len(c.id) + len(c.name) + len(c.arguments)
	}
	return int64(n)
}

// is reports whether the message is the answer: the tool calls have the same ids and names, and all
// texts are the same. White space at the ends of the content and of the reasoning can differ. The
// arguments must be the same JSON values, and the reasoning can be missing. An answer without a
// text and without tool calls is never recognized.
func (a *said) is(t *turn) bool {
	if a.wild || len(a.calls) != len(t.calls) || !a.spoken && len(a.calls) == 0 {
		return false
	}
	for i := range a.calls {
		x, y := &a.calls[i], &t.calls[i]
		if x.id != y.id || x.name != y.name {
			return false
		}
	}
	thoughts := strings.TrimSpace(unquoted(a.thoughts))
	for i := range t.thoughts {
		if own := strings.TrimSpace(t.thoughts[i].text); own != "" && own != thoughts {
			return false
		}
	}
	if sumOf(strings.TrimSpace(t.content.text)) != a.content {
		return false
	}
	for i := range a.calls {
		if !sameValue(unquoted(a.calls[i].arguments), t.calls[i].arguments.text) {
			return false
		}
	}
	return true
}

// sameValue reports whether two texts are the same JSON value. A text that is not JSON, or that has a
// duplicate member, is equal only to itself.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := canon.Text(a, strictjson.Options{}, true)
	y, okY := canon.Text(b, strictjson.Options{}, true)
	return okX && okY && x == y
}

// unquoted returns the text of a JSON string, or "" if there is none.
func unquoted(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	return strictjson.New(string(text), strictjson.Options{}).Text()
}

// edits returns the edits that replace the texts of the message with the texts of the answer. Their
// positions are positions in the message. They share the memory of a.
func (a *said) edits(t *turn) (edits []edit) {
	put := func(own *piece, name, text string, value []byte) {
		switch {
		case own.text == text:
		case own.at == (span{}): // after the brace; the message has other members
			edits = append(edits, edit{span{1, 1}, slices.Concat(quoted(name), []byte(":"), value, []byte(","))})
		default:
			edits = append(edits, edit{own.at, value})
		}
	}
	if content := a.before + strings.TrimSpace(t.content.text) + a.after; a.null {
		put(&t.content, "content", content, null)
	} else {
		put(&t.content, "content", content, quoted(content))
	}
	for i := range t.thoughts {
		if own := &t.thoughts[i]; len(a.thoughts) > 0 && (i == a.thoughtsName || strings.TrimSpace(own.text) != "") {
			put(own, thoughtNames[i], unquoted(a.thoughts), a.thoughts)
		}
	}
	for i := range a.calls {
		put(&t.calls[i].arguments, "", unquoted(a.calls[i].arguments), a.calls[i].arguments)
	}
	return edits
}
