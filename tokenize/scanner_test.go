package tokenize_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

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
		`"logprobs":[[-0.016834063455462456,1,null],[null,22,"a"],[-2.9001324946875684e-05, 151645, null]],"numbers":[1,-2.5e3]} `
	plain, small := -0.016834063455462456, -2.9001324946875684e-05 // rounded as the Decoder does, see TestFloatExact
	want := fmt.Sprint(scanned{
		Text: `aé"b`, IDs: []int32{1, 22, 151645}, Logprobs: []float32{float32(plain), float32(math.NaN()), float32(small)},
		LogIDs: []int32{1, 22, 151645}, Numbers: []string{"1", "-2.5e3"}, Ends: int64(len(text) - 1),
	})
	s := tokenize.NewScanner(tokenize.DecoderConfig{ChunkBytes: 4 << 10})
	s.ResetBytes([]byte(text))
	if got, err := scan(s); err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %+v, %v, want %s", got, err, want)
	}
	for _, c := range choppings {
		s.Reset(c.read([]byte(text)))
		if got, err := scan(s); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: got %+v, %v, want %s", c.name, got, err, want)
		}
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
		s.Reset(&pieces{text, func() int { return max(1, chop&63) }})
		parts, err2 := scan(s)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("as a whole %v, chopped %v", err, err2)
		}
		if err != nil {
			return
		}
		if fmt.Sprint(whole) != fmt.Sprint(parts) {
			t.Fatalf("as a whole %+v, chopped %+v", whole, parts)
		}
		if !json.Valid(text) {
			t.Fatalf("read, and is not JSON: %q", text)
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	list := func(element string) string { return strings.TrimSuffix(strings.Repeat(element+", ", 4096), ", ") }
	text := `{"output_ids":[` + list("15164") + `],"logprobs":[` + list("[-0.016834063455462456, 15164, null]") + "]}"
	s := tokenize.NewScanner(tokenize.DecoderConfig{ChunkBytes: 8 << 10})
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s.Reset(strings.NewReader(text))
		if _, err := scan(s); err != nil {
			b.Fatal(err)
		}
	}
}
