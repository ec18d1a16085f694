package rowjson

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/sink"
)

// maxLine bounds the length of a line, and so the memory of a Reader. A token takes about 20 bytes.
const maxLine = 256 << 20

// A Reader reads lines. It holds one.
type Reader struct {
	r    *bufio.Reader
	buf  []byte
	Line int // number of the last line read, from 1
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 256<<10)} }

// Read returns the next line that is not empty: a part of a sample, or a header. It returns io.EOF
// at the end. Other errors omit the line number, which is Line.
func (r *Reader) Read() (*sink.StoredSample, *Header, error) {
	for {
		text, err := r.line()
		if err != nil {
			return nil, nil, err
		}
		if strings.TrimSpace(text) != "" {
			return decode(text)
		}
	}
}

func (r *Reader) line() (string, error) {
	r.buf = r.buf[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		switch {
		case len(r.buf) > maxLine:
			r.Line++
			return "", fmt.Errorf("the line is longer than %s: is this an export?", format.Size(maxLine))
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.buf) > 0, err == nil:
			r.Line++
			text := string(r.buf)
			if cap(r.buf) > 16<<20 { // do not keep a buffer that large
				r.buf = nil
			}
			return text, nil
		}
		return "", err
	}
}

func decode(text string) (*sink.StoredSample, *Header, error) {
	if !utf8.ValidString(text) {
		return nil, nil, errors.New("the line is not UTF-8")
	}
	switch {
	case hasMember(text, "rollout_export"):
		h, err := decodeHeader(text)
		return nil, h, err
	case hasMember(text, "input_ids"):
		row := new(sink.StoredRow)
		err := decodeRow(text, "row", rowColumns, row)
		return &sink.StoredSample{
			Key: row.SampleKey, Attempt: row.Attempt, Group: sink.CommittedGroup{ID: row.GroupID, Size: row.GroupSize}, Index: row.SampleIndex,
			Rows: []sink.StoredRow{*row},
		}, nil, err
	case hasMember(text, "class"):
		f := new(sink.StoredFailure)
		err := decodeRow(text, "failure", failureColumns, f)
		return &sink.StoredSample{
			Key: f.SampleKey, Attempt: f.Attempt, Group: sink.CommittedGroup{ID: f.GroupID, Size: f.GroupSize}, Index: f.SampleIndex,
			Failures: []sink.StoredFailure{*f},
		}, nil, err
	}
	var empty emptySample
	if err := decodeRow(text, "sample without rows", emptyColumns, &empty); err != nil {
		return nil, nil, err
	}
	return &sink.StoredSample{
		Key: empty.SampleKey, Attempt: empty.Attempt, Group: sink.CommittedGroup{ID: empty.GroupID, Size: empty.GroupSize}, Index: empty.SampleIndex,
	}, nil, nil
}

// An emptySample is the line of a sample without rows and failures.
type emptySample struct {
	SampleKey   string `parquet:"sample_key"`
	Attempt     int32  `parquet:"attempt"`
	GroupID     string `parquet:"group_id"`
	GroupSize   int32  `parquet:"group_size"`
	SampleIndex int32  `parquet:"sample_index"`
}

var emptyColumns = columnsOf[emptySample]()

// hasMember reports whether an object in the line has the member name. Quotes inside strings are
// escaped, so text cannot look like a member.
func hasMember(text, name string) bool {
	quoted := `"` + name + `"`
	for {
		at := strings.Index(text, quoted)
		if at < 0 {
			return false
		}
		text = strings.TrimLeft(text[at+len(quoted):], " \t")
		if strings.HasPrefix(text, ":") {
			return true
		}
	}
}

func decodeHeader(text string) (*Header, error) {
	var version struct {
		Version int `json:"rollout_export"`
	}
	if err := plainjson.Scan([]byte(text), nil); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, err
	}
	if version.Version != headerVersion {
		return nil, fmt.Errorf("export version %d, but this program supports %d: use a newer rollout", version.Version, headerVersion)
	}
	h := new(Header)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(h); err != nil {
		return nil, fmt.Errorf("header: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if h.SchemaVersion != sink.SchemaVersion {
		return nil, fmt.Errorf("schema version %d, but this program supports %d: use a newer rollout", h.SchemaVersion, sink.SchemaVersion)
	}
	if h.RunID == "" {
		return nil, errors.New("header: no run_id")
	}
	return h, nil
}

