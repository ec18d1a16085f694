package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
)

// sign is a number of turns that appears in no other text.
const sign = 987654321

func marked(text string, stream bool, chop func(left int) int) string {
	m := marker{spliced: sign, stream: stream}
	var out []byte
	for len(text) > 0 {
		n := chop(len(text))
		out = m.append(out, []byte(text[:n]))
		text = text[n:]
	}
	return string(out)
}

// added reports whether marked is text plus marks.
func added(text, marked string) bool {
	mark := fmt.Sprintf(`"rollout":{"continuity":true,"spliced":%d}`, sign)
	for marked != "" {
		rest := ""
		for _, form := range []string{`,"meta_info":{` + mark + `}`, `"meta_info":{` + mark + `}`, "," + mark, mark} {
			own := strings.Replace(form, mark, "", 1) // if the text has it already
			if after, ok := strings.CutPrefix(marked, form); ok && (len(own) < 2 || !strings.HasPrefix(text, own)) {
				rest = after
				break
			}
		}
		switch {
		case rest != "":
			marked = rest
		case text == "" || text[0] != marked[0]:
			return false
		default:
			text, marked = text[1:], marked[1:]
		}
	}
	return text == ""
}

func TestMarker(t *testing.T) {
	t.Parallel()
	const mark = `"rollout":{"continuity":true,"spliced":987654321}`
	for _, tt := range []struct{ name, text, want string }{
		{"native", `{"output_ids":[1],"meta_info":{"id":"a"}}`, `{"output_ids":[1],"meta_info":{"id":"a",` + mark + `}}`},
		{"empty", `{ "meta_info" : { } , "x": {"y": [{}]} }`, `{ "meta_info" : { ` + mark + `} , "x": {"y": [{}]} }`},
		{"of OpenAI", `{"choices":[{"meta_info":{"id":"a"}}]}`, `{"choices":[{"meta_info":{"id":"a"}}],"meta_info":{` + mark + `}}`},
		{"none", `{}`, `{"meta_info":{` + mark + `}}`},
		{"null", `{"meta_info":null}`, `{"meta_info":null,"meta_info":{` + mark + `}}`},
		{"a list", `[{"meta_info":{"a":1}}, {"b":[]}]`, `[{"meta_info":{"a":1,` + mark + `}}, {"b":[],"meta_info":{` + mark + `}}]`},
		{"a text", `{"text":"\"meta_info\":{}\\","meta_info":{"a":"}"}}`, `{"text":"\"meta_info\":{}\\","meta_info":{"a":"}",` + mark + `}}`},
		{"an escaped name", `{"\u006deta_info":{"a":1}}`, `{"\u006deta_info":{"a":1,` + mark + `}}`},
		{"a value of that name", `{"a":"meta_info","b":{"meta_info":{}}}`, `{"a":"meta_info","b":{"meta_info":{}},"meta_info":{` + mark + `}}`},
		{"an engine's own", `{"meta_info":{"rollout":"mine","a":1}}`, `{"meta_info":{"rollout":"mine","a":1,` + mark + `}}`},
		{
			"another proxy", `{"meta_info":{"rollout":{"continuity":true,"spliced":2}}}`,
			`{"meta_info":{"rollout":{"continuity":true,"spliced":2},"rollout":{"continuity":true,"spliced":987654323}}}`,
		},
		{
			"another proxy first", `{"meta_info":{"rollout": {"continuity":true,"spliced":2} , "a":{"b":[1,2]}}}`,
			`{"meta_info":{"rollout": {"continuity":true,"spliced":2} , "a":{"b":[1,2]},"rollout":{"continuity":true,"spliced":987654323}}}`,
		},
		{"a word", `true {"a":1}`, `true {"a":1}`},
		{"a list of lists", `[[{"a":1}]]`, `[[{"a":1}]]`},
		{"cut", `{"meta_info":{"a":1`, `{"meta_info":{"a":1`},
		{"nothing", ``, ``},
	} {
		for n := range 9 {
			if got := marked(tt.text, false, func(left int) int { return min(left, n+1) }); got != tt.want {
				t.Errorf("%s, in pieces of %d: %s, want %s", tt.name, n+1, got, tt.want)
			}
		}
	}
	stream := ": a comment {}\n\nevent: x {}\ndata: {\"meta_info\":{\"a\":1}}\r\n\r\ndata:{\"b\":\ndata: 1}\n\ndata: [DONE]\n\n"
	want := ": a comment {}\n\nevent: x {}\ndata: {\"meta_info\":{\"a\":1," + mark + "}}\r\n\r\ndata:{\"b\":\ndata: 1,\"meta_info\":{" + mark + "}}\n\ndata: [DONE]\n\n"
	for n := range 9 {
		if got := marked(stream, true, func(left int) int { return min(left, n+1) }); got != want {
			t.Errorf("a stream in pieces of %d: %q, want %q", n+1, got, want)
		}
	}
}

