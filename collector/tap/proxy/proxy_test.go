package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestCall proves that a call passes unchanged and is kept completely.
func TestCall(t *testing.T) {
	t.Parallel()
	engine := &answers{text: answered(3, []int32{785, 2629, 151645})}
	r := newRig(t, proxy.Config{}, engine)
	status, got := r.post(t, "/generate", asked([]int32{1, 2, 3}))
	if status != http.StatusOK || got != engine.text {
		t.Fatalf("the client got %d %s", status, got)
	}
	if got := engine.got(); len(got) != 1 || got[0] != asked([]int32{1, 2, 3}) {
		t.Errorf("the engine got %q", got)
	}
	c := r.kept.one(t)
	if !slices.Equal(c.Prompt, []int32{1, 2, 3}) || c.Asked != nil || !slices.Equal(c.Output, []int32{785, 2629, 151645}) {
		t.Errorf("prompt %v, asked %v, output %v", c.Prompt, c.Asked, c.Output)
	}
	if len(c.Logprobs) != 3 || c.Logprobs[1] != float32(-0.1683406345546241) {
		t.Errorf("log-probabilities %v", c.Logprobs)
	}
	if c.Finish != "stop" || c.Matched != 151645 || c.Version != "7" || c.PromptTokens != 3 || c.OutputTokens != 3 || c.Cached != 3 {
		t.Errorf("%+v", c)
	}
	if c.Status != 200 || c.Cut || c.Dialect != "sglang" || c.Engine == "" || c.Began.After(c.Ended) {
		t.Errorf("%+v", c)
	}
	s := c.Sampling
	if *s.Temperature != 1 || *s.TopP != 0.9 || *s.MaxNewTokens != 4096 || s.TopK != nil || s.Seed != nil || s.MinP != nil || s.Stop != nil {
		t.Errorf("sampling %+v", s)
	}
}

// TestLogprobBits proves that log-probabilities have the same bits as the collector's. The server
// prints the same doubles differently.
func TestLogprobBits(t *testing.T) {
	t.Parallel()
	engine := &answers{text: `{"output_ids":[7,8,9],"meta_info":{"output_token_logprobs":[[-2.9001324946875684e-05,7,null],[-2.666984926236182e-07,8,null],[null,9,null]]}}`}
	r := newRig(t, proxy.Config{}, engine)
	r.post(t, "/generate", asked([]int32{1}))
	turns := `{"turns":[{"role":"assistant","output_ids":[7,8],"output_token_logprobs":[[-0.000029001324946875684,7,null],[-2.666984926236182e-7,8,null]]}]}`
	var reply tokenize.Reply
	if err := tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes([]byte(turns), &reply); err != nil {
		t.Fatal(err)
	}
	got := r.kept.one(t).Logprobs
	if !slices.Equal(got[:2], reply.Turns[0].Logprobs) || !math.IsNaN(float64(got[2])) {
		t.Errorf("%v, the turns have %v", got, reply.Turns[0].Logprobs)
	}
}

