package proxy

import (
	"errors"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A dialect parses the requests and answers of one API. A dialect has no state.
type dialect interface {
	// name returns the dialect's name in calls and metrics.
	name() string
	// serves reports whether a POST to path is a request for a generation.
	serves(path string) bool
	// request parses the body of a request and stores its parts in q. s scans q.body.
	request(s *tokenize.Scanner, q *request) error
	// answer parses one JSON document from s and stores its values in a. The document is the whole
	// answer or, if a.streamed is true, one event of the stream.
	answer(s *tokenize.Scanner, a *answer) error
	// asks returns the members that make the engine return ids and log-probabilities. The proxy
	// adds a member only if the body does not already have it.
	asks(q *request) []ask
}

// An ask is a member to add to a request body.
type ask struct{ key, value string }

var dialects = []dialect{sglang{}, openai{}}

// dialectOf returns the dialect of a request, or nil if the request is not for a generation.
func dialectOf(method, path string) dialect {
	if method != "POST" {
		return nil
	}
	for _, d := range dialects {
		if d.serves(path) {
			return d
		}
	}
	return nil
}

// A request contains the parts of a request body that the proxy needs. All positions are offsets in
// body.
type request struct {
	path string
	body []byte

	// root is the body's object.
	root object
	// keys contains the names of the sampling settings.
	keys *names
	// prompt contains the ids of the only prompt, or nil if the body does not contain them.
	// promptAt is the position of the list of ids. prompt shares the memory of room if room is
	// large enough.
	prompt   []int32
	room     []int32
	promptAt span
	// foreign is true if the engine's prompt contains more than these ids, such as an image or the
	// history of a session.
	foreign bool
	// several is true if the body requests several outputs.
	several  bool
	streamed bool
	// If the body contains no ids, grows is the part that each later call of a rollout extends.
	grows []byte
	// sampling contains the objects with sampling parameters. If it is empty, a new object replaces
	// the `null` at samplingAt. If samplingAt is zero too, the new object is added to root.
	sampling   []*object
	samplingAt span
}

// A span is the range [from, to) in a body. The zero value means that there is no span.
type span struct{ from, to int }

// An object describes a JSON object. members contains only the members that a dialect needs.
type object struct {
	open    int // offset after the opening brace
	empty   bool
	members []member
}

type member struct {
	key   string
	value span
}

// errTwice means that a needed member appears twice in an object. Engines differ in which of the
// two values they use.
var errTwice = errors.New("proxy: duplicate member")

// A field is a member that a dialect parses in an answer.
type field struct {
	name string
	// first is the first byte of the values that parse accepts. Other values are skipped.
	first byte
	parse func() error
}

// These values of field.first accept more than one type.
const (
	anyValue byte = 0
	notNull  byte = 'n'
)

// knownMembers are the members of an object that a reader parses. first is the first byte of the values
// that it accepts, as in a field.
type knownMembers []struct {
	name  string
	first byte
}

// seen is the set of the known members that an object has had.
type seen uint

// take reports whether the value of member i must be parsed. If not, take skips it, or returns errTwice
// for a member that the object has had before. If h is nil, duplicate members are accepted.
func (h *seen) take(s *tokenize.Scanner, i int, first byte) (bool, error) {
	if h != nil {
		if *h&(1<<i) != 0 {
			return false, errTwice
		}
		*h |= 1 << i
	}
	if first != anyValue && (s.Next() == first) == (first == notNull) {
		return false, s.Skip()
	}
	return true, nil
}

// accept finds the member and calls take. It skips the value of an unknown member.
func (k knownMembers) accept(s *tokenize.Scanner, key []byte, had *seen) (bool, error) {
	for i := range k {
		if k[i].name == string(key) {
			return had.take(s, i, k[i].first)
		}
	}
	return false, s.Skip()
}

// parseFields parses the given fields of an object and skips all other members.
func parseFields(s *tokenize.Scanner, fields ...field) error {
	var had seen
	return s.Object(func(key []byte) error {
		for i := range fields {
			f := &fields[i]
			if f.name != string(key) {
				continue
			}
			if parse, err := had.take(s, i, f.first); !parse {
				return err
			}
			return f.parse()
		}
		return s.Skip()
	})
}

// object parses an object and records the positions of the members for which the function want
// returns true. It calls the function read to parse each of these values, or skips the values if
// read is nil. All other members are skipped.
func (q *request) object(s *tokenize.Scanner, want func(key []byte) bool, read func(key string) error) (o object, err error) {
	s.Next()
	o.open = int(s.Offset()) + 1
	o.empty = true
	err = s.Object(func(key []byte) error {
		o.empty = false
		if !want(key) {
			return s.Skip()
		}
		name := string(key)
		if o.find(name) >= 0 {
			return errTwice
		}
		s.Next()
		at := int(s.Offset())
		var err error
		if read == nil {
			err = s.Skip()
		} else {
			err = read(name)
		}
		o.members = append(o.members, member{name, span{at, int(s.Offset())}})
		return err
	})
	return o, err
}

func (o *object) find(key string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
}

func (o *object) value(body []byte, key string) []byte {
	if i := o.find(key); i >= 0 {
		return body[o.members[i].value.from:o.members[i].value.to]
	}
	return nil
}

// ids parses a list of ids into q.prompt. If the value is a list of lists, ids sets q.several
// instead.
func (q *request) ids(s *tokenize.Scanner) (err error) {
	if s.Next() != '[' {
		return s.Skip()
	}
	at := int(s.Offset())
	for i := at + 1; i < len(q.body); i++ {
		switch q.body[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case '[':
			q.several = true
			return s.Skip()
		case '"':
			return s.Skip() // a list of strings
		}
		break
	}
	q.prompt, err = s.IDs(q.room[:0])
	if len(q.prompt) == 0 {
		q.prompt = nil
	}
	q.promptAt = span{at, int(s.Offset())}
	return err
}

// outputs parses the number of outputs that the body requests.
func (q *request) outputs(s *tokenize.Scanner) error {
	n := int32(1)
	err := count(s, &n)
	q.several = q.several || n != 1
	return err
}

func (q *request) truth(s *tokenize.Scanner) (bool, error) {
	is := s.Next() == 't'
	return is, s.Skip()
}