// TestMarkerDocuments proves that a JSON parser finds the mark in random documents, otherwise
// unchanged.
func TestMarkerDocuments(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range 3000 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		doc := madeUp(r, 0)
		var want map[string]any
		if err := json.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		text := marked(doc, false, func(left int) int { return 1 + r.IntN(left) })
		if !added(doc, text) {
			t.Fatalf("seed %d, %d: %s becomes %s", seed, i, doc, text)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("seed %d, %d: %s: %v", seed, i, text, err)
		}
		meta, _ := want["meta_info"].(map[string]any)
		if meta = maps.Clone(meta); meta == nil {
			meta = map[string]any{}
		}
		meta["rollout"] = map[string]any{"continuity": true, "spliced": float64(sign)}
		want["meta_info"] = meta
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, %d: %s becomes %s", seed, i, doc, text)
		}
	}
}

func madeUp(r *rand.Rand, depth int) string {
	space := func() string { return []string{"", "", " ", "\n\t"}[r.IntN(4)] }
	names := []string{"meta_info", "rollout", "a", "text", `meta\u005finfo`, "", `\"`}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var value func(depth int) string
	value = func(depth int) string {
		switch n := r.IntN(9); {
		case n < 3 && depth < 4:
			return madeUp(r, depth+1)
		case n < 5 && depth < 4:
			var list []string
			for range r.IntN(3) {
				list = append(list, space()+value(depth+1))
			}
			return "[" + strings.Join(list, ",") + space() + "]"
		}
		return []string{`"meta_info"`, `"}{\"\\"`, `null`, `-1.5e3`, `true`, `"ü\u0000"`}[r.IntN(6)]
	}
	var members []string
	used := false
	for _, name := range names[:r.IntN(4)] {
		if strings.HasPrefix(name, "meta") { // parsers differ for duplicate names
			if used {
				continue
			}
			used = true
		}
		members = append(members, space()+`"`+name+`"`+space()+":"+space()+value(depth)+space())
	}
	return "{" + strings.Join(members, ",") + space() + "}"
}

// FuzzMarker proves that the marker keeps all input, and that the pieces make no difference.
func FuzzMarker(f *testing.F) {
	f.Add(`{"meta_info":{"rollout":{"continuity":true,"spliced":1}}}`, true, 3)
	f.Add("data: {\"meta_info\":{}}\n\n[]]}{\"", true, 1)
	f.Add(`[{"meta_info":{"a":1}},{}]`, false, 2)
	f.Fuzz(func(t *testing.T, text string, stream bool, piece int) {
		if strings.Contains(text, "rollout") || piece < 1 {
			return // its turns would be added to ours
		}
		whole := marked(text, stream, func(left int) int { return left })
		if got := marked(text, stream, func(left int) int { return min(left, piece) }); got != whole {
			t.Errorf("%q becomes %q in pieces of %d, and %q as a whole", text, got, piece, whole)
		}
		if !added(text, whole) {
			t.Errorf("%q becomes %q", text, whole)
		}
	})
}

// TestMarkerFault proves that a panic in the marker breaks the answer only of a spliced prompt.
func TestMarkerFault(t *testing.T) {
	t.Parallel()
	for _, spliced := range []int{0, 1} {
		p, err := New(Config{Engines: []*url.URL{{Scheme: "http", Host: "localhost"}}, Keep: func(*tap.Call) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		b := &marking{x: &exchange{p: p, spliced: spliced}, body: io.NopCloser(strings.NewReader("{}"))} // without a marker, it panics
		got, err := io.ReadAll(b)
		if failed := err != nil; failed != (spliced > 0) || !failed && string(got) != "{}" || failed && len(got) > 0 {
			t.Errorf("%d turns are spliced: the client got %q, %v", spliced, got, err)
		}
		if p.unmarked.Load() != (spliced > 0) {
			t.Errorf("%d turns are spliced, and the Continuer ends: %v", spliced, p.unmarked.Load())
		}
	}
}
