package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A member of a random document, and whether the client must see it.
type randomMember struct {
	name, value string
	kept        bool
}

// written returns an object with the members, or only with those that are kept, with random white
// space.
func written(draw *rand.Rand, members []randomMember, all bool) string {
	space := func() string { return []string{"", "", " ", "\n\t", "\r\n "}[draw.IntN(5)] }
	var b strings.Builder
	b.WriteString("{" + space())
	n := 0
	for _, m := range members {
		if !all && !m.kept {
			continue
		}
		if n++; n > 1 {
			b.WriteString(space() + "," + space())
		}
		b.WriteString(`"` + m.name + `"` + space() + ":" + space() + m.value)
	}
	b.WriteString(space() + "}")
	return b.String()
}

// TestViewModel compares the view with a plain model: random documents in which the members that the
// client must not see are marked.
func TestViewModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		draw := rand.New(rand.NewPCG(seed, 0))
		flip := func() bool { return draw.IntN(2) == 0 }
		v := &view{
			streamed: flip(), usage: flip(), logprobs: flip(), tokenIDs: flip(), promptIDs: flip(), metaInfo: flip(), extension: flip(),
			hideExperts: flip(), hideMasks: flip(), model: []byte(`"policy"`), message: &message{},
		}
		shuffled := func(members []randomMember) []randomMember {
			draw.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			return members[:draw.IntN(len(members)+1)]
		}
		value := func() string {
			return []string{"1", `"a,}\"{"`, "null", `[1,{"usage":2}]`, `{"token_ids":[3],"x":","}`, "[]"}[draw.IntN(6)]
		}
		choice := shuffled([]randomMember{
			{"index", "0", true},
			{"delta", `{"content":"x\u0041\"","token_ids":[1]}`, true},
			{"finish_reason", value(), true},
			{"token_ids", value(), v.tokenIDs},
			{"prompt_token_ids", value(), v.promptIDs},
			{"meta_info", value(), v.metaInfo},
			{"routed_experts", value(), !v.hideExperts},
			{"sampling_mask", value(), !v.hideMasks},
		})
		extension := shuffled([]randomMember{
			{"input_ids", value(), v.extension}, {"output_ids", value(), v.extension}, {"routed_experts", `"x"`, v.extension || !v.hideExperts},
		})
		extensionKept := v.extension || slices.ContainsFunc(extension, func(m randomMember) bool { return m.kept })
		members := shuffled([]randomMember{
			{"id", value(), true},
			{"choices", "", true},
			{"usage", value(), v.usage || !v.streamed},
			{"prompt_token_ids", value(), v.promptIDs},
			{"sglext", "", extensionKept},
			{"created", value(), true},
		})
		build := func(all bool) string {
			filled := slices.Clone(members)
			for i := range filled {
				switch filled[i].name {
				case "choices":
					filled[i].value = "[" + written(draw, choice, all) + "]"
				case "sglext":
					filled[i].value = written(draw, extension, all)
				}
			}
			return written(draw, filled, all)
		}
		text := build(true)
		drop, err := v.document(newScanner(), []byte(text), nil)
		if err != nil || drop {
			t.Fatalf("seed %d: %v, %v: %s", seed, drop, err, text)
		}
		got, want := string(v.append(nil)), build(false)
		var a, b bytes.Buffer
		if json.Compact(&a, []byte(got)) != nil || json.Compact(&b, []byte(want)) != nil || a.String() != b.String() {
			t.Fatalf("seed %d: the client sees\n%s, want\n%s, from\n%s", seed, got, want, text)
		}
	}
}

// TestViewDrops names the events that a client must not see.
func TestViewDrops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text        string
		usage, drop bool
	}{
		{`{"choices":[],"usage":{"x":1}}`, false, true},
		{`{"choices":[],"usage":{"x":1}}`, true, false},
		{`{"choices":[],"sglext":{"input_ids":[1]}}`, false, true},
		{`{"choices":[],"sglext":{"input_ids":[1],"cached":1}}`, false, false},
		{`{"choices":[],"sglext":{"output_ids":[1]},"usage":{}}`, true, false},
		{`{"choices":[],"prompt_token_ids":[1]}`, true, true},
		{`{"choices":[]}`, false, false},
		{`{"choices":[],"error":{},"usage":{}}`, false, false},
		{`{"usage":{}}`, false, false},
	} {
		v := &view{streamed: true, usage: c.usage}
		if drop, err := v.document(newScanner(), []byte(c.text), nil); err != nil || drop != c.drop {
			t.Errorf("%s, usage %v: %v, %v", c.text, c.usage, drop, err)
		}
	}
}

