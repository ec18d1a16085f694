// Package enum converts the values of an enumerated type to words and back. The String, MarshalText
// and UnmarshalText methods of the type call the methods of a [List]. This way, columns, messages,
// metrics and configuration all use the same words.
package enum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A List holds the words for the values 0, 1, 2, … of T. The word for 0 can be empty.
type List[T ~uint8 | ~int8] struct {
	Noun  string // the noun for a value in errors, such as "grade"
	Words []string
}

// String returns the word for v. A value outside the list is formatted like "grade(9)".
func (l *List[T]) String(v T) string {
	if v >= 0 && int(v) < len(l.Words) {
		return l.Words[v]
	}
	return l.Noun + "(" + strconv.Itoa(int(v)) + ")"
}

// Marshal returns the word for v, for use in MarshalText. A value outside the list is an error.
func (l *List[T]) Marshal(v T) ([]byte, error) {
	if v >= 0 && int(v) < len(l.Words) {
		return []byte(l.Words[v]), nil
	}
	return nil, fmt.Errorf("unknown %s %d", l.Noun, v)
}

// Unmarshal sets *v to the value whose word is text. After an error, *v is unchanged.
func (l *List[T]) Unmarshal(text []byte, v *T) error {
	i := slices.Index(l.Words, string(text))
	if i < 0 {
		return fmt.Errorf("%s %q is not one of %s", l.Noun, text, strings.TrimPrefix(strings.Join(l.Words, ", "), ", "))
	}
	*v = T(i)
	return nil
}
