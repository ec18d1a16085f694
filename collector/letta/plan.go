package letta

import (
	"reflect"
	"strings"
	"sync"
)

// The tags of a received type define how its fields are parsed:
//
//	letta:"id"                             the member id; any other type is an error
//	letta:"name,loose"                     any other type gives the zero value
//	letta:"stop_reason.stop_reason,loose"  a member of the object stop_reason
//	letta:"message_type,kind"              the member names the kind of the object
//	letta:"content" kinds:"user_message"   is read only in objects of these kinds
//
// A JSON null becomes the zero value. A field named JSON receives the text of the object. An object
// that names two kinds causes an error. If a server changes the type of a loose member, only the
// value of this member is lost. So members that determine a prompt or a row are not loose, unless a
// missing value only weakens the proof.
//
// A type with a method called read parses itself.

// A plan describes how the members of an object are parsed into a struct.
type plan struct {
	members []*member
	text    int    // index of the field JSON, or -1
	kind    string // the name of the member that contains the kind, or ""
	own     bool   // the struct has its own method read
}

// A member is one member of an object.
type member struct {
	name  string
	field int
	loose bool
	word  bool     // a loose string
	as    string   // the option version, one or text; see scanner.member
	kinds []string // if empty, the member is read for every kind
	// The field "of" contains the plan for a nested struct or for the structs in a list. The plan
	// is nil if there are no such structs. If path is true, the plan is for more members of the
	// same struct.
	of   *plan
	path bool
}

// A reader is a type that parses itself.
type reader interface{ read(s *scanner) }

var plans sync.Map // maps a reflect.Type to its *plan

// planOf returns the plan for a struct type, or for the struct type in a pointer or list type. For
// other types, planOf returns nil.
func planOf(t reflect.Type) *plan {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if p, ok := plans.Load(t); ok {
		return p.(*plan) //nolint:forcetypeassert // the map contains nothing else
	}
	p := &plan{text: -1}
	p.own = reflect.PointerTo(t).Implements(reflect.TypeFor[reader]())
	for f := range t.Fields() {
		if f.Name == "JSON" {
			p.text = f.Index[0]
		}
		if tag := f.Tag.Get("letta"); tag != "" {
			word := f.Type.Kind() == reflect.String && f.Type != rawType
			p.add(tag, &member{field: f.Index[0], word: word, kinds: strings.Fields(f.Tag.Get("kinds")), of: planOf(f.Type)})
		}
	}
	plans.Store(t, p)
	return p
}

// add adds a member under the name or the path in its tag.
func (p *plan) add(tag string, m *member) {
	path, option, _ := strings.Cut(tag, ",")
	m.loose, m.as = option == "loose", option
	m.word = m.word && m.loose
	if option == "kind" {
		p.kind = path
	}
	for outer, rest, deeper := strings.Cut(path, "."); deeper; outer, rest, deeper = strings.Cut(path, ".") {
		i := p.find(outer, 0)
		if i < 0 {
			i = len(p.members)
			p.members = append(p.members, &member{name: outer, of: &plan{text: -1}, path: true})
		}
		outside := p.members[i]
		outside.loose = outside.loose || m.loose
		p, path = outside.of, rest
	}
	m.name = path
	p.members = append(p.members, m)
}

// find returns the index of the member called name, or -1. The search starts at the index from,
// because members have about the same order in every object.
func (p *plan) find(name string, from int) int {
	for i := from; i < len(p.members); i++ {
		if p.members[i].name == name {
			return i
		}
	}
	for i := range min(from, len(p.members)) {
		if p.members[i].name == name {
			return i
		}
	}
	return -1
}
