package letta

// A mark is a place in a text to which a scanner can return.
type mark struct {
	text     string
	i, depth int
}

func (s *scanner) mark() mark { return mark{s.text, s.i, s.depth} }

func (s *scanner) back(to mark) { s.text, s.i, s.depth, s.err = to.text, to.i, to.depth, nil }

// union reads an object whose other members depend on its kind, which is the text of the
// member tag, and returns the kind. It calls read for the other members, and reset before
// it begins again because it took the kind for another one: the tag may come after what
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
				if s.back(start); !s.kindOf(tag, true, &kind) {
					break
				}
				s.back(here)
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
	if s.err == nil && !twice {
		return kind
	}
	failed, last := *s, ""
	s.back(start)
	if !s.kindOf(tag, false, &last) {
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
	return s.err == nil
}

// aside reads a value that need not be what read expects, and returns its text. err is why
// it is not; its places count from where the value begins.
func (s *scanner) aside(read func(), err *error) RawJSON {
	from := s.start()
	here := s.mark()
	if read(); s.err == nil {
		return s.since(from)
	}
	if e, is := s.err.(*scanError); is { //nolint:errorlint // made here, never wrapped
		e.offset -= from
	}
	*err = s.err
	s.back(here)
	s.skip()
	return s.since(from)
}

// failed is fail with the error of a member that was read aside; nil changes nothing.
func (s *scanner) failed(err error, name string) {
	if err != nil {
		s.fail("")
		s.err = err
		s.under(name)
	}
}
