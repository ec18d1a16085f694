package tokenize_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
)

// hostile are invalid replies with the offset, path and kind of the first error; also fuzz seeds.
var hostile = []struct {
	name   string
	in     string
	offset int64
	path   string
	err    error
}{
	{"empty", ``, 0, "", io.ErrUnexpectedEOF},
	{"blank", " \n", 2, "", io.ErrUnexpectedEOF},
	{"not an object", `[]`, 0, "", tokenize.ErrSchema},
	{"not JSON", `<html>`, 0, "", tokenize.ErrSyntax},
	{"byte order mark", "\ufeff{}", 0, "", tokenize.ErrSyntax},
	{"nul", "\x00{}", 0, "", tokenize.ErrSyntax},
	{"no end", `{`, 1, "", io.ErrUnexpectedEOF},
	{"bare key", `{a:1}`, 1, "", tokenize.ErrSyntax},
	{"no colon", `{"a" 1}`, 5, "/a", tokenize.ErrSyntax},
	{"no value", `{"a":}`, 5, "/a", tokenize.ErrSyntax},
	{"comma at the end", `{"a":1,}`, 7, "", tokenize.ErrSyntax},
	{"no comma", `{"a":1 "b":2}`, 7, "", tokenize.ErrSyntax},
	{"second reply", `{} {}`, 3, "", tokenize.ErrSyntax},
	{"junk behind", "{}\x01", 2, "", tokenize.ErrSyntax},
	{"slash in a key", `{"a/b~c":!}`, 9, "/a~1b~0c", tokenize.ErrSyntax},

	{"leading zero", `{"a":[01]}`, 7, "/a", tokenize.ErrSyntax},
	{"plus", `{"a":+1}`, 5, "/a", tokenize.ErrSyntax},
	{"point without digits", `{"a":1.}`, 7, "/a", tokenize.ErrSyntax},
	{"exponent without digits", `{"a":1e+}`, 8, "/a", tokenize.ErrSyntax},
	{"bare minus", `{"a":-}`, 6, "/a", tokenize.ErrSyntax},
	{"two points", `{"a":1.2.3}`, 8, "/a", tokenize.ErrSyntax},
	{"NaN", `{"a":NaN}`, 5, "/a", tokenize.ErrSyntax},
	{"long number", `{"a":` + strings.Repeat("1", 2000) + `}`, 5, "/a", tokenize.ErrTooLarge},
	{"half a literal", `{"a":nul`, 8, "/a", io.ErrUnexpectedEOF},
	{"wrong literal", `{"a":nuLl}`, 7, "/a", tokenize.ErrSyntax},
	{"wrong bracket", `{"a":[1}`, 7, "/a", tokenize.ErrSyntax},
	{"wrong brace", `{"a":{"b":1]}`, 11, "/a", tokenize.ErrSyntax},
	{"deep", `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, 5 + 255, "/a", tokenize.ErrTooLarge},

	{"control character", "{\"a\":\"x\ny\"}", 7, "/a", tokenize.ErrSyntax},
	{"unknown escape", `{"a":"\x"}`, 7, "/a", tokenize.ErrSyntax},
	{"half an escape", `{"a":"\`, 7, "/a", io.ErrUnexpectedEOF},
	{"bad hex", `{"a":"\u12g4"}`, 10, "/a", tokenize.ErrSyntax},
	{"half a hex", `{"a":"\u12`, 10, "/a", io.ErrUnexpectedEOF},
	{"no closing quote", `{"a":"xyz`, 9, "/a", io.ErrUnexpectedEOF},
	{"invalid UTF-8", "{\"a\":\"xy\xff\"}", 8, "/a", tokenize.ErrUTF8},
	{"cut rune", "{\"a\":\"xy\xe2\x82\"}", 8, "/a", tokenize.ErrUTF8},
	{"overlong rune", "{\"a\":\"\xc0\x80\"}", 6, "/a", tokenize.ErrUTF8},
	{"surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", 6, "/a", tokenize.ErrUTF8},
	{"rune cut by the end", "{\"a\":\"xy\xe2\x82", 10, "/a", io.ErrUnexpectedEOF},
	{"invalid UTF-8 in a key", "{\"a\xff\":1}", 3, "", tokenize.ErrUTF8},
	{"invalid UTF-8 in skipped logprobs", "{\"logprobs\":{\"content\":[{\"token\":\"\xff\"}]}}", 34, "/logprobs", tokenize.ErrUTF8},
	{"unbalanced logprobs", `{"logprobs":{"content":[{"token":"1"}}}`, 37, "/logprobs", tokenize.ErrSyntax},

	{"turns twice", `{"turns":[],"turns":[]}`, 12, "/turns", tokenize.ErrDuplicateKey},
	{"turns twice, escaped", `{"turns":null,"\u0074urns":[]}`, 14, "/turns", tokenize.ErrDuplicateKey},
	{"turns not a list", `{"turns":{}}`, 9, "/turns", tokenize.ErrSchema},
	{"turn not an object", `{"turns":[1]}`, 10, "/turns/0", tokenize.ErrSchema},
	{"turns with a comma at the end", `{"turns":[{"role":"tool"},]}`, 26, "/turns/1", tokenize.ErrSyntax},
	{"no role", `{"turns":[{}]}`, 10, "/turns/0", tokenize.ErrSchema},
	{"strange role", `{"turns":[{"role":"user"}]}`, 18, "/turns/0/role", tokenize.ErrSchema},
	{"null role", `{"turns":[{"role":null}]}`, 18, "/turns/0/role", tokenize.ErrSchema},
	{"role twice", `{"turns":[{"role":"tool","role":"tool"}]}`, 25, "/turns/0/role", tokenize.ErrDuplicateKey},
	{"ids twice", `{"turns":[{"role":"tool","output_ids":null,"output_ids":[1]}]}`, 43, "/turns/0/output_ids", tokenize.ErrDuplicateKey},
	{"content not text", `{"turns":[{"role":"tool","content":5}]}`, 35, "/turns/0/content", tokenize.ErrSchema},
	{"content cut", `{"turns":[{"role":"tool","content":"abc`, 39, "/turns/0/content", io.ErrUnexpectedEOF},
	{"unknown field broken", `{"turns":[{"role":"tool","extra":tru}]}`, 36, "/turns/0/extra", tokenize.ErrSyntax},

	{"ids not a list", `{"turns":[{"output_ids":7}]}`, 24, "/turns/0/output_ids", tokenize.ErrSchema},
	{"negative id", `{"turns":[{"output_ids":[1,-5]}]}`, 27, "/turns/0/output_ids/1", tokenize.ErrRange},
	{"id beyond int32", `{"turns":[{"output_ids":[1,2,2147483648]}]}`, 29, "/turns/0/output_ids/2", tokenize.ErrRange},
	{"id far beyond", `{"turns":[{"output_ids":[99999999999999999999999999]}]}`, 25, "/turns/0/output_ids/0", tokenize.ErrRange},
	{"fractional id", `{"turns":[{"output_ids":[1.5]}]}`, 25, "/turns/0/output_ids/0", tokenize.ErrSchema},
	{"id with an exponent", `{"turns":[{"output_ids":[1e3]}]}`, 25, "/turns/0/output_ids/0", tokenize.ErrSchema},
	{"id with a leading zero", `{"turns":[{"output_ids":[12,07,3,4,5,6,7,8,9]}]}`, 29, "/turns/0/output_ids/1", tokenize.ErrSyntax},
	{"id with a leading zero among many", `{"turns":[{"output_ids":[` + strings.Repeat("12,", 20) + "07" + strings.Repeat(",12", 40) + `]}]}`, 86, "/turns/0/output_ids/20", tokenize.ErrSyntax},
	{"long id among many", `{"turns":[{"output_ids":[` + strings.Repeat("12,", 20) + "99999999999" + strings.Repeat(",12", 40) + `]}]}`, 85, "/turns/0/output_ids/20", tokenize.ErrRange},
	{"null id", `{"turns":[{"output_ids":[null]}]}`, 25, "/turns/0/output_ids/0", tokenize.ErrSchema},
	{"id in quotes", `{"turns":[{"output_ids":["1"]}]}`, 25, "/turns/0/output_ids/0", tokenize.ErrSchema},
	{"ids with a comma at the end", `{"turns":[{"output_ids":[1,]}]}`, 27, "/turns/0/output_ids/1", tokenize.ErrSyntax},
	{"ids without a comma", `{"turns":[{"output_ids":[1 2]}]}`, 27, "/turns/0/output_ids", tokenize.ErrSyntax},
	{"ids cut", `{"turns":[{"output_ids":[1,2`, 28, "/turns/0/output_ids", io.ErrUnexpectedEOF},
	{"prompt id negative", `{"turns":[{"input_ids":[-1]}]}`, 24, "/turns/0/input_ids/0", tokenize.ErrRange},
	{"prompt id negative after a repeated prompt", `{"turns":[{"role":"tool","input_ids":[1,2,3]},{"input_ids":[1,2,3,-1]}]}`, 66, "/turns/1/input_ids/3", tokenize.ErrRange},

	{"triples not a list", `{"turns":[{"output_token_logprobs":"x"}]}`, 35, "/turns/0/output_token_logprobs", tokenize.ErrSchema},
	{"triple not a list", `{"turns":[{"output_token_logprobs":[-0.5]}]}`, 36, "/turns/0/output_token_logprobs/0", tokenize.ErrSchema},
	{"triple null", `{"turns":[{"output_token_logprobs":[null]}]}`, 36, "/turns/0/output_token_logprobs/0", tokenize.ErrSchema},
	{"empty triple", `{"turns":[{"output_token_logprobs":[[]]}]}`, 37, "/turns/0/output_token_logprobs/0", tokenize.ErrSchema},
	{"no id", `{"turns":[{"output_token_logprobs":[[-0.5]]}]}`, 41, "/turns/0/output_token_logprobs/0", tokenize.ErrSchema},
	{"null id in a triple", `{"turns":[{"output_token_logprobs":[[-0.5,null,null]]}]}`, 42, "/turns/0/output_token_logprobs/0/1", tokenize.ErrSchema},
	{"text for a number", `{"turns":[{"output_token_logprobs":[["-0.5",1,null]]}]}`, 37, "/turns/0/output_token_logprobs/0/0", tokenize.ErrSchema},
	{"Python NaN", `{"turns":[{"output_token_logprobs":[[NaN,1,null]]}]}`, 37, "/turns/0/output_token_logprobs/0/0", tokenize.ErrSyntax},
	{"logprob with a leading zero", `{"turns":[{"output_token_logprobs":[[-00.5,1,null]]}]}`, 39, "/turns/0/output_token_logprobs/0/0", tokenize.ErrSyntax},
	{"logprob cut", `{"turns":[{"output_token_logprobs":[[-0.`, 40, "/turns/0/output_token_logprobs/0/0", io.ErrUnexpectedEOF},
	{"second triple broken", `{"turns":[{"output_token_logprobs":[[-0.5,1,null],[-0.5,1,nul]]}]}`, 61, "/turns/0/output_token_logprobs/1/2", tokenize.ErrSyntax},
	{"triple id too large", `{"turns":[{"output_token_logprobs":[[-0.5,4294967296,null]]}]}`, 42, "/turns/0/output_token_logprobs/0/1", tokenize.ErrRange},
	{"triple not closed", `{"turns":[{"output_token_logprobs":[[-0.5,1,null}]}]}`, 48, "/turns/0/output_token_logprobs/0", tokenize.ErrSyntax},
}

func TestDecodeHostile(t *testing.T) {
	t.Parallel()
	// Test each input alone, and with spaces after it so that the fast paths have room to run.
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeEveryWay(t, tokenize.DecoderConfig{}, []byte(tt.in))
			checkDecodeError(t, err, tt.offset, tt.path, tt.err)
			if errors.Is(tt.err, io.ErrUnexpectedEOF) {
				return
			}
			long := tt.in + strings.Repeat(" ", 200)
			_, err = decodeEveryWay(t, tokenize.DecoderConfig{}, []byte(long))
			checkDecodeError(t, err, tt.offset, tt.path, tt.err)
		})
	}
}

