package rowjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestThereAndBack checks that lines are JSON and that they are read and written again bit for
// bit.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sinktest.Write(t, dir, sink.Config{}, sinktest.Edge())
	log, err := sink.ReadLog(dir)
	must(t, err)
	var parts []*sink.StoredSample
	for s, err := range log.Stored() {
		must(t, err)
		parts = append(parts, s)
	}
	keep := *parts[0]
	keep.Rows = []sink.StoredRow{keep.Rows[0]}
	keep.Rows[0].Keep, keep.Rows[0].KeepReason = new(false), new("too \"long\" \u202e 😀 \x7f")
	keep.Rows[0].Logprobs = nil
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7fc00001, 0x7f800001, 0xffffffff, 0x7f800000, 0xff800000, 0x80000000, 1, 0x7f7fffff, 0x3dcccccd} {
		keep.Rows[0].Logprobs = append(keep.Rows[0].Logprobs, math.Float32frombits(bits))
	}
	nan := math.Float64frombits(0xfff4000000000123)
	keep.Rows[0].Reward = &nan
	keep.Rows[0].StartedAt, keep.Rows[0].PromptTokens = math.MinInt64, math.MaxInt64
	parts = append(parts, &keep)
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, s := range parts {
		must(t, w.Write(s))
	}
	text := out.String()
	r := NewReader(strings.NewReader(text))
	var again bytes.Buffer
	w = NewWriter(&again)
	for i, want := range parts {
		got, h, err := r.Read()
		if err != nil || h != nil {
			t.Fatalf("line %d: %v, header %v", r.Line, err, h)
		}
		if a, b := bitsOf(reflect.ValueOf(*got)), bitsOf(reflect.ValueOf(*want)); !reflect.DeepEqual(a, b) {
			t.Errorf("line %d: %.300v\nwant %.300v", i+1, a, b)
		}
		must(t, w.Write(got))
	}
	if _, _, err := r.Read(); err != io.EOF {
		t.Errorf("after the last line: %v", err)
	}
	if again.String() != text {
		t.Error("written again it is another text")
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d is not JSON: %.200s", i+1, line)
		}
		for _, r := range line {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("line %d has %q as it is", i+1, r)
			}
		}
	}
}

// bitsOf returns a value with floats as bits, and with empty lists as nil if both are equal in
// storage.
func bitsOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return []any{bitsOf(v.Elem())}
	case reflect.Struct:
		fields := map[string]any{}
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Slice && f.Len() == 0 && (f.IsNil() || v.Type().Field(i).Name != "Versions") {
				fields[v.Type().Field(i).Name] = "empty"
				continue
			}
			fields[v.Type().Field(i).Name] = bitsOf(f)
		}
		return fields
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = bitsOf(v.Index(i))
		}
		return list
	case reflect.Float32:
		return math.Float32bits(v.Interface().(float32))
	case reflect.Float64:
		return math.Float64bits(v.Float())
	}
	return v.Interface()
}

func TestHeader(t *testing.T) {
	t.Parallel()
	want := Header{RunID: "r", Format: sink.Arrow, Rows: 1, Failures: 2, Samples: 3, Meta: map[string]string{"a\n": "<ü>"}}
	var out bytes.Buffer
	must(t, NewWriter(&out).Header(want))
	_, got, err := NewReader(&out).Read()
	want.Version, want.SchemaVersion = 1, sink.SchemaVersion
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("Read() = %+v, %v, want %+v", got, err, want)
	}
	for _, tt := range []struct{ line, want string }{
		{`{"rollout_export":2,"news":1}`, "upgrade rollout"},
		{`{"rollout_export":1,"schema_version":99}`, "upgrade rollout"},
		{`{"rollout_export":1,"rows":1,"rows":2}`, "rows"},
		{`{"rollout_export":1,"other":1}`, "other"},
		{`{"rollout_export":1,"format":"csv"}`, "csv"},
		{`{"rollout_export":"1"}`, "rollout_export"},
		{`{"rollout_export":1`, "the text ends"},
	} {
		if _, _, err := NewReader(strings.NewReader(tt.line)).Read(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Read(%s) = %v, want %q", tt.line, err, tt.want)
		}
	}
}

// rowLine returns the line of a short row.
func rowLine(tb testing.TB) string {
	tb.Helper()
	b := sinktest.NewBuilder(1)
	row := sinktest.Rows(b.Sample(b.Row(2, 2)))[0]
	var out bytes.Buffer
	must(tb, NewWriter(&out).Write(&sink.StoredSample{Rows: []sink.StoredRow{row}}))
	return strings.TrimSpace(out.String())
}

