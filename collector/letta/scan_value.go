package letta

import (
	"slices"
	"strconv"
)

// The methods below read one value into a field. There are three kinds:
//
//	str, integer, int32, boolean         null leaves the field as it is
//	need…                                null sets it to its zero value
//	or…, strs                            null and a value of another type set it to zero
//
// The first two refuse a value of another type. They read the members from which a prompt, a
// row or its proof is made. The last reads all other members. If a server changes the type of
// such a member, the member is unknown, and nothing else fails.

// str reads a string.
func (s *scanner) str(v *string) {
	if text, ok := s.maybe(); ok {
		*v = text
	}
}

// needText reads a string, or null as "".
func (s *scanner) needText(v *string) { *v, _ = s.maybe() }

// orEmpty reads a string, or anything else as "".
func (s *scanner) orEmpty(v *string) {
	*v = ""
	if s.is('"') {
		*v = s.Text()
	}
}

// is reports whether the next value has one of the kinds. If it does not, is skips the value.
func (s *scanner) is(kinds ...byte) bool {
	if slices.Contains(kinds, s.Kind()) {
		return true
	}
	s.Skip()
	return false
}

// maybe reads a string or null.
func (s *scanner) maybe() (text string, ok bool) {
	if s.Null() {
		return "", false
	}
	return s.Text(), s.Err() == nil
}

// orNoWord is like orEmpty, for a string type.
func orNoWord[T ~string](s *scanner, v *T) {
	text := ""
	s.orEmpty(&text)
	*v = T(text)
}

// strs reads a list of strings, or anything else as nil. An empty list is not nil.
func (s *scanner) strs(v *[]string) {
	var err error
	var list []string
	if s.aside(func() { s.needTexts(&list) }, &err); err != nil {
		list = nil
	}
	*v = list
}

// needTexts reads a list of strings; null is nil, and an empty list is not.
func (s *scanner) needTexts(v *[]string) {
	if s.Null() {
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
	if s.Null() {
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
	if !s.Null() {
		*v = s.Bool()
	}
}

// needFalse reads a boolean, or null as false.
func (s *scanner) needFalse(v *bool) {
	*v = false
	s.boolean(v)
}

// needBool reads a boolean, or null as nil.
func (s *scanner) needBool(v **bool) {
	if s.Null() {
		*v = nil
		return
	}
	*v = new(bool)
	s.boolean(*v)
}

// integer reads a number without fraction and exponent.
func (s *scanner) integer(v *int64) {
	if !s.Null() {
		*v = s.Int(64)
	}
}

// int32 reads an integer of 32 bits.
func (s *scanner) int32(v *int32) {
	if !s.Null() {
		*v = int32(s.Int(32))
	}
}

// needInteger reads an integer, or null as nil.
func (s *scanner) needInteger(v **int64) {
	if s.Null() {
		*v = nil
		return
	}
	*v = new(int64)
	s.integer(*v)
}

// orNoInteger reads an integer, or anything else as nil.
func (s *scanner) orNoInteger(v **int64) {
	if *v = nil; !s.is('0') {
		return
	}
	if n, err := strconv.ParseInt(s.Number(), 10, 64); err == nil {
		*v = &n
	}
}

// orZero reads an integer, or anything else as 0.
func (s *scanner) orZero(v *int64) {
	var n *int64
	if s.orNoInteger(&n); n != nil {
		*v = *n
		return
	}
	*v = 0
}

// listOf reads a list of objects; null is nil, and an empty list is not. Like
// encoding/json it reads an element into the one that was there before.
func listOf[T any, P reader[T]](s *scanner, v *[]T) {
	if s.Null() {
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

// object reads an object, or anything else as nil.
func object[T any, P reader[T]](s *scanner, v **T) {
	if !s.is('{') {
		*v = nil
		return
	}
	if *v == nil {
		*v = new(T)
	}
	P(*v).read(s)
}
