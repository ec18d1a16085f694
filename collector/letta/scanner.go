package letta

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A scanner parses one JSON text from a server. It accepts the same JSON as encoding/json, but the
// case of member names must match. Bytes that are not valid UTF-8 become U+FFFD. If several members
// have the same name, the last member counts, but members along a path are merged. An object with
// two kinds causes an error.
type scanner struct{ strictjson.Scanner }

// newScanner returns a scanner for text. A caller that no longer needs the scanner can recycle it.
func newScanner(text string) *scanner { return newValidScanner(validText(text)) }

// newValidScanner returns a scanner for text that must be valid UTF-8.
func newValidScanner(text string) *scanner {
	s, _ := scanners.Get().(*scanner)
	if s == nil {
		s = new(scanner)
	}
	o := strictjson.GoOptions()
	o.CheckedUTF8 = true
	s.Reset(text, o)
	return s
}

// scanners is a pool of scanners, so that their scratch memory is reused.
var scanners sync.Pool

func (s *scanner) recycle() {
	s.Reset("", strictjson.Options{})
	scanners.Put(s)
}

// validText replaces each byte that is not valid UTF-8 with U+FFFD.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
	}
	return b.String()
}

// Read parses a value in the server's format, such as a [Step] or [Messages].
func Read[T any](text string) (*T, error) { return readWith[T](newScanner(text)) }

func readWith[T any](s *scanner) (*T, error) {
	defer s.recycle()
	v := new(T)
	into(s, v)
	if err := s.End(); err != nil {
		return nil, err
	}
	return v, nil
}

func into[T any](s *scanner, v *T) {
	s.value(reflect.ValueOf(v).Elem(), planOf(reflect.TypeFor[T]()))
}

var rawType = reflect.TypeFor[RawJSON]()

// value reads a value into v. The parameter of is the plan for the struct or for the elements of
// the list.
func (s *scanner) value(v reflect.Value, of *plan) {
	switch {
	case v.Kind() == reflect.Struct && of.own:
		v.Addr().Interface().(reader).read(s) //nolint:forcetypeassert // if own is set, the type is a reader
	case v.Kind() == reflect.Struct:
		s.object(v, of)
	case v.Kind() == reflect.String && v.Type() == rawType:
		v.SetString(s.Raw())
	case s.Null():
		v.SetZero()
	default:
		s.plain(v, of)
	}
}

// plain reads a value that is neither null nor a struct.
func (s *scanner) plain(v reflect.Value, of *plan) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s.Text())
	case reflect.Bool:
		v.SetBool(s.Bool())
	case reflect.Int32, reflect.Int64:
		v.SetInt(s.Int(v.Type().Bits()))
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		s.value(p.Elem(), of)
		v.Set(p)
	case reflect.Slice: // an empty list is not nil
		v.SetZero()
		v.Grow(1)
		v.SetLen(0)
		for i := range s.Elements {
			if i == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(i + 1)
			s.value(v.Index(i), of)
		}
	default:
		panic("letta: internal error: a field has a type that cannot be read") // a test reads values of all types
	}
}

// object reads an object and stores its JSON text. A null is read as an object without members.
func (s *scanner) object(v reflect.Value, p *plan) {
	v.SetZero()
	from := s.start()
	s.members(v, p)
	if p.text >= 0 {
		v.Field(p.text).SetString(s.Since(from))
	}
}

// The method members reads the members of an object into the fields of v. The member with the kind
// can come after members that depend on the kind.
func (s *scanner) members(v reflect.Value, p *plan) {
	if s.Null() {
		return
	}
	start, kind, known, last := s.Mark(), "", false, -1
	for name := range s.Members {
		i := p.find(name, last+1)
		if i < 0 {
			continue
		}
		m := p.members[i]
		last = i
		if len(m.kinds) > 0 && !known {
			here := s.Mark()
			s.Return(start)
			if kind, known = s.kindOf(p.kind), true; s.Err() != nil {
				return
			}
			s.Return(here)
		}
		if len(m.kinds) == 0 || slices.Contains(m.kinds, kind) {
			s.member(v, m)
		}
		if name == p.kind {
			if k := v.Field(m.field).String(); known && k != kind {
				s.Fail("conflicting kinds in one object")
			} else {
				kind, known = k, true
			}
		}
	}
}

// kindOf reads an object up to the member that contains its kind, and returns the kind.
func (s *scanner) kindOf(name string) (kind string) {
	for n := range s.Members {
		if n == name {
			if !s.Null() {
				kind = s.Text()
			}
			break
		}
	}
	return kind
}

func (s *scanner) member(v reflect.Value, m *member) {
	field := v.Field(m.field)
	if m.word { // most members
		field.SetString("")
		if s.Kind() == '"' {
			field.SetString(s.Text())
		} else {
			s.Skip()
		}
		return
	}
	here := s.Mark()
	switch {
	case m.path:
		s.members(v, m.of)
	case m.as == "version":
		field.SetString(s.version())
	case m.as == "one" && s.Kind() == '{':
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		s.value(field.Index(0), m.of)
	case m.as == "text":
		var c Content
		c.read(s)
		field.SetString(c.String())
	default:
		s.value(field, m.of)
	}
	if m.loose && s.Err() != nil {
		s.Return(here)
		if !m.path { // the loose members within a path handle errors themselves
			field.SetZero()
		}
		s.Skip()
	}
}

// version reads a weight version. It returns a string as is, a number as text, and "" for any other
// value.
func (s *scanner) version() (word string) {
	switch s.Kind() {
	case '"':
		return s.Text()
	case '0':
		return tokenize.VersionWord(s.Number())
	}
	s.Skip()
	return ""
}

// raw reads a value of any type and returns its JSON text.
func (s *scanner) raw() RawJSON { return RawJSON(s.Raw()) }

// The method start moves to the beginning of a value. It returns the value's offset for a later
// call of the method since.
func (s *scanner) start() int {
	s.Kind()
	return s.Offset()
}

// The method since returns the text from an offset to the current position.
func (s *scanner) since(from int) RawJSON { return RawJSON(s.Since(from)) }
