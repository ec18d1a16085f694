package proxy

import (
	"bytes"
	"errors"
)

// maxEvent limits the size of an event in a stream, in bytes. The first event can contain the ids of
// the prompt.
const maxEvent = 16 << 20

var errEvent = errors.New("proxy: an event is too long")

// A splitter splits a stream into events. It holds back only an incomplete event.
type splitter struct {
	desk *desk // pooled memory for buf; nil while buf is empty
	buf  []byte
	line int // offset in buf of the current line
}

// close frees the memory of the splitter.
func (s *splitter) close() {
	if s.desk != nil {
		s.desk.body = s.buf[:0]
		s.desk.free()
	}
	*s = splitter{}
}

// write passes each event that b completes to the function event, with the blank line at its end.
// The event is valid until the function returns. The last event of a stream may lack its end; it is
// never passed on, because clients ignore such an event.
func (s *splitter) write(b []byte, event func(raw []byte) error) error {
	if s.desk == nil {
		s.desk = newDesk()
		s.buf = s.desk.body[:0]
	}
	s.buf = append(s.buf, b...)
	from, at := 0, s.line
	for {
		end := bytes.IndexByte(s.buf[max(at, len(s.buf)-len(b)):], '\n')
		if end < 0 {
			break
		}
		end += max(at, len(s.buf)-len(b)) + 1
		if line := s.buf[at:end]; len(line) == 1 || len(line) == 2 && line[0] == '\r' {
			if err := event(s.buf[from:end]); err != nil {
				return err
			}
			from = end
		}
		at = end
	}
	s.buf, s.line = s.buf[:copy(s.buf, s.buf[from:])], at-from
	switch {
	case len(s.buf) > maxEvent:
		return errEvent
	case len(s.buf) == 0:
		s.close()
	}
	return nil
}

// dataOf returns the data of an event and its position in the event. If the event has several lines
// of data, they are joined and the position is zero. If it has none, data is nil.
func dataOf(raw []byte) (data []byte, at span) {
	for from := 0; from < len(raw); {
		end := from + bytes.IndexByte(raw[from:], '\n')
		line := bytes.TrimSuffix(raw[from:end], []byte("\r"))
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			value = bytes.TrimPrefix(value, []byte(" "))
			if data == nil {
				data, at = value, span{from + len(line) - len(value), from + len(line)}
			} else {
				data, at = append(append(bytes.Clone(data), '\n'), value...), span{}
			}
		}
		from = end + 1
	}
	return data, at
}

// appendLines appends an event whose data has several lines.
func appendLines(dst, data []byte) []byte {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}