// decodeRow decodes an object with the given columns into row, a pointer to a struct.
func decodeRow(text, what string, columns []column, row any) error {
	s := &scanner{text: text}
	v := reflect.ValueOf(row).Elem()
	seen := make([]bool, len(columns))
	if !s.take('{') {
		return fmt.Errorf("not an object: %w", s.wrong("{"))
	}
	for i := 0; !s.take('}'); i++ {
		if i > 0 && !s.take(',') {
			return s.wrong(", or }")
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		at := columnAt(columns, name, i)
		switch {
		case at < 0:
			return fmt.Errorf("a %s has no column %.60q", what, name)
		case seen[at]:
			return fmt.Errorf("duplicate column %s", name)
		case !s.take(':'):
			return s.wrong(":")
		}
		seen[at] = true
		if err := decodeValue(s, v.Field(columns[at].index).Addr().Interface(), columns[at].nullable); err != nil {
			return fmt.Errorf("column %s: %w", name, err)
		}
	}
	if s.peek() != 0 || s.at < len(s.text) {
		return s.wrong("the end of the line")
	}
	for i, c := range columns {
		if !seen[i] {
			return fmt.Errorf("column %s of a %s is missing", c.name, what)
		}
	}
	return nil
}

// columnAt returns the index of a column, or -1. likely is a hint.
func columnAt(columns []column, name string, likely int) int {
	if likely < len(columns) && columns[likely].name == name {
		return likely
	}
	for i, c := range columns {
		if c.name == name {
			return i
		}
	}
	return -1
}

// decodeValue decodes the value of a field.
func decodeValue(s *scanner, field any, nullable bool) (err error) {
	switch p := field.(type) {
	case *string:
		*p, err = s.str()
	case *bool:
		*p, err = s.boolean()
	case *int8:
		err = integer(s, p, 8)
	case *int32:
		err = integer(s, p, 32)
	case *int64:
		err = integer(s, p, 64)
	case *float32:
		*p, err = s.float32()
	case *float64:
		*p, err = s.float64()
	case **string:
		err = pointer(s, p)
	case **bool:
		err = pointer(s, p)
	case **int32:
		err = pointer(s, p)
	case **float32:
		err = pointer(s, p)
	case **float64:
		err = pointer(s, p)
	case *[]int8:
		err = list(s, p, nullable, func(s *scanner, v *int8) error { return integer(s, v, 8) })
	case *[]int32:
		err = list(s, p, nullable, func(s *scanner, v *int32) error { return integer(s, v, 32) })
	case *[]float32:
		err = list(s, p, nullable, func(s *scanner, v *float32) (err error) { *v, err = s.float32(); return err })
	case *[]string:
		err = list(s, p, nullable, func(s *scanner, v *string) (err error) { *v, err = s.str(); return err })
	default:
		panic("rowjson: internal error: a column of another type") // every test finds it
	}
	return err
}

func integer[T int8 | int32 | int64](s *scanner, p *T, bits int) error {
	n, err := s.integer(bits)
	*p = T(n)
	return err
}

func pointer[T any](s *scanner, p **T) error {
	if s.null() {
		return nil
	}
	*p = new(T)
	return decodeValue(s, *p, false)
}

// maxAhead bounds the preallocation for a list.
const maxAhead = 1 << 20

// list decodes a list. The result is nil only for null.
func list[T any](s *scanner, p *[]T, nullable bool, one func(*scanner, *T) error) error {
	if nullable && s.null() {
		return nil
	}
	if !s.take('[') {
		return s.wrong("a list")
	}
	end := strings.IndexByte(s.text[s.at:], ']')
	if end < 0 {
		return errors.New("the line ends early")
	}
	values := make([]T, 0, min(strings.Count(s.text[s.at:s.at+end], ",")+1, maxAhead))
	for !s.take(']') {
		if len(values) > 0 && !s.take(',') {
			return fmt.Errorf("element %d: %w", len(values), s.wrong(", or ]"))
		}
		var v T
		if err := one(s, &v); err != nil {
			return fmt.Errorf("element %d: %w", len(values), err)
		}
		values = append(values, v)
	}
	*p = values
	return nil
}