// TestClaims proves that a call claims nothing that is in doubt.
func TestClaims(t *testing.T) {
	t.Parallel()
	const ok = `{"output_ids":[7,8],"meta_info":{"prompt_tokens":2,"weight_version":"1","output_token_logprobs":[[-1,7,null],[-2,8,null]]}}`
	for _, c := range []struct {
		name, ask, answer string
		status            int
		check             func(c *tap.Call) bool
	}{
		{"all", asked([]int32{5, 6}), ok, 0, func(c *tap.Call) bool { return len(c.Prompt) == 2 && len(c.Output) == 2 && c.Logprobs[1] == -2 }},
		{"the engine counts another prompt", asked([]int32{5, 6, 7}), ok, 0, func(c *tap.Call) bool { return c.Prompt == nil && len(c.Output) == 2 }},
		{"a session has more", `{"input_ids":[5,6],"session_params":{"id":"s"}}`, ok, 0, func(c *tap.Call) bool { return c.Prompt == nil && len(c.Output) == 2 }},
		{"an image", `{"input_ids":[5,6],"image_data":"x"}`, ok, 0, func(c *tap.Call) bool { return c.Prompt == nil }},
		{"a text", `{"text":"hello"}`, ok, 0, func(c *tap.Call) bool { return c.Prompt == nil && len(c.Output) == 2 }},
		{"no ids", asked([]int32{5, 6}), `{"text":"x","meta_info":{"prompt_tokens":2}}`, 0, func(c *tap.Call) bool { return len(c.Prompt) == 2 && c.Output == nil && c.Logprobs == nil }},
		{"another token's", asked([]int32{5, 6}), strings.Replace(ok, "[-2,8", "[-2,9", 1), 0, func(c *tap.Call) bool { return len(c.Output) == 2 && c.Logprobs[0] != c.Logprobs[0] }},
		{"one too many", asked([]int32{5, 6}), strings.Replace(ok, "[-2,8,null]", "[-2,8,null],[-3,9,null]", 1), 0, func(c *tap.Call) bool { return len(c.Logprobs) == 2 && c.Logprobs[1] == -2 }},
		{"one too few", asked([]int32{5, 6}), strings.Replace(ok, ",[-2,8,null]", "", 1), 0, func(c *tap.Call) bool { return c.Logprobs[0] == -1 && c.Logprobs[1] != c.Logprobs[1] }},
		{"two versions", asked([]int32{5, 6}), strings.Replace(ok, `"weight_version"`, `"weight_versions":[{"version":"0"},{"version":"1"}],"weight_version"`, 1), 0, func(c *tap.Call) bool { return len(c.Versions) == 2 && len(c.Output) == 2 }},
		{"versions of no list", asked([]int32{5, 6}), strings.Replace(ok, `"weight_version"`, `"weight_versions":"x","weight_version"`, 1), 0, func(c *tap.Call) bool { return c.Versions != nil && len(c.Versions) == 0 && len(c.Output) == 2 }},
		{"a version that is a number", asked([]int32{5, 6}), strings.Replace(ok, `"weight_version":"1"`, `"weight_version":1`, 1), 0, func(c *tap.Call) bool { return c.Version == "1" && c.Versions == nil && len(c.Output) == 2 }},
		{"a version that is an object", asked([]int32{5, 6}), strings.Replace(ok, `"weight_version":"1"`, `"weight_version":{}`, 1), 0, func(c *tap.Call) bool { return c.Version == "" && c.Versions == nil && len(c.Output) == 2 }},
		{"said twice", asked([]int32{5, 6}), strings.Replace(ok, `{"output_ids":[7,8]`, `{"output_ids":[7,8],"output_ids":[7,8]`, 1), 0, func(c *tap.Call) bool { return c.Output == nil && len(c.Prompt) == 2 }},
		{"no JSON behind", asked([]int32{5, 6}), ok + "x", 0, func(c *tap.Call) bool { return c.Output == nil && c.Version == "" }},
		{"an error", asked([]int32{5, 6}), `{"error":{"message":"full"}}`, 500, func(c *tap.Call) bool { return c.Output == nil && c.Status == 500 && !c.Cut }},
		{"an error that has ids", asked([]int32{5, 6}), strings.Replace(ok, "{", `{"error":"x",`, 1), 0, func(c *tap.Call) bool { return c.Output == nil }},
	} {
		engine := &answers{text: c.answer, status: c.status}
		r := newRig(t, proxy.Config{}, engine)
		if status, got := r.post(t, "/generate", c.ask); got != c.answer || status != max(200, c.status) {
			t.Errorf("%s: the client got %d %s", c.name, status, got)
		}
		if got := engine.got(); got[0] != c.ask {
			t.Errorf("%s: the engine got %s", c.name, got)
		}
		if call := r.kept.one(t); !c.check(call) {
			t.Errorf("%s: kept %+v", c.name, call)
		}
	}
}