func checkDecodeError(t *testing.T, err error, offset int64, path string, want error) {
	t.Helper()
	var e *tokenize.DecodeError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a DecodeError", err)
	}
	if e.Offset != offset || e.Path != path || !errors.Is(err, want) {
		t.Errorf("got %d %q %v\nwant %d %q %v", e.Offset, e.Path, err, offset, path, want)
	}
}

// TestDecodeLenient checks input that looks wrong but is valid for the decoder.
func TestDecodeLenient(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in string }{
		{"no members", `{}`},
		{"null turns", `{"turns":null}`},
		{"empty turns", `{"turns":[]}`},
		{"an error body", `{"detail":"x","nested":{"a":[1,2.5e-7,true,false,null,"\ud83d\ude00\ud800\u00e9"]}}`},
		{"any order", `{"turns":[{"output_token_logprobs":[[-0.5,1,null],[-1,2,null]],"content":null,"input_ids":[7,8],"output_ids":[1,2],"role":"assistant"}],"a":1}`},
		{"id mismatch", `{"turns":[{"role":"assistant","output_ids":[1,2,3],"output_token_logprobs":[[-0.5,1,null],[-0.5,9,null],[-0.5,9,null]]}]}`},
		{"id mismatch, lists swapped", `{"turns":[{"role":"assistant","output_token_logprobs":[[-0.5,1,null],[-0.5,9,null],[-0.5,9,null]],"output_ids":[1,2,3]}]}`},
		{"surplus", `{"turns":[{"role":"assistant","output_ids":[1],"output_token_logprobs":[[-0.5,1,null],[-0.5,9,null]]}]}`},
		{"too few", `{"turns":[{"role":"assistant","output_ids":[1,2],"output_token_logprobs":[[-0.5,1,null]]}]}`},
		{"null lists", `{"turns":[{"role":"assistant","output_ids":null,"output_token_logprobs":null,"input_ids":null}]}`},
		{"empty lists", `{"turns":[{"role":"assistant","output_ids":[],"output_token_logprobs":[],"input_ids":[]}]}`},
		{"null logprob", `{"turns":[{"role":"assistant","output_ids":[1,2],"output_token_logprobs":[[null,1,null],[-0.5,2,null]]}]}`},
		{"odd numbers", `{"turns":[{"role":"assistant","output_ids":[1,2,3,4,5,6,7],"output_token_logprobs":[[-1e400,1,null],[0,2,null],[-0.0,3,null],[-12.5,4,null],[-1E-7,5,null],[-2.9e-05,6,null],[1e-400,7]]}]}`},
		{"top logprobs", `{"turns":[{"role":"assistant","output_ids":[1],"output_token_logprobs":[[-0.5,1,[[-0.5,1,"a"],[-1.5,2,"b"]],{"x":[]}]]}]}`},
		{"token strings", `{"turns":[{"role":"assistant","output_ids":[1,2,3,4],"output_token_logprobs":[[-0.5,1," a"],[-0.5,2,"\n"],[-0.5,3,"é"],[-0.5,4,"a long token string"]]}]}`},
		{"largest id", `{"turns":[{"role":"assistant","output_ids":[2147483647,0],"output_token_logprobs":null}]}`},
		{"spaces everywhere", " { \"turns\" : [ { \"role\" : \"tool\" , \"content\" : \"x\" , \"extra\" : { \"a\" : [ ] , \"b\" : { } } } ] , \"b\" : [ 1 , 2 ] } \r\n\t "},
		{"junk tool name", `{"turns":[{"role":"tool","content":"\u0000\\\"\/\b\f\n\r\t","tool_name":"../../x\u0000"}]}`},
		{"choices of another shape", `{"logprobs":{"content":[{"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"token":"b"}]},{"token":"785","bytes":null,"logprob":-1,"top_logprobs":[]},{"token":"785","bytes":null,"logprob":-1.5e-07,"top_logprobs":[]},{"token":"é","bytes":null,"logprob":null,"top_logprobs":[]}],"refusal":null},"turns":[]}`},
	}
	for _, tt := range tests {
		for _, in := range []string{tt.in, tt.in + strings.Repeat("\n", 200)} {
			checkPlain(t, tt.name, []byte(in))
		}
	}
}

