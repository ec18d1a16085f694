package sink

import (
	"bytes"
	"strconv"
)

// The samples of an entry are almost all of it: some 90 bytes each, of hundreds of
// thousands. encoding/json takes 2.5 µs for one and the log is read several times by a run
// that is continued, so they are read here, in the one form in which entries are written.
// Of 200,000 samples that is 0.02 s instead of 0.5 s.

var (
	samplesMark = []byte(`,"samples":[{"key":"`)
	samplesNone = []byte(`,"samples":null`)
)

// cutSamples takes the samples out of an entry, and returns what is left of it with null
// in their place. ok is false where they are not in the form in which they are written:
// then encoding/json has to read the entry.
//
// The mark cannot be part of a text, in which quotes are escaped, and no other object of an
// entry has a member of that name.
func cutSamples(body []byte) (rest []byte, samples []CommittedSample, ok bool) {
	at := bytes.Index(body, samplesMark)
	if at < 0 {
		return nil, nil, false
	}
	p := sampleParser{text: body[at+len(samplesMark)-len(`{"key":"`):]}
	samples = make([]CommittedSample, 0, bytes.Count(p.text, []byte(`{"key":"`)))
	for {
		var s CommittedSample
		s.Key = p.word(`{"key":"`)
		s.Attempt = p.number(`,"attempt":`)
		s.Rows = p.number(`,"rows":`)
		s.Failures = p.number(`,"failures":`)
		if bytes.HasPrefix(p.text, []byte(`,"class":"`)) {
			s.Class = p.word(`,"class":"`)
		}
		p.skip("}")
		if p.bad {
			return nil, nil, false
		}
		samples = append(samples, s)
		if len(p.text) > 0 && p.text[0] == ']' {
			break
		}
		p.skip(",")
	}
	rest = make([]byte, 0, at+len(samplesNone)+len(p.text))
	rest = append(append(append(rest, body[:at]...), samplesNone...), p.text[1:]...)
	return rest, samples, true
}

// A sampleParser takes what is expected off the front of a text.
type sampleParser struct {
	text []byte
	bad  bool // something else came
}

func (p *sampleParser) skip(what string) {
	if p.bad || len(p.text) < len(what) || string(p.text[:len(what)]) != what {
		p.bad = true
		return
	}
	p.text = p.text[len(what):]
}

// word is a text without anything that JSON escapes, behind what names it.
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

// number is an int32 as encoding/json writes it, behind what names it.
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
