package tokenize_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// A recording is one file of testdata/letta.
type recording struct {
	name      string
	Exchanges []struct {
		Response struct {
			Status int
			Body   json.RawMessage
		}
		ModelCalls []modelCall `json:"model_calls"`
	}
}

type modelCall struct {
	Path     string
	InputIDs []int32 `json:"input_ids"`
	Status   int
	Response struct {
		OutputIDs []int32 `json:"output_ids"`
	}
}

// recordings returns every recorded exchange.
func recordings(tb testing.TB) []recording {
	tb.Helper()
	all, err := readRecordings()
	if err != nil || len(all) == 0 {
		tb.Fatalf("%d recordings: %v", len(all), err)
	}
	return all
}

var readRecordings = sync.OnceValues(func() (all []recording, err error) {
	files, err := filepath.Glob("../testdata/letta/*.json.gz")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		if name == "engine-request" {
			continue // contains the text of one HTTP request
		}
		text, err := tokenizetest.Recording(file)
		if err != nil {
			return nil, err
		}
		rec := recording{name: name}
		if err := json.Unmarshal(text, &rec); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, rec)
	}
	return all, err
})

// A plainTurn is a turn as decoded by encoding/json.
type plainTurn struct {
	Role      string
	InputIDs  []int32             `json:"input_ids"`
	OutputIDs []int32             `json:"output_ids"`
	Logprobs  [][]json.RawMessage `json:"output_token_logprobs"`
	Content   *string
	ToolName  *string `json:"tool_name"`
}

// plainReply renders the result of encoding/json as text, for comparison with renderReply.
func plainReply(b []byte) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return "", err
	}
	var turns []plainTurn
	if err := json.Unmarshal(members["turns"], &turns); members["turns"] != nil && err != nil {
		return "", err
	}
	var s strings.Builder
	has := members["turns"] != nil && string(members["turns"]) != "null"
	fmt.Fprintf(&s, "turns=%v\n", has)
	for _, t := range turns {
		mismatch := -1
		var logprobs []float32
		if t.Logprobs != nil {
			logprobs = []float32{}
		}
		for i, triple := range t.Logprobs {
			v := float32(math.NaN())
			if len(triple) < 2 {
				return "", fmt.Errorf("short triple")
			}
			if string(triple[0]) != "null" {
				f, _ := strconv.ParseFloat(string(triple[0]), 64)
				v = float32(f)
			}
			logprobs = append(logprobs, v)
			id, err := strconv.ParseInt(string(triple[1]), 10, 32)
			if err != nil {
				return "", err
			}
			if i < len(t.OutputIDs) && int32(id) != t.OutputIDs[i] && mismatch < 0 {
				mismatch = i
			}
		}
		text := func(p *string) string {
			if p == nil {
				return ""
			}
			return *p
		}
		renderTurn(&s, t.Role, t.InputIDs, t.OutputIDs, logprobs, mismatch, text(t.Content), text(t.ToolName))
	}
	delete(members, "turns")
	delete(members, "logprobs")
	rest, err := json.Marshal(members) // sorted, compact
	fmt.Fprintf(&s, "rest=%s\n", rest)
	return s.String(), err
}

func renderTurn(w io.Writer, role string, prompt, output []int32, logprobs []float32, mismatch int, content, tool string) {
	fmt.Fprintf(w, "%s prompt=%v %v output=%v %v logprobs=%v", role, prompt == nil, prompt, output == nil, output, logprobs == nil)
	for _, v := range logprobs {
		if v != v {
			fmt.Fprint(w, " NaN")
			continue
		}
		fmt.Fprintf(w, " %08x", math.Float32bits(v))
	}
	fmt.Fprintf(w, " mismatch=%d content=%q tool=%q\n", mismatch, content, tool)
}

