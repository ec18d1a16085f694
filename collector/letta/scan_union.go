package letta

import (
	"errors"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// union reads an object whose other members depend on its kind, which is the text of the
// member tag, and returns the kind. It calls read for the other members, and reset before
// it begins again because it took the kind for another one: the tag may come after what
// depends on it, or twice, and then the last one counts.
func (s *scanner) union(tag string, reset func(), read func(kind, name string)) string {
	s.Kind()
	start := s.Mark()
	kind, known, twice := "", false, false
	for name := range s.members {
		switch {
		case name != tag || !s.exact:
			if !known {
				here := s.Mark()
				if s.Return(start); !s.kindOf(tag, true, &kind) {
					break
				}
				s.Return(here)
				known = true
			}
			read(kind, name)
		case known:
			var last string
			s.needText(&last)
			twice = twice || last != kind
		default:
			s.needText(&kind)
			known = true
		}
	}
	if s.Err() == nil && !twice {
		return kind
	}
	failed, last := s.Mark(), ""
	s.Return(start)
	if !s.kindOf(tag, false, &last) {
		return ""
	}
	if last == kind {
		s.Return(failed)
		return kind
	}
	reset()
	s.Return(start)
	for name := range s.members {
		if name != tag || !s.exact {
			read(last, name)
		}
	}
	return last
}

// kindOf reads an object for the text of its last member tag. If first is set it reads as
// far as the first one.
func (s *scanner) kindOf(tag string, first bool, kind *string) bool {
	*kind = ""
	for name := range s.members {
		if name == tag && s.exact {
			s.needText(kind)
			if first {
				break
			}
		}
	}
	return s.Err() == nil
}

// aside reads a value that need not be what read expects, and returns its text. err is why
// it is not; its places count from where the value begins.
func (s *scanner) aside(read func(), err *error) RawJSON {
	from := s.start()
	here := s.Mark()
	if read(); s.Err() == nil {
		return s.since(from)
	}
	*err = s.Err()
	if e, ok := errors.AsType[*strictjson.Error](*err); ok {
		e.Offset -= from
	}
	s.Return(here)
	s.Skip()
	return s.since(from)
}

// failed fails with the error of a member that was read aside; nil changes nothing.
func (s *scanner) failed(err error, name string) {
	if err != nil {
		s.FailWith(err)
		s.Under(name)
	}
}
