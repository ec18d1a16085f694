package sink

import (
	"bytes"
	"math"
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// Groups and samples are almost all of an entry: some 110 bytes for each of hundreds of thousands of
// samples. encoding/json takes 2.5 µs per sample, and a resumed run reads the log several times. So
// this file parses the exact form in which entries are written. 200,000 samples take 0.02 s instead of
// 0.5 s.

var (
	groupsMark  = []byte(`,"groups":[{"id":"`)
	samplesMark = []byte(`,"samples":[{"key":"`)
	samplesNone = []byte(`,"samples":null`)
)

// cutSamples parses the groups and samples of an entry, and returns the rest of the entry with null
// instead of the samples. If ok is false, encoding/json must read the entry.
//
// A mark cannot be part of a text, because quotes in texts are escaped. It must be a member of the
// outermost object: a later version can nest members with the same name.
func cutSamples(body []byte) (rest []byte, groups []CommittedGroup, samples []CommittedSample, ok bool) {
	at := bytes.Index(body, samplesMark)
	if at < 0 {
		return nil, nil, nil, false
	}
	from := bytes.Index(body[:at], groupsMark)
	if from < 0 {
		return nil, nil, nil, false
	}
	p := sampleParser{text: body[at+len(samplesMark)-len(`{"key":"`):]}
	samples = p.samples()
	end := p.text
	p.text = body[from+len(groupsMark)-len(`{"id":"`) : at]
	groups = p.groups()
	at = from
	if p.bad || len(p.text) > 0 || !inOuterObject(body[:at]) { // the samples follow the groups
		return nil, nil, nil, false
	}
	rest = make([]byte, 0, at+len(samplesNone)+len(end))
	rest = append(append(append(rest, body[:at]...), samplesNone...), end...)
	return rest, groups, samples, true
}

// inOuterObject reports whether, at the end of a JSON prefix, only the outermost object is open.
func inOuterObject(text []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return depth == 1
}

// samples parses a list of samples up to its bracket.
func (p *sampleParser) samples() []CommittedSample {
	list := make([]CommittedSample, 0, bytes.Count(p.text, []byte(`{"key":"`)))
	for !p.bad {
		var s CommittedSample
		s.Key = p.word(`{"key":"`)
		s.Attempt = p.number(`,"attempt":`)
		s.Rows = p.number(`,"rows":`)
		s.Failures = p.number(`,"failures":`)
		s.Group = p.number(`,"group":`)
		s.Index = p.number(`,"index":`)
		if bytes.HasPrefix(p.text, []byte(`,"class":"`)) {
			s.Class = p.word(`,"class":"`)
		}
		if bytes.HasPrefix(p.text, []byte(`,"filtered":"`)) {
			s.Filtered = p.word(`,"filtered":"`)
		}
		if bytes.HasPrefix(p.text, unshownMark) {
			p.unshown(&s.Unshown)
		}
		p.skip("}")
		list = append(list, s)
		if p.ends() {
			break
		}
		p.skip(",")
	}
	return list
}

// unshownMark begins the counts of calls that no answer shows.
var unshownMark = []byte(`,"unshown":`)

// unshown parses those counts: the nonzero ones, in the order of Each.
func (p *sampleParser) unshown(u *tokenize.Unshown) {
	p.text = p.text[len(unshownMark):]
	begin := byte('{')
	for word := range u.Each() {
		name := string(begin) + `"` + word + `":`
		if !bytes.HasPrefix(p.text, []byte(name)) {
			continue
		}
		n := p.number(name)
		p.bad = p.bad || n <= 0 || n > math.MaxUint16
		u.Set(word, int(n))
		begin = ','
	}
	p.bad = p.bad || begin == '{'
	p.skip("}")
}

func (p *sampleParser) groups() []CommittedGroup {
	list := make([]CommittedGroup, 0, bytes.Count(p.text, []byte(`{"id":"`)))
	for !p.bad {
		var g CommittedGroup
		g.ID = p.word(`{"id":"`)
		g.Size = p.number(`,"size":`)
		p.skip("}")
		list = append(list, g)
		if p.ends() {
			break
		}
		p.skip(",")
	}
	return list
}

// ends consumes the bracket of a list, if it is next.
func (p *sampleParser) ends() bool {
	if p.bad || len(p.text) == 0 || p.text[0] != ']' {
		return false
	}
	p.text = p.text[1:]
	return true
}

// A sampleParser consumes expected parts from the front of a text.
type sampleParser struct {
	text []byte
	bad  bool // the text had something else
}

func (p *sampleParser) skip(what string) {
	if p.bad || len(p.text) < len(what) || string(p.text[:len(what)]) != what {
		p.bad = true
		return
	}
	p.text = p.text[len(what):]
}

// word parses a text without escapes after its name.
func (p *sampleParser) word(name string) string {
	p.skip(name)
	if p.bad {
		return ""
	}
	for i, c := range p.text {
		switch {
		case c == '"':
			s := string(p.text[:i])
			p.text = p.text[i+1:]
			return s
		case c == '\\' || c < ' ' || c >= 0x7f:
			p.bad = true
			return ""
		}
	}
	p.bad = true
	return ""
}

// number parses an int32, as encoding/json writes it, after its name.
func (p *sampleParser) number(name string) int32 {
	p.skip(name)
	n := 0
	for n < len(p.text) && (p.text[n] == '-' || p.text[n] >= '0' && p.text[n] <= '9') {
		n++
	}
	if p.bad || n == 0 || n > 1 && p.text[0] == '0' || n > 1 && p.text[0] == '-' && p.text[1] == '0' {
		p.bad = true
		return 0
	}
	v, err := strconv.ParseInt(string(p.text[:n]), 10, 32)
	if err != nil {
		p.bad = true
	}
	p.text = p.text[n:]
	return int32(v)
}