// renderReply renders every visible part of r as text.
func renderReply(tb testing.TB, r *tokenize.Reply) string {
	tb.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, "turns=%v\n", r.HasTurns)
	for i := range r.Turns {
		u := &r.Turns[i]
		renderTurn(&s, u.Role.String(), u.PromptIDs, u.OutputIDs, u.Logprobs, u.IDMismatch, u.Content, u.ToolName)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Rest, &members); err != nil {
		tb.Fatalf("Rest is not JSON: %v: %.200s", err, r.Rest)
	}
	rest, err := json.Marshal(members)
	if err != nil {
		tb.Fatal(err)
	}
	fmt.Fprintf(&s, "rest=%s\n", rest)
	return s.String()
}

// choppings are readers that return the same bytes in different chunks.
var choppings = []struct {
	name string
	read func([]byte) io.Reader
}{
	{"whole", func(b []byte) io.Reader { return bytes.NewReader(b) }},
	{"one", func(b []byte) io.Reader { return iotest.OneByteReader(bytes.NewReader(b)) }},
	{"half", func(b []byte) io.Reader { return iotest.HalfReader(bytes.NewReader(b)) }},
	{"with-eof", func(b []byte) io.Reader { return iotest.DataErrReader(bytes.NewReader(b)) }},
	{"777", func(b []byte) io.Reader { return &pieces{b: b, next: func() int { return 777 }} }},
	{"random", func(b []byte) io.Reader {
		r := rand.New(rand.NewPCG(uint64(len(b)), 3))
		return &pieces{b: b, next: func() int { return r.IntN(200) }} // sometimes none
	}},
}

type pieces struct {
	b    []byte
	next func() int
}

func (p *pieces) Read(dst []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(dst[:min(len(dst), p.next())], p.b)
	p.b = p.b[n:]
	return n, nil
}

// decodeEveryWay decodes b whole and with every chopping, with a small and a large buffer. It fails
// if two results differ, and returns the rendered reply, or the error.
func decodeEveryWay(tb testing.TB, cfg tokenize.DecoderConfig, b []byte) (string, error) {
	tb.Helper()
	d := tokenize.NewDecoder(cfg)
	var r tokenize.Reply
	wantErr := d.DecodeBytes(b, &r)
	want, slow := "", d.SlowFloats()
	if wantErr == nil {
		want = renderReply(tb, &r)
		if r.Bytes != int64(len(b)) {
			tb.Fatalf("Bytes = %d, want %d", r.Bytes, len(b))
		}
	}
	for _, chunk := range []int{1, 64 << 10} {
		cfg.ChunkBytes = chunk
		d := tokenize.NewDecoder(cfg)
		for _, c := range choppings {
			err := d.Decode(c.read(b), &r)
			if errorText(err) != errorText(wantErr) {
				tb.Fatalf("%s chunk=%d: error %q, whole %q", c.name, chunk, errorText(err), errorText(wantErr))
			}
			if err != nil {
				if len(r.Turns) != 0 || len(r.Rest) != 0 {
					tb.Fatalf("%s: a failed reply is not empty", c.name)
				}
				continue
			}
			if got := renderReply(tb, &r); got != want {
				tb.Fatalf("%s chunk=%d: differs\n got %.2000s\nwant %.2000s", c.name, chunk, got, want)
			}
			if d.SlowFloats() != slow {
				tb.Fatalf("%s chunk=%d: %d slow floats, whole %d", c.name, chunk, d.SlowFloats(), slow)
			}
		}
	}
	return want, wantErr
}

// mustDecode returns a reply of its own: the turns point into it.
func mustDecode(tb testing.TB, b []byte) *tokenize.Reply {
	tb.Helper()
	r := new(tokenize.Reply)
	if err := tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes(b, r); err != nil {
		tb.Fatalf("%v in %.300s", err, b)
	}
	return r
}

// checkPlain checks that b decodes as with encoding/json.
func checkPlain(t *testing.T, name string, b []byte) {
	t.Helper()
	got, err := decodeEveryWay(t, tokenize.DecoderConfig{}, b)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	want, err := plainReply(b)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s:\n got %.3000s\nwant %.3000s", name, got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
