package rowjson

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// maxLine is the maximum length of a line, which also limits the memory of a Reader. A token takes
// about 20 bytes.
const maxLine = 256 << 20

// A Reader reads lines. It keeps one line in memory.
type Reader struct {
	// Trajectory decodes a line that is a trajectory of ATIF. If it is nil, such a line is an error.
	Trajectory func(line string) (*sink.StoredSample, error)

	r    *bufio.Reader
	buf  []byte
	Line int // number of the last line read, from 1
}

// NewReader returns a Reader that reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 256<<10)} }

// Read returns the next line that is not empty, as a part of a sample or as a header. At the end,
// it returns io.EOF. Other errors do not contain the line number, which is in Line.
func (r *Reader) Read() (*sink.StoredSample, *Header, error) {
	for {
		text, err := r.line()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case strings.TrimSpace(text) == "":
		case r.Trajectory != nil && hasMember(text, "schema_version") && !hasMember(text, "rollout_export"): // no row has this member
			s, err := r.Trajectory(text)
			return s, nil, err
		default:
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
			if cap(r.buf) > 16<<20 { // do not keep such a large buffer
				r.buf = nil
			}
			return text, nil
		}
		return "", err
	}
}

func decode(text string) (*sink.StoredSample, *Header, error) {
	switch {
	case hasMember(text, "rollout_export"):
		h, err := decodeHeader(text)
		return nil, h, err
	case hasMember(text, "input_ids"):
		row := new(sink.StoredRow)
		err := decodeRow(text, "row", rowColumns, row)
		return row.AsSample(), nil, err
	case hasMember(text, "class"):
		f := new(sink.StoredFailure)
		err := decodeRow(text, "failure", failureColumns, f)
		return f.AsSample(), nil, err
	}
	var empty emptySample
	if err := decodeRow(text, "sample without rows", emptyColumns, &empty); err != nil {
		return nil, nil, err
	}
	return &sink.StoredSample{
		Key: empty.SampleKey, Attempt: empty.Attempt, Group: sink.CommittedGroup{ID: empty.GroupID, Size: empty.GroupSize}, Index: empty.SampleIndex,
	}, nil, nil
}

// hasMember reports whether any object in the line has a member called name. A string value cannot
// look like a member, because quotes in strings are escaped.
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
	if err := strictjson.Check(text, strictjson.Options{}); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, err
	}
	if version.Version != headerVersion {
		return nil, fmt.Errorf("the export has version %d, but this program supports only version %d: upgrade rollout", version.Version, headerVersion)
	}
	h := new(Header)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(h); err != nil {
		return nil, fmt.Errorf("header: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if h.SchemaVersion != sink.SchemaVersion {
		return nil, fmt.Errorf("the export has schema version %d, but this program supports only version %d: upgrade rollout", h.SchemaVersion, sink.SchemaVersion)
	}
	if h.RunID == "" {
		return nil, errors.New("the header has no run_id")
	}
	return h, nil
}

// decodeRow decodes an object with the given columns into row, which is a pointer to a struct.
func decodeRow(text, what string, columns []column, row any) error {
	s := &scanner{strictjson.New(text, strictjson.Options{}), text}
	v := reflect.ValueOf(row).Elem()
	seen := make([]bool, len(columns))
	i := 0
	for name := range s.Members {
		at := columnAt(columns, name, i)
		if at < 0 {
			return fmt.Errorf("unknown column %.60q in a %s", name, what)
		}
		seen[at] = true
		decodeValue(s, v.Field(columns[at].index).Addr().Interface(), columns[at].nullable)
		i++
	}
	if err := s.End(); err != nil {
		if bad, ok := errors.AsType[*strictjson.Error](err); ok && bad.Path != "" {
			return fmt.Errorf("column %w", err)
		}
		return err
	}
	for i, c := range columns {
		if !seen[i] {
			return fmt.Errorf("column %s is missing from a %s", c.name, what)
		}
	}
	return nil
}

// columnAt returns the index of the column called name, or -1. It first tries the index likely.
func columnAt(columns []column, name string, likely int) int {
	if likely < len(columns) && columns[likely].name == name {
		return likely
	}
	return slices.IndexFunc(columns, func(c column) bool { return c.name == name })
}

