package letta

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// RawJSON is the text of a JSON value as the server sent it. It is empty where there was
// no value.
type RawJSON string

// IsNull reports whether there is no value, or null.
func (r RawJSON) IsNull() bool { return r == "" || r == "null" }

// Decode is json.Unmarshal.
func (r RawJSON) Decode(v any) error { return json.Unmarshal([]byte(r), v) }

// The methods below read one value into a field. Null leaves a field as it is; those
// whose name begins with or set it to its zero value, which is what encoding/json does
// with a pointer.

// str reads a string.
func (s *scanner) str(v *string) {
	if text, ok := s.maybe(); ok {
		*v = text
	}
}

// orEmpty reads a string, or null as the empty one.
func (s *scanner) orEmpty(v *string) { *v, _ = s.maybe() }

// maybe reads a string or null.
func (s *scanner) maybe() (text string, ok bool) {
	switch c := s.space(); c {
	case '"':
		return s.string(), true
	case 'n':
		s.literal("null")
	default:
		s.mismatch("a string", c)
	}
	return "", false
}

// word reads a string of a type of its own.
func word[T ~string](s *scanner, v *T) {
	if text, ok := s.maybe(); ok {
		*v = T(text)
	}
}

// orNoWord is word, with null as the empty one.
func orNoWord[T ~string](s *scanner, v *T) {
	text, _ := s.maybe()
	*v = T(text)
}

// strs reads a list of strings; null is nil, and an empty list is not.
func (s *scanner) strs(v *[]string) {
	if s.null() {
		*v = nil
		return
	}
	list := (*v)[:0]
	if list == nil {
		list = []string{}
	}
	for i := range s.elements {
		var text string
		if i < len(*v) {
			text = (*v)[i]
		}
		s.str(&text)
		list = append(list, text)
	}
	*v = list
}

// raws reads a list of values of any type; null is nil, and an empty list is not.
func (s *scanner) raws(v *[]RawJSON) {
	if s.null() {
		*v = nil
		return
	}
	list := []RawJSON{}
	for range s.elements {
		list = append(list, s.raw())
	}
	*v = list
}

// boolean reads true or false.
func (s *scanner) boolean(v *bool) {
	switch c := s.space(); c {
	case 't':
		s.literal("true")
		*v = true
	case 'f':
		s.literal("false")
		*v = false
	case 'n':
		s.literal("null")
	default:
		s.mismatch("a boolean", c)
	}
}

// orFalse reads a boolean, or null as false.
func (s *scanner) orFalse(v *bool) {
	*v = false
	s.boolean(v)
}

// orNoBool reads a boolean, or null as nil.
func (s *scanner) orNoBool(v **bool) {
	if s.null() {
		*v = nil
		return
	}
	*v = new(bool)
	s.boolean(*v)
}

// integer reads a number without fraction and exponent.
func (s *scanner) integer(v *int64) {
	switch c := s.space(); {
	case c == '-' || c-'0' <= 9:
		at := s.i
		text := s.number()
		if s.err != nil {
			return
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.i = at
			s.fail("the number " + text + " where an integer of 64 bits is expected")
			return
		}
		*v = n
	case c == 'n':
		s.literal("null")
	default:
		s.mismatch("an integer", c)
	}
}

// int32 reads an integer of 32 bits.
func (s *scanner) int32(v *int32) {
	n, at := int64(*v), s.i
	if s.integer(&n); s.err != nil {
		return
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		s.i = at
		s.fail("the number " + strconv.FormatInt(n, 10) + " where an integer of 32 bits is expected")
		return
	}
	*v = int32(n)
}

// orNoInteger reads an integer, or null as nil.
func (s *scanner) orNoInteger(v **int64) {
	if s.null() {
		*v = nil
		return
	}
	*v = new(int64)
	s.integer(*v)
}

// orNoFloat reads a number, or null as nil.
func (s *scanner) orNoFloat(v **float64) {
	switch c := s.space(); {
	case c == '-' || c-'0' <= 9:
		at := s.i
		text := s.number()
		if s.err != nil {
			return
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			s.i = at
			s.fail("the number " + text + " where one of 64 bits is expected")
			return
		}
		*v = &f
	case c == 'n':
		s.literal("null")
		*v = nil
	default:
		s.mismatch("a number", c)
	}
}

// A reader is a type of ours that can be read from JSON.
type reader[T any] interface {
	*T
	read(s *scanner)
}

// listOf reads a list of objects; null is nil, and an empty list is not. Like
// encoding/json it reads an element into the one that was there before.
func listOf[T any, P reader[T]](s *scanner, v *[]T) {
	if s.null() {
		*v = nil
		return
	}
	objects := *v
	if objects == nil {
		objects = []T{}
	}
	n := 0
	for i := range s.elements {
		if i == len(objects) {
			var zero T
			objects = append(objects, zero)
		}
		P(&objects[i]).read(s)
		n++
	}
	*v = objects[:n]
}