// TestNoCall proves that unreadable requests pass, and generations among them are kept empty.
func TestNoCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path, ask, why string }{
		{"a batch", "/generate", `{"input_ids":[[1,2],[3]],"sampling_params":[{},{}]}`, "several"},
		{"texts", "/generate", `{"text":["a","b"]}`, "several"},
		{"two outputs", "/generate", `{"input_ids":[1],"sampling_params":{"n":2}}`, "several"},
		{"no JSON", "/generate", `{"input_ids":[1,`, "malformed"},
		{"nothing", "/generate", ``, "malformed"},
		{"twice", "/generate", `{"input_ids":[1],"input_ids":[2]}`, "malformed"},
		{"choices", "/v1/chat/completions", `{"messages":[],"n":2}`, "several"},
		{"another page", "/update_weights", `{"x":1}`, ""},
	} {
		engine := &answers{text: `[{"x":1}]`}
		r := newRig(t, proxy.Config{}, engine)
		if _, got := r.post(t, c.path, c.ask); got != engine.text {
			t.Errorf("%s: the client got %s", c.name, got)
		}
		if got := engine.got(); got[0] != c.ask {
			t.Errorf("%s: the engine got %q", c.name, got[0])
		}
		if calls := r.kept.all(); (len(calls) == 1) != (c.why != "") || len(calls) > 0 && (calls[0].Prompt != nil || calls[0].Output != nil || calls[0].Status != 200 || calls[0].Engine == "") {
			t.Errorf("%s: kept %+v", c.name, calls)
		}
		if s := r.proxy.Stats(); c.why != "" && s.Unread[c.why] != 1 {
			t.Errorf("%s: unread %v", c.name, s.Unread)
		}
	}
}

// TestClientGoes proves that a client that leaves cancels its request, which is kept as cut.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-req.Context().Done()
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	res := r.send(ctx, t, "/generate", asked([]int32{1}))
	<-began
	cancel()
	<-ended
	_ = res.Body.Close()
	r.drain(t)
	if c := r.kept.one(t); !c.Cut || c.Output != nil || len(c.Prompt) != 1 {
		t.Errorf("kept %+v", c)
	}
}

// TestKeptBeforeTheEnd proves that a call is kept before its client has the end of the answer.
func TestKeptBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		text := answered(1, []int32{7})
		r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.Header().Set("Content-Type", "application/json")
			if !chunked {
				w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			}
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}))
		for range 20 {
			before := len(r.kept.all())
			r.post(t, "/generate", asked([]int32{1}))
			if n := len(r.kept.all()); n != before+1 {
				t.Fatalf("chunked %v: the client has the answer, and %d calls are kept", chunked, n-before)
			}
		}
	}
}

// TestBreaksOff proves that an answer that the engine cuts off is cut off for the client too.
func TestBreaksOff(t *testing.T) {
	t.Parallel()
	text := answered(1, []int32{7})
	r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = io.WriteString(w, text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	res := r.send(t.Context(), t, "/generate", asked([]int32{1}))
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != text[:len(text)/2] {
		t.Errorf("the client read %d bytes and %v", len(got), err)
	}
	r.drain(t)
	if c := r.kept.one(t); !c.Cut || c.Output != nil || c.Finish != "" {
		t.Errorf("kept %+v", c)
	}
}

// TestNoEngine proves that the client gets a 502 with the reason if no engine answers. Such a call is kept
// only if its request was parsed.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	u := parse(t, "http://user:secret@"+l.Addr().String())
	r := newRig(t, proxy.Config{Engines: []*url.URL{u}})
	status, text := r.post(t, "/generate", asked([]int32{1}))
	if status != http.StatusBadGateway || !strings.Contains(text, "refused") || strings.Contains(text, "secret") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.post(t, "/generate", "no JSON"); status != http.StatusBadGateway {
		t.Errorf("%d %s", status, text)
	}
	if c := r.kept.one(t); c.Status != 0 || strings.Contains(c.Engine, "secret") {
		t.Errorf("kept %+v", c)
	}
}

// TestUnbuffered proves that a stream passes event by event.
func TestUnbuffered(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: {}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	res := r.send(t.Context(), t, "/generate", `{"input_ids":[1],"stream":true}`)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for range 3 {
		if line, err := lines.ReadString('\n'); line != "data: {}\n" || err != nil {
			t.Fatalf("%q %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
}