type scanner struct {
	*strictjson.Scanner
	text string
}

// decodeValue decodes the value of a field. It records errors in the scanner.
func decodeValue(s *scanner, field any, nullable bool) {
	switch p := field.(type) {
	case *string:
		*p = s.Text()
	case *bool:
		*p = s.Bool()
	case *int8:
		integer(s, p, 8)
	case *int32:
		integer(s, p, 32)
	case *int64:
		integer(s, p, 64)
	case *float32:
		float32Value(s, p)
	case *float64:
		*p = math.Float64frombits(float(s, 64))
	case *[]byte:
		if s.Null() {
			return
		}
		s.Kind()
		at := s.Offset()
		var err error
		if *p, err = base64.StdEncoding.DecodeString(s.Text()); err != nil && s.Err() == nil {
			s.FailAt(at, "text that is not base64")
		}
	case *[]int8:
		list(s, p, nullable, func(s *scanner, v *int8) { integer(s, v, 8) })
	case *[]int32:
		list(s, p, nullable, func(s *scanner, v *int32) { integer(s, v, 32) })
	case *[]float32:
		list(s, p, nullable, float32Value)
	case *[]string:
		list(s, p, nullable, func(s *scanner, v *string) { *v = s.Text() })
	default:
		v := reflect.ValueOf(field).Elem()
		if v.Kind() != reflect.Pointer {
			panic("rowjson: internal error: a column has an unsupported type") // every test would fail
		}
		if !s.Null() {
			v.Set(reflect.New(v.Type().Elem()))
			decodeValue(s, v.Interface(), false)
		}
	}
}

func integer[T int8 | int32 | int64](s *scanner, p *T, bits int) {
	s.Kind()
	at := s.Offset()
	if *p = T(s.Int(bits)); *p == 0 && s.Since(at) == "-0" {
		s.FailAt(at, "-0 where an integer is expected")
	}
}

func float32Value(s *scanner, p *float32) { *p = math.Float32frombits(uint32(float(s, 32))) }

// float decodes a floating-point number of size bits and returns its bit pattern. NaN and the
// infinities are encoded as strings.
func float(s *scanner, size int) uint64 {
	kind, at := s.Kind(), s.Offset()
	switch kind {
	case '0':
		word := s.Number()
		v, err := strconv.ParseFloat(word, size)
		if s.Err() == nil && err != nil {
			s.FailAt(at, fmt.Sprintf("%.40s is too large for a %d-bit float", word, size))
		}
		if size == 32 {
			return uint64(math.Float32bits(float32(v)))
		}
		return math.Float64bits(v)
	case '"':
	default:
		s.Mismatch("a number")
		return 0
	}
	inf, nan, sign := uint64(0x7f800000), uint64(plainNaN32), uint64(1)<<31
	if size == 64 {
		inf, nan, sign = 0x7ff0000000000000, plainNaN64, 1<<63
	}
	word := s.Text()
	switch word {
	case "Infinity":
		return inf
	case "-Infinity":
		return inf | sign
	case "NaN":
		return nan
	}
	digits, ok := strings.CutPrefix(word, "NaN:")
	bits, err := strconv.ParseUint(digits, 16, size)
	if !ok || err != nil || len(digits) != size/4 || bits&^sign <= inf {
		s.FailAt(at, fmt.Sprintf(`%.40q where a number, "NaN", "Infinity" or "-Infinity" is expected`, word))
	}
	return bits
}

// maxAhead is the maximum number of elements for which a list is preallocated.
const maxAhead = 1 << 20

// list decodes a list. The result is nil only if the value is null.
func list[T any](s *scanner, p *[]T, nullable bool, one func(*scanner, *T)) {
	if nullable && s.Null() {
		return
	}
	rest := s.text[min(s.Offset(), len(s.text)):]
	end := max(0, strings.IndexByte(rest, ']'))
	values := make([]T, 0, min(strings.Count(rest[:end], ",")+1, maxAhead))
	for range s.Elements {
		var v T
		one(s, &v)
		values = append(values, v)
	}
	*p = values
}