// object reads an object, or null as nil.
func object[T any, P reader[T]](s *scanner, v **T) {
	if s.null() {
		*v = nil
		return
	}
	if *v == nil {
		*v = new(T)
	}
	P(*v).read(s)
}

// aside reads a value that need not be what read expects, and returns its text. err is why
// it is not.
func (s *scanner) aside(read func(), err *error) RawJSON {
	from := s.start()
	here := s.mark()
	if read(); s.err == nil {
		return s.since(from)
	}
	*err = s.err
	s.back(here)
	s.skip()
	return s.since(from)
}

// Read reads an object as the server sends it, such as a [Step].
func Read[T any, P reader[T]](text string) (*T, error) {
	return readWith[T, P](newScanner(text))
}

func readWith[T any, P reader[T]](s *scanner) (*T, error) {
	defer s.recycle()
	v := new(T)
	P(v).read(s)
	if err := s.end(); err != nil {
		return nil, err
	}
	return v, nil
}

// ReadList reads a list of such objects.
func ReadList[T any, P reader[T]](text string) ([]T, error) {
	return readListWith[T, P](newScanner(text))
}

func readListWith[T any, P reader[T]](s *scanner) ([]T, error) {
	defer s.recycle()
	var v []T
	listOf[T, P](s, &v)
	if err := s.end(); err != nil {
		return nil, err
	}
	return v, nil
}

// Member returns the value of a member of an object: of the last one with the name, and
// empty where there is none.
func (r RawJSON) Member(name string) RawJSON {
	var value RawJSON
	s := newScanner(string(r))
	for n := range s.members {
		if n == name {
			value = s.raw()
		}
	}
	if s.end() != nil {
		return ""
	}
	return value
}

// With returns the object with another value for a member, which is appended where there
// was none. All else stays as it is.
func (r RawJSON) With(name string, value RawJSON) (RawJSON, error) {
	s := newScanner(string(r))
	from, to, members := 0, 0, 0
	if s.space() != '{' {
		return "", fmt.Errorf("letta: %.20q is not an object", string(r))
	}
	for n := range s.members {
		members++
		if at := s.start(); n == name {
			s.skip()
			from, to = at, s.i
		}
	}
	if err := s.end(); err != nil {
		return "", err
	}
	if to > 0 {
		return RawJSON(s.text[:from]) + value + RawJSON(s.text[to:]), nil
	}
	brace := strings.LastIndexByte(s.text, '}')
	comma := ","
	if members == 0 {
		comma = ""
	}
	return RawJSON(s.text[:brace]) + RawJSON(comma) + Text(name) + ":" + value + RawJSON(s.text[brace:]), nil
}

// Text is the JSON of a string.
func Text(text string) RawJSON {
	b, err := Marshal(text)
	if err != nil {
		panic("letta: internal error: a string cannot be encoded") // it always can
	}
	return RawJSON(b)
}

// A mark is a place in a text to which a scanner can return.
type mark struct {
	text     string
	i, depth int
}

func (s *scanner) mark() mark { return mark{s.text, s.i, s.depth} }

func (s *scanner) back(to mark) { s.text, s.i, s.depth, s.err = to.text, to.i, to.depth, nil }

// union reads an object whose other members depend on its kind, which is the text of the
// member tag, and returns the kind. It calls read for the other members, and reset before
// it begins again because it took the kind for another one: the tag may stand behind what
// depends on it, or twice, and then the last one counts.
func (s *scanner) union(tag string, reset func(), read func(kind, name string)) string {
	s.space()
	start := s.mark()
	kind, known, twice := "", false, false
	for name := range s.members {
		switch {
		case name != tag || !s.exact:
			if !known {
				here := s.mark()
				if s.back(start); !s.lastKind(tag, &kind) {
					break
				}
				s.back(here)
				known = true
			}
			read(kind, name)
		case known:
			var last string
			s.orEmpty(&last)
			twice = twice || last != kind
		default:
			s.orEmpty(&kind)
			known = true
		}
	}
	if s.err == nil && !twice {
		return kind
	}
	failed, last := *s, "" //nolint:govet // only its place and its error are used again
	s.back(start)
	if !s.lastKind(tag, &last) {
		return ""
	}
	if last == kind {
		s.text, s.i, s.depth, s.err = failed.text, failed.i, failed.depth, failed.err
		return kind
	}
	reset()
	s.back(start)
	for name := range s.members {
		if name != tag || !s.exact {
			read(last, name)
		}
	}
	return last
}

// lastKind reads an object for the text of its last member tag.
func (s *scanner) lastKind(tag string, kind *string) bool {
	*kind = ""
	for name := range s.members {
		if name == tag && s.exact {
			s.orEmpty(kind)
		}
	}
	return s.err == nil
}