// streamed passes a stream to a client in pieces of at most n bytes.
func streamed(tb testing.TB, p *Proxy, stream []byte, piece func() int) (seen string, call *session.Call, err error) {
	tb.Helper()
	w, sessions := httptest.NewRecorder(), p.cfg.Sessions
	q, err := parseChat(newScanner(), []byte(`{"model":"policy","messages":[],"stream":true}`))
	if err != nil {
		tb.Fatal(err)
	}
	key, err := sessions.Begin(session.Head{})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := sessions.Session(key)
	if err != nil {
		tb.Fatal(err)
	}
	a, err := x.Admit(nil)
	if err != nil {
		tb.Fatal(err)
	}
	c := &chatCall{p: p, w: w, client: tb.Context(), x: exchange{p: p, engine: newEngine(&url.URL{})}, q: q, admission: a, view: viewOf(q, false)}
	c.able = &ability{}
	c.reader, c.view.streamed, c.call.Status = newReader(openai{}, true), true, 200
	defer c.reader.close()
	err = c.pass(&pieces{stream, piece})
	_ = c.flush()
	if !c.stored {
		_ = c.record(true)
	}
	a.Done()
	rec, failed := sessions.Read(x.ID())
	if failed != nil || len(rec.Calls) != 1 {
		tb.Fatalf("recorded %+v, %v", rec, failed)
	}
	if _, err := sessions.Clear(func(string) bool { return false }); err != nil {
		tb.Fatal(err)
	}
	return w.Body.String(), &rec.Calls[0], err
}

type pieces struct {
	rest  []byte
	piece func() int
}

func (r *pieces) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), r.piece())], r.rest)
	r.rest = r.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// FuzzSessionStream proves that the client sees the same, and the same is recorded, however the
// stream is cut into pieces, and that no stream harms the proxy.
func FuzzSessionStream(f *testing.F) {
	const first = `data: {"id":"x","choices":[{"index":0,"delta":{"content":"é\ud83c\udf89"},"token_ids":[1,2]}],"prompt_token_ids":[7]}`
	for _, text := range []string{
		first + "\n\ndata: [DONE]\n\n",
		first + "\r\n\r\n: ping\r\n\r\nevent: x\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\r\n\r\ndata: [DONE]\r\n\r\n",
		"data: {\"choices\":\ndata:[],\"usage\":{}}\n\n\n\ndata:[DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}},{\"function\":{\"arguments\":null}}]},\"finish_reason\":\"stop\"}]}\n\n",
		"data: x\n\n", "data: {}\n\n", "\n\n", ":\n", "data", first + "\n" + first + "\n\n",
		"data: {\"prompt_token_ids\":[\n]}\n\n",
	} {
		f.Add([]byte(text), uint64(1))
	}
	sessions, err := store.Open(store.Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = sessions.Close() }()
	p := &Proxy{cfg: Config{Sessions: sessions}.withDefaults(), stats: counters{Stats: newStats()}}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		draw := rand.New(rand.NewPCG(seed, 0))
		whole, want, err1 := streamed(t, p, stream, func() int { return 1 << 20 })
		cut, got, err2 := streamed(t, p, stream, func() int { return 1 + draw.IntN(7) })
		got.Ended = want.Ended
		for _, c := range []*session.Call{want, got} {
			c.Logprobs = nil // NaN is not equal to itself
		}
		if whole != cut || fmt.Sprint(err1) != fmt.Sprint(err2) || !reflect.DeepEqual(want, got) {
			t.Errorf("in one piece: %q, %+v, %v\nin pieces: %q, %+v, %v", whole, want, err1, cut, got, err2)
		}
		if got.Answer != nil && !json.Valid(got.Answer) {
			t.Errorf("the recorded message is not JSON: %s", got.Answer)
		}
		for event := range strings.SplitSeq(strings.ReplaceAll(whole, "\r\n", "\n"), "\n\n") {
			var lines []string
			for line := range strings.SplitSeq(event, "\n") {
				if data, ok := strings.CutPrefix(line, "data:"); ok { // a client ignores other lines
					lines = append(lines, data)
				}
			}
			data := strings.Join(lines, "\n")
			var doc map[string]json.RawMessage // unlike a struct, with the exact names
			if !utf8.ValidString(data) || json.Unmarshal([]byte(data), &doc) != nil {
				continue
			}
			var choices []map[string]json.RawMessage
			_ = json.Unmarshal(doc["choices"], &choices)
			if doc["prompt_token_ids"] != nil || len(choices) > 0 && choices[0]["token_ids"] != nil {
				t.Errorf("the client sees ids: %s", data)
			}
		}
	})
}

// TestChunks compares the stream that is made from a whole answer with the answer.
func TestChunks(t *testing.T) {
	t.Parallel()
	const body = `{"id":"c","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a\u0041",` +
		`"reasoning_content":"r","refusal":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"index":null,"id":"y"},{}]},` +
		`"logprobs":null,"finish_reason":"tool_calls","matched_stop":9}],"usage":{"total_tokens":3}}`
	v := &view{parts: newDocument(), message: &message{}}
	_, err := v.document(newScanner(), []byte(body), nil)
	got := v.parts.events(nil, true)
	const head = `data: {"id":"c","created":5,"model":"m","object":"chat.completion.chunk","choices":[{"index":0,"delta":{`
	const tail = `},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	want := head + `"role":"assistant","content":""` + tail + head + `"reasoning_content":"r"` + tail + head + `"content":"a\u0041"` + tail +
		head + `"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]` + tail +
		head + `"tool_calls":[{"index":1,"id":"y"}]` + tail + head + `"tool_calls":[{"index":2}]` + tail +
		head + `},"logprobs":null,"finish_reason":"tool_calls","matched_stop":9}]}` + "\n\n" +
		`data: {"id":"c","created":5,"model":"m","object":"chat.completion.chunk","choices":[],"usage":{"total_tokens":3}}` + "\n\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}