func TestDecodeLimits(t *testing.T) {
	t.Parallel()
	turn := `{"role":"assistant","output_ids":[1,2,3],"output_token_logprobs":[[-0.5,1,null],[-0.5,2,null],[-0.5,3,null]]}`
	tests := []struct {
		name   string
		cfg    tokenize.DecoderConfig
		in     string
		offset int64 // -1: no error
		path   string
	}{
		{"reply fits", tokenize.DecoderConfig{MaxReplyBytes: 10}, `{"a":1234}`, -1, ""},
		{"reply too long", tokenize.DecoderConfig{MaxReplyBytes: 10}, `{"a":12345}`, 10, ""},
		{"reply too long in a string", tokenize.DecoderConfig{MaxReplyBytes: 10}, `{"a":"` + strings.Repeat("x", 90) + `"}`, 10, "/a"},
		{"reply too long by a blank", tokenize.DecoderConfig{MaxReplyBytes: 10}, `{"a":1234} `, 10, ""},
		{"turns fit", tokenize.DecoderConfig{MaxTurns: 2}, `{"turns":[` + turn + `,` + turn + `]}`, -1, ""},
		{"too many turns", tokenize.DecoderConfig{MaxTurns: 1}, `{"turns":[` + turn + `,` + turn + `]}`, int64(10 + len(turn) + 1), "/turns/1"},
		{"tokens fit", tokenize.DecoderConfig{MaxTokens: 3}, `{"turns":[` + turn + `]}`, -1, ""},
		{"too many tokens", tokenize.DecoderConfig{MaxTokens: 2}, `{"turns":[` + turn + `]}`, 48, "/turns/0/output_ids/2"},
		{"too many triples", tokenize.DecoderConfig{MaxTokens: 2}, `{"turns":[{"output_token_logprobs":[[-0.5,1,null],[-0.5,1,null],[-0.5,1,null]]}]}`, 64, "/turns/0/output_token_logprobs/2"},
		{"rest fits", tokenize.DecoderConfig{MaxRestBytes: 20}, `{"turns":[],"a":"1234567"}`, -1, ""},
		{"rest too long", tokenize.DecoderConfig{MaxRestBytes: 10}, `{"turns":[],"a":"1234567"}`, 12, "/a"},
		{"depth fits", tokenize.DecoderConfig{MaxDepth: 3}, `{"a":[[1]]}`, -1, ""},
		{"too deep", tokenize.DecoderConfig{MaxDepth: 2}, `{"a":[[1]]}`, 6, "/a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeEveryWay(t, tt.cfg, []byte(tt.in))
			if tt.offset < 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkDecodeError(t, err, tt.offset, tt.path, tokenize.ErrTooLarge)
		})
	}
}

