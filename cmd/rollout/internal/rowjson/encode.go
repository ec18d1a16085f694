package rowjson

import (
	"encoding/base64"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/sink"
)

// A Header is the first line of the export of a whole run.
type Header struct {
	// Version is the version of the line format: 1.
	Version       int               `json:"rollout_export"`
	RunID         string            `json:"run_id"`
	SchemaVersion int               `json:"schema_version"`
	Format        sink.Format       `json:"format"` // file format of the shards
	Rows          int64             `json:"rows"`
	Failures      int64             `json:"failures"`
	Samples       int64             `json:"samples"` // a sample that failed and then succeeded counts twice
	Meta          map[string]string `json:"meta"`    // metadata that is the same in all shards
}

// headerVersion is the version of the line format that this program writes and reads.
const headerVersion = 1

// A column describes one field of a row.
type column struct {
	name     string
	index    int
	nullable bool
}

var (
	rowColumns     = columnsOf[sink.StoredRow]()
	failureColumns = columnsOf[sink.StoredFailure]()
	emptyColumns   = columnsOf[emptySample]()
)

// An emptySample is the line for a sample without rows and failures.
type emptySample struct {
	SampleKey   string `parquet:"sample_key"`
	Attempt     int32  `parquet:"attempt"`
	GroupID     string `parquet:"group_id"`
	GroupSize   int32  `parquet:"group_size"`
	SampleIndex int32  `parquet:"sample_index"`
}

func columnsOf[T any]() []column {
	t := reflect.TypeFor[T]()
	columns := make([]column, t.NumField())
	for i := range columns {
		f := t.Field(i)
		name, tags, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		columns[i] = column{name: name, index: i, nullable: strings.Contains(tags, "optional")}
	}
	return columns
}

// A Writer writes lines. It keeps one line in memory.
type Writer struct {
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer that writes to w. The destination w should be buffered.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Header writes the first line of the export of a whole run.
func (w *Writer) Header(h Header) error {
	h.Version, h.SchemaVersion = headerVersion, sink.SchemaVersion
	line, err := format.JSONLine(h)
	if err == nil {
		_, err = w.w.Write(append(line, '\n'))
	}
	return err
}

// Write writes one line for each row and each failure of s. If s has neither, Write writes one
// line.
func (w *Writer) Write(s *sink.StoredSample) error {
	for i := range s.Rows {
		if err := w.row(rowColumns, &s.Rows[i]); err != nil {
			return err
		}
	}
	for i := range s.Failures {
		if err := w.row(failureColumns, &s.Failures[i]); err != nil {
			return err
		}
	}
	if len(s.Rows)+len(s.Failures) > 0 {
		return nil
	}
	return w.row(emptyColumns, &emptySample{s.Key, s.Attempt, s.Group.ID, s.Group.Size, s.Index})
}

func (w *Writer) row(columns []column, row any) error {
	w.buf = append(appendColumns(w.buf[:0], columns, row), '\n')
	_, err := w.w.Write(w.buf)
	if cap(w.buf) > 16<<20 { // do not keep such a large buffer
		w.buf = nil
	}
	return err
}

// appendColumns appends an object with the given columns of the row.
func appendColumns(b []byte, columns []column, row any) []byte {
	v, start := reflect.ValueOf(row).Elem(), len(b)
	for _, c := range columns {
		b = append(b, ',', '"')
		b = append(b, c.name...)
		b = append(b, '"', ':')
		b = appendValue(b, v.Field(c.index).Addr().Interface(), c.nullable)
	}
	b[start] = '{' // replaces the first comma
	return append(b, '}')
}

const null = "null"

func appendValue(b []byte, field any, nullable bool) []byte {
	switch p := field.(type) {
	case *string:
		return appendText(b, *p)
	case *bool:
		return strconv.AppendBool(b, *p)
	case *int32:
		return strconv.AppendInt(b, int64(*p), 10)
	case *int64:
		return strconv.AppendInt(b, *p, 10)
	case *float32:
		return appendFloat32(b, *p)
	case *float64:
		return appendFloat64(b, *p)
	case *[]byte:
		if *p == nil {
			return append(b, null...)
		}
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), *p), '"')
	case *[]int8:
		return appendList(b, *p, nullable, func(b []byte, v int8) []byte { return strconv.AppendInt(b, int64(v), 10) })
	case *[]int32:
		return appendList(b, *p, nullable, func(b []byte, v int32) []byte { return strconv.AppendInt(b, int64(v), 10) })
	case *[]float32:
		return appendList(b, *p, nullable, appendFloat32)
	case *[]string:
		return appendList(b, *p, nullable, appendText)
	}
	p := reflect.ValueOf(field).Elem()
	if p.Kind() != reflect.Pointer {
		panic("rowjson: internal error: a column has an unsupported type") // every test would fail
	}
	if p.IsNil() {
		return append(b, null...)
	}
	return appendValue(b, p.Interface(), false)
}

func appendList[T any](b []byte, list []T, nullable bool, one func([]byte, T) []byte) []byte {
	if list == nil && nullable {
		return append(b, null...)
	}
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, v)
	}
	return append(b, ']')
}

// The bit patterns of the NaN values that are written as plain "NaN".
const (
	plainNaN32 = 0x7fc00000
	plainNaN64 = 0x7ff8000000000000
)

func appendFloat32(b []byte, v float32) []byte {
	bits := math.Float32bits(v)
	if bits == 0 { // the most frequent value
		return append(b, '0')
	}
	return appendFloat(b, float64(v), uint64(bits), plainNaN32, 32)
}

func appendFloat64(b []byte, v float64) []byte {
	return appendFloat(b, v, math.Float64bits(v), plainNaN64, 64)
}

func appendFloat(b []byte, v float64, bits, plainNaN uint64, size int) []byte {
	switch {
	case v != v && bits != plainNaN:
		return append(strconv.AppendUint(append(b, `"NaN:`...), bits, 16), '"')
	case v != v:
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	case v == 0 && math.Signbit(v):
		return append(b, "-0.0"...) // many parsers convert -0 to an integer
	}
	return strconv.AppendFloat(b, v, 'g', -1, size)
}

const hexDigits = "0123456789abcdef"

// appendText appends UTF-8 text as a JSON string. It escapes the characters that a terminal must
// not receive, so a line can be printed without further escaping.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c <= '~' && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			if r, size = utf8.DecodeRuneInString(s[i:]); unicode.IsGraphic(r) || r == '\u200c' || r == '\u200d' {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		i += size
		from = i
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = appendEscape(appendEscape(b, high), low)
		default:
			b = appendEscape(b, r)
		}
	}
	return append(append(b, s[from:]...), '"')
}

func appendEscape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
