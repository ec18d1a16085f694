package letta

import (
	"math"
	"strconv"
)

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