// TestDecodeReader checks that a failing reader and malformed bytes give different errors.
func TestDecodeReader(t *testing.T) {
	t.Parallel()
	d := tokenize.NewDecoder(tokenize.DecoderConfig{})
	var r tokenize.Reply
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name   string
		text   string
		then   error
		read   bool // a ReadError, not a DecodeError
		offset int64
		want   error
	}{
		{"failing reader", `{"a":1`, broken, true, 6, broken},
		{"body cut by the transport behind a whole object", `{"a":1}`, io.ErrUnexpectedEOF, true, 7, io.ErrUnexpectedEOF},
		{"bad bytes before the failure", `{"a":x`, broken, false, 5, tokenize.ErrSyntax},
		{"truncated", `{"a":1`, io.EOF, false, 6, io.ErrUnexpectedEOF},
	} {
		err := d.Decode(io.MultiReader(strings.NewReader(tt.text), iotest.ErrReader(tt.then)), &r)
		readErr, read := errors.AsType[*tokenize.ReadError](err)
		decodeErr, _ := errors.AsType[*tokenize.DecodeError](err)
		if read != tt.read || !errors.Is(err, tt.want) || read && readErr.Offset != tt.offset || !read && decodeErr.Offset != tt.offset {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := d.Decode(stuck{}, &r); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("stuck reader: %v", err)
	}
	if err := d.Decode(strings.NewReader(`{"turns":[]}`), &r); err != nil || !r.HasTurns {
		t.Errorf("the decoder does not work after errors: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// TestRestIsVerbatim checks that Rest is copied byte for byte, across a refill of the buffer.
func TestRestIsVerbatim(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é\\n", 3000)
	in := `{"turns":[], "a" : {"x": [1,  2]},"logprobs":{"content":[]},"b":"` + long + `" ,"a":1e2}`
	want := `{"a" : {"x": [1,  2]},"b":"` + long + `","a":1e2}`
	for _, c := range choppings {
		d := tokenize.NewDecoder(tokenize.DecoderConfig{ChunkBytes: 1})
		var r tokenize.Reply
		if err := d.Decode(c.read([]byte(in)), &r); err != nil {
			t.Fatal(err)
		}
		if string(r.Rest) != want {
			t.Errorf("%s: Rest = %.120q…, want %.120q…", c.name, r.Rest, want)
		}
	}
}

// TestRepeatedStrings checks that long strings that repeat, some with one byte changed, are
// rejected as by encoding/json, at an offset that does not depend on the chunks.
func TestRepeatedStrings(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	pieces := []string{"plain text ", `\n`, `\\\"`, `\\`, "é", "日本語", "\U0001f44d", `\u00e9`, `\ud83d\ude00`, "\u007f", "/"}
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		long := make([]string, 3)
		for i := range long {
			for size := 40 + r.IntN(1500); len(long[i]) < size; {
				long[i] += pieces[r.IntN(len(pieces))]
			}
		}
		in := []byte(`{"messages":[""`)
		for range 20 {
			in = append(in, `,"`+long[r.IntN(3)]+`"`...)
		}
		in = append(in, "]}"...)
		if r.IntN(3) > 0 {
			in[15+r.IntN(len(in)-15)] = "\"\\\x1f\x80\xc3\xffnu,"[r.IntN(9)]
		}
		_, err := decodeEveryWay(t, tokenize.DecoderConfig{}, in)
		if want := json.Valid(in) && utf8.Valid(in); (err == nil) != want {
			t.Fatalf("%q: %v, want an error: %v", in, err, !want)
		}
	}
}

// TestViewsDoNotOverlap checks that an append to one view cannot overwrite another.
func TestViewsDoNotOverlap(t *testing.T) {
	t.Parallel()
	in := `{"turns":[{"role":"assistant","output_ids":[1,2],"output_token_logprobs":[[null,1,null],[-0.5,2,null]]},{"role":"assistant","output_ids":[3],"output_token_logprobs":[[-1.5,3,null]]}]}`
	r := mustDecode(t, []byte(in))
	_ = append(r.Turns[0].OutputIDs, 99)
	_ = append(r.Turns[0].Logprobs, 99)
	if r.Turns[1].OutputIDs[0] != 3 || r.Turns[1].Logprobs[0] != -1.5 {
		t.Error("a view has room behind it")
	}
	if v := r.Turns[0].Logprobs[0]; !math.IsNaN(float64(v)) {
		t.Errorf("null logprob = %v, want NaN", v)
	}
}
