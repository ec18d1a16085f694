package chat

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// maxJSONDepth limits the nesting of JSON. It is close to Python's own limit.
const maxJSONDepth = 900

// FromJSON reads one JSON value as Python's json.loads does. Objects keep the order of their keys,
// and the last value of a duplicate key wins. An int can have any size, 1.0 and 1e3 are floats, and
// NaN, Infinity and -Infinity are numbers.
//
// The result does not share memory with data. Lone surrogates and invalid UTF-8 are errors, because
// no tokenizer accepts them.
func FromJSON(data []byte) (Value, error) { return FromJSONText(string(data)) }

// FromJSONText is like FromJSON, but for a string. It copies only strings with escapes. Other
// strings are substrings of text and keep text in memory.
func FromJSONText(text string) (Value, error) {
	v, err := parseJSON(text)
	if err != nil {
		return Value{}, fmt.Errorf("chat: json: %w", err)
	}
	return v, nil
}

func parseJSON(text string) (Value, error) {
	var s strictjson.Scanner
	s.Reset(text, strictjson.Options{EqualNames: true, NonFinite: true, MaxDepth: maxJSONDepth})
	v := fromJSON(&s)
	return v, s.End()
}

func fromJSON(s *strictjson.Scanner) Value {
	switch s.Kind() {
	case '"':
		return strOf(s.Text())
	case '{':
		m := NewMap(4)
		for name := range s.Members {
			m.set(strOf(name), fromJSON(s))
		}
		return MapValue(m)
	case '[':
		var items []Value
		for range s.Elements {
			items = append(items, fromJSON(s))
		}
		return ListValue(items...)
	case 't', 'f':
		return BoolValue(s.Bool())
	case '0':
		return numberFromJSON(s)
	}
	if !s.Null() {
		s.Expected("a value")
	}
	return NoneValue()
}

func numberFromJSON(s *strictjson.Scanner) Value {
	at := s.Offset()
	text := s.Number()
	if s.Err() != nil {
		return Value{}
	}
	if strings.ContainsAny(text, ".eENI") {
		f, _ := strconv.ParseFloat(text, 64) // a number that is out of range becomes ±Inf, as in Python
		return FloatValue(f)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return IntValue(n)
	}
	if len(strings.TrimPrefix(text, "-")) > maxIntDigits {
		s.FailAt(at, fmt.Sprintf("integer of more than %d digits", maxIntDigits))
		return Value{}
	}
	return Value{kind: Int, s: text}
}
