package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A said is the assistant message that a client puts together from an answer, as JSON texts.
type said struct {
	Content, Reasoning string
	Names, Arguments   []string
	Finish             string
	Usage              bool
	Members            map[string]bool
}

// heard reads an answer as a client does.
func heard(tb testing.TB, text string) said {
	tb.Helper()
	out := said{Members: map[string]bool{}}
	documents := []string{text}
	if strings.HasPrefix(text, "data:") || strings.HasPrefix(text, ":") {
		documents = nil
		for event := range strings.SplitSeq(text, "\n\n") {
			if data, ok := strings.CutPrefix(event, "data: "); ok {
				documents = append(documents, data)
			}
		}
		if n := len(documents) - 1; n < 0 || documents[n] != "[DONE]" {
			tb.Fatalf("the stream has no end: %s", text)
		}
		documents = documents[:len(documents)-1]
	}
	for _, doc := range documents {
		var all map[string]json.RawMessage
		type part struct {
			Content, Reasoning *string
			ReasoningContent   *string `json:"reasoning_content"`
			Calls              []struct {
				Index    int
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		var d struct {
			Choices []struct {
				Delta, Message part
				Finish         *string `json:"finish_reason"`
			}
			Usage map[string]any
		}
		if err := json.Unmarshal([]byte(doc), &all); err != nil {
			tb.Fatalf("%v: %s", err, doc)
		}
		if err := json.Unmarshal([]byte(doc), &d); err != nil {
			tb.Fatalf("%v: %s", err, doc)
		}
		for name := range all {
			out.Members[name] = true
		}
		var choices []map[string]json.RawMessage
		_ = json.Unmarshal(all["choices"], &choices)
		for _, c := range choices {
			for name, value := range c {
				if string(value) != "null" {
					out.Members["choices."+name] = true
				}
			}
		}
		out.Usage = out.Usage || d.Usage != nil
		for _, c := range d.Choices {
			for _, p := range []part{c.Delta, c.Message} {
				if p.Content != nil {
					out.Content += *p.Content
				}
				for _, text := range []*string{p.Reasoning, p.ReasoningContent} {
					if text != nil {
						out.Reasoning += *text
					}
				}
				for i, call := range p.Calls {
					at := max(i, call.Index)
					for len(out.Names) <= at {
						out.Names, out.Arguments = append(out.Names, ""), append(out.Arguments, "")
					}
					out.Names[at] += call.Function.Name
					out.Arguments[at] += call.Function.Arguments
				}
			}
			if c.Finish != nil {
				out.Finish = *c.Finish
			}
		}
	}
	return out
}

// TestSessionView proves that a client sees the same through the tap as without it: the same texts
// and arguments, and no member that it did not ask for. The engine's answer arrives in pieces of any
// size.
func TestSessionView(t *testing.T) {
	t.Parallel()
	for i, f := range forms {
		engine := f.engine(t)
		direct := httptest.NewServer(engine)
		defer direct.Close()
		r := newSessionRig(t, proxy.Config{}, chopped(engine, rand.New(rand.NewPCG(1, uint64(i)))))
		key := r.begin(t)
		var answers []string
		for _, script := range []string{"single", "tool", "think-parallel", "text-around", "unicode", "escaped", "quoted", "spaced", "newlines", "large", "length", "empty", "malformed"} {
			for _, more := range []string{"", `,"stream_options":{"include_usage":true}`, `,"logprobs":true`, `,"stream_options":null,"top_logprobs":null`} {
				for _, stream := range []bool{false, true} {
					body := chatBody(script, stream, more)
					res, err := r.client.Post(direct.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(res.Body)
					_ = res.Body.Close()
					want := heard(t, string(text))
					_, tapped := r.call(t, key, body)
					got := heard(t, tapped)
					for name := range got.Members {
						if !want.Members[name] {
							t.Errorf("%s, %s%s, stream %v: the client did not ask for %s", f.name, script, more, stream, name)
						}
					}
					if strings.Contains(more, `"logprobs"`) != got.Members["choices.logprobs"] {
						t.Errorf("%s, %s%s, stream %v: log-probabilities %v", f.name, script, more, stream, got.Members)
					}
					got.Members, want.Members = nil, nil
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s, %s%s, stream %v: the client sees\n%+v, without the tap\n%+v", f.name, script, more, stream, got, want)
					}
					if strings.Count(tapped, `"model":"policy"`) == 0 || strings.Contains(tapped, "qwen3") {
						t.Errorf("%s: the client sees the engine's model: %s", f.name, tapped)
					}
					answers = append(answers, tapped)
				}
			}
		}
		if got := r.proxy.Mode(); got != f.mode {
			t.Errorf("%s: the ids come by %s, want %s", f.name, got, f.mode)
		}
		rec := r.record(t, key)
		for i, c := range rec.Calls {
			want := heard(t, answers[i])
			got := heard(t, `{"choices":[{"message":`+string(c.Answer)+`,"finish_reason":"`+c.Finish+`"}]}`)
			if got.Content != want.Content || got.Reasoning != want.Reasoning || !reflect.DeepEqual(got.Arguments, want.Arguments) || !reflect.DeepEqual(got.Names, want.Names) {
				t.Errorf("%s, call %d: recorded %s, the client saw %+v", f.name, i, c.Answer, want)
			}
		}
	}
}

// TestSessionFirstByte proves that the proxy passes on the head and each event of a stream before
// the engine continues.
func TestSessionFirstByte(t *testing.T) {
	t.Parallel()
	heardHead, heardEvent := make(chan struct{}), make(chan struct{})
	await := func(c chan struct{}) {
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Error("the proxy holds back a part of the stream")
		}
	}
	engine := trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
		out := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		_ = out.Flush()
		await(heardHead)
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1]}],"prompt_token_ids":[7]}`+"\n\n")
		_ = out.Flush()
		await(heardEvent)
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop","token_ids":[2]}]}`+"\n\n"+
			`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`+"\n\ndata: [DONE]\n\n")
	}}
	r := newSessionRig(t, proxy.Config{}, engine)
	key := r.begin(t)
	res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", true, ""))
	defer res.Body.Close()
	close(heardHead)
	const want = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != want {
		t.Errorf("the first event is %q, %v", buf, err)
	}
	close(heardEvent)
	rest, err := io.ReadAll(res.Body)
	if want := `data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"; err != nil || string(rest) != want {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	c := r.record(t, key).Calls[0]
	if fmt.Sprintf("%v %v %q %v", c.Prompt, c.Output, c.Unread, c.Delivered) != `[7] [1 2] "" true` || string(c.Answer) != `{"role":"assistant","content":"ab"}` {
		t.Errorf("recorded %+v %s", c, c.Answer)
	}
}