// TestHostile checks that any bad line gives one error that names the column.
func TestHostile(t *testing.T) {
	t.Parallel()
	good := rowLine(t)
	swap := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("the line has no %s: %s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, tt := range []struct{ name, line, want string }{
		{"cut", good[:strings.Index(good, `"status":"`)+12], "column status"},
		{"cut in the middle of a list", good[:strings.Index(good, `"loss_mask":[`)+15], "column loss_mask"},
		{"without the end", good[:len(good)-1], "the text ends"},
		{"two objects", good + good, "where the end is expected"},
		{"an array", "[" + good + "]", "a list where an object is expected"},
		{"unknown", swap(`"attempt"`, `"attmept"`), `unknown column "attmept" in a row`},
		{"missing", swap(`"attempt":1,`, ``), "column attempt is missing from a row"},
		{"twice", swap(`"attempt":1,`, `"attempt":1,"attempt":1,`), "column attempt: duplicate key"},
		{"a fraction", swap(`"attempt":1,`, `"attempt":1.0,`), `column attempt: the number 1.0 where`},
		{"an exponent", swap(`"attempt":1,`, `"attempt":1e3,`), "where an integer of 32 bits is expected"},
		{"a text for a number", swap(`"attempt":1,`, `"attempt":"1",`), "a string where an integer is expected"},
		{"a number for a text", swap(`"status":"completed"`, `"status":3`), "column status: a number where a string"},
		{"null where none may be", swap(`"status":"completed"`, `"status":null`), "column status: null where a string"},
		{"too large", swap(`"attempt":1,`, `"attempt":2147483648,`), "where an integer of 32 bits is expected"},
		{"much too large", swap(`"attempt":1,`, `"attempt":99999999999999999999999999,`), "column attempt"},
		{"int64", swap(`"duration_ms":1500`, `"duration_ms":9223372036854775808`), "where an integer of 64 bits is expected"},
		{"a leading zero", swap(`"attempt":1,`, `"attempt":01,`), "',' or '}'"},
		{"minus zero", swap(`"attempt":1,`, `"attempt":-0,`), "column attempt"},
		{"a mask that does not fit", swap(`"loss_mask":[0,`, `"loss_mask":[128,`), "column loss_mask: element 0: the number 128 where"},
		{"nested", swap(`"loss_mask":[0,`, `"loss_mask":[[0],`), "column loss_mask: element 0"},
		{"an object", swap(`"loss_mask":[0,`, `"loss_mask":[{},`), "column loss_mask: element 0"},
		{"no comma", swap(`"loss_mask":[0,0`, `"loss_mask":[0 0`), "where ',' or ']' is expected"},
		{"NaN as JavaScript writes it", swap(`"logprobs":[0,`, `"logprobs":[NaN,`), "column logprobs: element 0"},
		{"a NaN that is none", swap(`"logprobs":[0,`, `"logprobs":["NaN:3f800000",`), "column logprobs: element 0"},
		{"float32 too large", swap(`"logprobs":[0,`, `"logprobs":[1e39,`), "too large for a 32-bit float"},
		{"a plus", swap(`"logprobs":[0,`, `"logprobs":[+1,`), "where a number is expected"},
		{"true", swap(`"truncated":false`, `"truncated":0`), "a number where a boolean is expected"},
		{"not UTF-8", swap(`"status":"completed"`, "\"status\":\"\xff\""), "not UTF-8"},
		{"half a pair", swap(`"status":"completed"`, `"status":"\ud83d"`), "an unpaired surrogate"},
		{"nothing known", `{"a":1}`, `unknown column "a" in a sample without rows`},
		{"a text", `"sample_key"`, "a string where an object"},
		{"commas", `{"input_ids":[` + strings.Repeat(",", 1<<20), "column input_ids"},
		{"brackets", strings.Repeat("[", 1<<20), "a list where an object"},
		{"flags of commas", swap(`"flags":[]`, `"flags":[`+strings.Repeat(",", 1<<20)+`]`), "column flags: element 0"},
		{"zero byte", good + "\x00", "where the end is expected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(strings.NewReader("\n" + tt.line))
			_, _, err := r.Read()
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 || r.Line != 2 {
				t.Errorf("Read() = %v at line %d, want %q at line 2", err, r.Line, tt.want)
			}
		})
	}
}

// TestEndlessLine checks that an endless line does not fill the memory.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads 256 MB: run without -short")
	}
	_, _, err := NewReader(endless{}).Read()
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("Read() = %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '['
	}
	return len(p), nil
}

// FuzzRead checks that no line panics, and that a line that is read survives a round trip.
func FuzzRead(f *testing.F) {
	f.Add(rowLine(f))
	f.Add(`{"rollout_export":1,"run_id":"r","format":"arrow","meta":{}}`)
	f.Add(`{"sample_key":"k","attempt":1,"group_id":null,"group_size":null,"sample_index":null}`)
	f.Add(strings.Replace(rowLine(f), "[0,", `["NaN:7fc00001",-0.0,1e-7,"-Infinity",`, 1))
	f.Fuzz(func(t *testing.T, line string) {
		s, h, err := NewReader(strings.NewReader(line)).Read()
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		if h != nil {
			err = w.Header(*h)
		} else {
			err = w.Write(s)
		}
		must(t, err)
		first := out.String()
		again, h, err := NewReader(&out).Read()
		if err != nil {
			t.Fatalf("%v of %s", err, first)
		}
		if h == nil && !reflect.DeepEqual(bitsOf(reflect.ValueOf(*again)), bitsOf(reflect.ValueOf(*s))) {
			t.Errorf("%s was read as another row", first)
		}
	})
}

// TestReadError checks that an error of the underlying reader is returned.
func TestReadError(t *testing.T) {
	t.Parallel()
	errStop := errors.New("stop")
	if _, _, err := NewReader(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(errStop))).Read(); !errors.Is(err, errStop) {
		t.Errorf("Read() = %v", err)
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
