package messages

import (
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap/translate"
)

// members reads an object. It calls read with each member that the table passes or translates. If
// read does not read the value, members skips it.
func (p *parser) members(t *translate.Table, read func(name string)) {
	for name := range p.s.Members {
		if !p.s.Null() && p.allowed(t, name, "unknown member") {
			read(name)
		}
	}
}

// allowed applies the rule for a member or for a value. It returns false if the value is dropped. It
// sets the error if the value is refused, or if it is unknown.
func (p *parser) allowed(t *translate.Table, name, unknown string) bool {
	switch r, known := t.Find(name); {
	case !known:
		p.s.Fail(unknown)
	case r.Action == translate.Refused:
		p.s.Fail("not supported: " + r.Note)
	case r.Action != translate.Dropped:
		return true
	}
	return false
}

// kind returns the value of the member of the next object that selects the object's table. It does
// not read the object. If the table drops or refuses the value, kind returns "". It sets the error if
// the value is refused or missing.
func (p *parser) kind(t *translate.Table, member string) string {
	if p.s.Kind() != '{' {
		p.s.Mismatch("an object")
		return ""
	}
	at, found, value := p.s.Mark(), p.s.Offset(), ""
	for name := range p.s.Members {
		if name == member && p.s.Kind() == '"' {
			found, value = p.s.Offset(), p.s.Text()
			break
		}
	}
	p.s.Return(at)
	if value == "" {
		p.s.Fail(member + " is missing")
		return ""
	}
	if value = p.known(t, value, found); p.s.Err() != nil {
		p.s.Under(member)
	}
	return value
}

// known returns the value if the table passes or translates it. at is the position of the value.
func (p *parser) known(t *translate.Table, value string, at int) string {
	switch r, known := t.Find(value); {
	case !known:
		p.s.FailAt(at, "unknown value "+strconv.Quote(value[:min(len(value), 60)]))
	case r.Action == translate.Refused:
		p.s.FailAt(at, value+" is not supported: "+r.Note)
	case r.Action != translate.Dropped:
		return value
	}
	return ""
}

// text reads a string and returns its JSON.
func (p *parser) text() string {
	if p.s.Kind() != '"' {
		p.s.Mismatch("a string")
	}
	return p.s.Raw()
}

// object reads an object and returns its JSON.
func (p *parser) object() string {
	if p.s.Kind() != '{' {
		p.s.Mismatch("an object")
	}
	return p.s.Raw()
}

// need sets the error if a value is empty.
func (p *parser) need(value, name string) {
	if value == "" {
		p.s.Fail(name + " is missing")
	}
}

// raw appends texts to out.
func (p *parser) raw(texts ...string) {
	for _, t := range texts {
		p.out = append(p.out, t...)
	}
}

// member begins a member of the object in out.
func (p *parser) member(name string) {
	p.comma()
	p.out = append(append(append(p.out, '"'), name...), `":`...)
}

// comma separates values in out.
func (p *parser) comma() {
	if c := p.out[len(p.out)-1]; c != '{' && c != '[' {
		p.out = append(p.out, ',')
	}
}

// join appends texts as one JSON string, with line breaks between them.
func join(dst []byte, texts []string) []byte {
	dst = append(dst, '"')
	for i, t := range texts {
		if i > 0 {
			dst = append(dst, `\n`...)
		}
		dst = append(dst, t[1:len(t)-1]...)
	}
	return append(dst, '"')
}
