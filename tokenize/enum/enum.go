// Package enum turns the values of a closed list into their words and back. A type with
// such a list has its String, MarshalText and UnmarshalText call the methods of a [List]:
// the word in a column is then also the word in a message, a metric and a configuration.
package enum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A List holds the words of the values 0, 1, 2 and so on of T. The zero value of T may
// have the empty word: it is written as nothing.
type List[T ~uint8 | ~int8] struct {
	Noun  string // what the values are, for errors: "grade"
	Words []string
}

// String returns the word of v. A value outside of the list reads like "grade(9)".
func (l *List[T]) String(v T) string {
	if v >= 0 && int(v) < len(l.Words) {
		return l.Words[v]
	}
	return l.Noun + "(" + strconv.Itoa(int(v)) + ")"
}

// Marshal returns the word of v for MarshalText. A value outside of the list is an error.
func (l *List[T]) Marshal(v T) ([]byte, error) {
	if v >= 0 && int(v) < len(l.Words) {
		return []byte(l.Words[v]), nil
	}
	return nil, fmt.Errorf("%s %d has no name", l.Noun, v)
}

// Unmarshal sets v to the value whose word is text, for UnmarshalText. If there is none it
// leaves v as it is.
func (l *List[T]) Unmarshal(text []byte, v *T) error {
	i := slices.Index(l.Words, string(text))
	if i < 0 {
		return fmt.Errorf("%s %q is not one of %s", l.Noun, text, strings.TrimPrefix(strings.Join(l.Words, ", "), ", "))
	}
	*v = T(i)
	return nil
}
