package tokenize_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rollout-rl/rollout/tokenize"
)

// A scanned is what the tests read of an engine's answer.
type scanned struct {
	Text     string
	IDs      []int32
	Logprobs []float32
	LogIDs   []int32
	Numbers  []string
	Ends     int64
}

func scan(s *tokenize.Scanner) (got scanned, err error) {
	err = s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "text":
			got.Text, err = s.Text(100)
		case "output_ids":
			got.IDs, err = s.IDs(got.IDs)
		case "logprobs":
			got.Logprobs, got.LogIDs, err = s.Logprobs(got.Logprobs, got.LogIDs)
		case "numbers":
			err = s.Array(func(int) error {
				text, err := s.Number()
				got.Numbers = append(got.Numbers, string(text))
				return err
			})
		default:
			err = s.Skip()
		}
		return err
	})
	got.Ends = s.Offset()
	if err == nil {
		err = s.End()
	}
	return got, err
}

func TestScanner(t *testing.T) {
	t.Parallel()
	text := `{"text":"a\u00e9\"b","skip":{"output_ids":[9,{"x":[]}]},"output_ids":[1,22 , 151645],` +
		`"logprobs":[[-0.25,1,null],[null,22,"a"],[-2.9001324946875684e-05, 151645, null]],"numbers":[1,-2.5e3]} `
	want := scanned{Text: `aé"b`, IDs: []int32{1, 22, 151645}, LogIDs: []int32{1, 22, 151645}, Numbers: []string{"1", "-2.5e3"}, Ends: int64(len(text) - 1)}
	spelled := -2.9001324946875684e-05
	bits := []uint32{math.Float32bits(-0.25), math.Float32bits(float32(math.NaN())), math.Float32bits(float32(spelled))}
	s := tokenize.NewScanner(tokenize.DecoderConfig{ChunkBytes: 4 << 10})
	for name, begin := range map[string]func(){
		"bytes":    func() { s.ResetBytes([]byte(text)) },
		"reader":   func() { s.Reset(strings.NewReader(text)) },
		"one byte": func() { s.Reset(iotest.OneByteReader(strings.NewReader(text))) },
	} {
		begin()
		got, err := scan(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Text != want.Text || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.LogIDs, want.LogIDs) || !slices.Equal(got.Numbers, want.Numbers) || got.Ends != want.Ends {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		for i, p := range got.Logprobs {
			if math.Float32bits(p) != bits[i] && !(p != p && i == 1) {
				t.Errorf("%s: logprob %d is %v", name, i, p)
			}
		}
	}
}

// TestScannerReadsTheDecodersBits checks that the Scanner and the Decoder return the same bits for
// a log-probability, even if engine and server format the double differently.
func TestScannerReadsTheDecodersBits(t *testing.T) {
	t.Parallel()
	engine := `{"logprobs":[[-2.9001324946875684e-05,7,null],[-2.666984926236182e-07,8,null],[-0.016834063455462456,9,null]]}`
	server := `{"turns":[{"role":"assistant","output_ids":[7,8,9],"output_token_logprobs":` +
		`[[-0.000029001324946875684,7,null],[-2.666984926236182e-7,8,null],[-1.6834063455462456e-2,9,null]]}]}`
	s := tokenize.NewScanner(tokenize.DecoderConfig{})
	s.ResetBytes([]byte(engine))
	got, err := scan(s)
	if err != nil {
		t.Fatal(err)
	}
	var reply tokenize.Reply
	if err := tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes([]byte(server), &reply); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Logprobs, reply.Turns[0].Logprobs) || len(got.Logprobs) != 3 {
		t.Errorf("the engine's answer has %v, the server's answer %v", got.Logprobs, reply.Turns[0].Logprobs)
	}
}

func TestScannerErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"nothing", ``, io.ErrUnexpectedEOF},
		{"no object", `[1]`, tokenize.ErrSchema},
		{"more behind", `{} {}`, tokenize.ErrSyntax},
		{"no list", `{"output_ids":null}`, tokenize.ErrSchema},
		{"a list of lists", `{"output_ids":[[1]]}`, tokenize.ErrSchema},
		{"an id of 33 bits", `{"output_ids":[4294967296]}`, tokenize.ErrRange},
		{"cut in a list", `{"output_ids":[1,2`, io.ErrUnexpectedEOF},
		{"a number that is none", `{"numbers":[-]}`, tokenize.ErrSyntax},
		{"a text too long", `{"text":"` + strings.Repeat("é", 51) + `"}`, tokenize.ErrTooLarge},
		{"too deep", `{"numbers":` + strings.Repeat("[", 300), tokenize.ErrSchema},
		{"too deep to skip", `{"x":` + strings.Repeat("[", 300), tokenize.ErrTooLarge},
	} {
		s := tokenize.NewScanner(tokenize.DecoderConfig{})
		s.ResetBytes([]byte(c.text))
		if _, err := scan(s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// FuzzScanner checks that accepted input is JSON and that the result does not depend on the chunks.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"text":"x","output_ids":[1,2,3],"logprobs":[[-0.5,1,null],[-1e-9,2,"a"]],"numbers":[1,2.5]}`), 3)
	f.Add([]byte(`{"output_ids": [ 1 , 2 ] , "skip": {"a": [true, null, "\ud83d\ude00"]}}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, chop int) {
		s := tokenize.NewScanner(tokenize.DecoderConfig{ChunkBytes: 4 << 10})
		s.ResetBytes(text)
		whole, err := scan(s)
		s.Reset(&chopped{text, max(1, chop&63)})
		parts, err2 := scan(s)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("as a whole %v, chopped %v", err, err2)
		}
		if err != nil {
			return
		}
		if !slices.Equal(whole.IDs, parts.IDs) || !slices.EqualFunc(whole.Logprobs, parts.Logprobs, sameBits) || whole.Text != parts.Text || whole.Ends != parts.Ends {
			t.Fatalf("as a whole %+v, chopped %+v", whole, parts)
		}
		if !json.Valid(text) {
			t.Fatalf("read, and is not JSON: %q", text)
		}
	})
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

type chopped struct {
	rest []byte
	size int
}

func (c *chopped) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(c.size, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}

func BenchmarkScanner(b *testing.B) {
	var text bytes.Buffer
	text.WriteString(`{"output_ids":[`)
	for i := range 4096 {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString("15164")
	}
	text.WriteString(`],"logprobs":[`)
	for i := range 4096 {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString("[-0.016834063455462456, 15164, null]")
	}
	text.WriteString("]}")
	s := tokenize.NewScanner(tokenize.DecoderConfig{ChunkBytes: 8 << 10})
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		s.Reset(bytes.NewReader(text.Bytes()))
		if _, err := scan(s); err != nil {
			b.Fatal(err)
		}
	}
}
