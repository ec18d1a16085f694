package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

const (
	firstEvent = `data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a","reasoning_content":"th"},"token_ids":[1,2],"logprobs":{"content":[{"logprob":-1},{"logprob":-2}]}}],"prompt_token_ids":[7,8]}` + "\n\n"
	toolEvent  = `data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": \u0031"}}]},"token_ids":[3]}]}` + "\n\n"
)

// open reads the first n bytes of a stream.
func (r *sessionRig) open(ctx context.Context, tb testing.TB, key session.Key, n int) *http.Response {
	tb.Helper()
	res := r.send(ctx, tb, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", true, ""))
	if _, err := io.CopyN(io.Discard, res.Body, int64(n)); err != nil {
		tb.Fatal(err)
	}
	return res
}

// TestSessionCut proves that a stream that the engine cuts off is also cut off for the client, and
// that the part that arrived is recorded.
func TestSessionCut(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstEvent+toolEvent+toolEvent[:40])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}})
	key := r.begin(t)
	res := r.open(t.Context(), t, key, 0)
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil || strings.Contains(string(text), "token_ids") || strings.Count(string(text), "data: ") != 2 {
		t.Errorf("the client got %q, %v", text, err)
	}
	r.drain(t)
	c := r.record(t, key).Calls[0]
	if !slices.Equal(c.Prompt, []int32{7, 8}) || !slices.Equal(c.Output, []int32{1, 2, 3}) || len(c.Logprobs) != 3 || !c.Cut || c.Delivered || c.Unread != "cut" {
		t.Errorf("recorded %+v", c)
	}
	const want = `{"role":"assistant","content":"a","reasoning_content":"th","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": \u0031"}}]}`
	if string(c.Answer) != want {
		t.Errorf("recorded %s, want %s", c.Answer, want)
	}
}

// hanging sends the first event and then waits until its client disconnects. It closes gone then.
func hanging(gone chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, firstEvent)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		close(gone)
	}
}

// TestSessionClientGone proves that the engine's work ends when the client disconnects, and that the
// part that arrived is recorded.
func TestSessionClientGone(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), hanging(gone)})
	key := r.begin(t)
	ctx, cancel := context.WithCancel(t.Context())
	res := r.open(ctx, t, key, 20)
	cancel()
	<-gone
	_ = res.Body.Close()
	r.drain(t)
	c := r.record(t, key).Calls[0]
	if !slices.Equal(c.Output, []int32{1, 2}) || !c.Cut || c.Delivered || c.Unread != "cut" {
		t.Errorf("recorded %+v", c)
	}
}

// TestSessionHalfRead proves that an answer does not count as delivered if the client disconnects
// while it is written.
func TestSessionHalfRead(t *testing.T) {
	t.Parallel()
	engine := newEngine(t)
	text := `{"choices":[{"message":{"content":"` + strings.Repeat("x", 24<<20) + // more than the buffers of a connection
		`"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	r := newSessionRig(t, proxy.Config{}, trialed{engine, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }})
	key := r.begin(t)
	res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", false, ""))
	_, _ = io.CopyN(io.Discard, res.Body, 100)
	_ = res.Body.Close()
	r.drain(t)
	if c := r.record(t, key).Calls[0]; c.Delivered || c.Cut || c.Unread != "" || len(c.Output) != 1 {
		t.Errorf("recorded %v %v %q %v", c.Delivered, c.Cut, c.Unread, c.Output)
	}
}

// TestSessionSealed proves that sealing a session cancels its calls, which are recorded, and that the
// client gets an error.
func TestSessionSealed(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		gone := make(chan struct{})
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), hanging(gone)})
		key := r.begin(t)
		answer := make(chan string, 1)
		if stream {
			res := r.open(t.Context(), t, key, 5)
			go func() {
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				answer <- fmt.Sprint(string(text), err)
			}()
		} else {
			go func() {
				status, text := r.call(t, key, chatBody("single", false, ""))
				answer <- fmt.Sprint(status, text)
			}()
			wait(t, func() bool { return r.proxy.Stats().Calls == 1 })
		}
		rec := r.record(t, key)
		got := <-answer
		if stream && (!strings.Contains(got, `data: {"error":`) || !strings.Contains(got, "unexpected EOF")) || !stream && !strings.HasPrefix(got, "410") {
			t.Errorf("stream %v: the client got %s", stream, got)
		}
		if len(rec.Calls) != 1 || !rec.Calls[0].Cut || rec.Calls[0].Delivered || (len(rec.Calls[0].Output) == 2) != stream {
			t.Errorf("stream %v: recorded %+v", stream, rec.Calls)
		}
		if status, text := r.call(t, key, chatBody("single", stream, "")); status != http.StatusGone || !strings.Contains(text, `"code":"after_seal"`) {
			t.Errorf("a call after the seal: %d %s", status, text)
		}
	}
}

// TestSessionWait proves that end?wait=true lets a call finish, but admits no other call.
func TestSessionWait(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := newEngine(t)
	r := newSessionRig(t, proxy.Config{}, trialed{e, func(w http.ResponseWriter, r *http.Request) {
		<-release
		e.ServeHTTP(w, r)
	}})
	key := r.begin(t)
	answer, ended := make(chan int, 1), make(chan int, 1)
	go func() {
		status, _ := r.call(t, key, chatBody("single", false, ""))
		answer <- status
	}()
	wait(t, func() bool { return r.proxy.Stats().Calls == 1 })
	go func() {
		status, _ := r.post(t, "/r/"+string(key)+"/end?wait=true", "")
		ended <- status
	}()
	x, err := r.store.Session(key)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { // until the session admits no call
		a, err := x.Admit(nil)
		if err == nil {
			a.Done()
		}
		return err != nil
	})
	if status, _ := r.call(t, key, chatBody("single", false, "")); status != http.StatusGone {
		t.Errorf("a call after the seal: %d", status)
	}
	close(release)
	if a, b := <-answer, <-ended; a != http.StatusOK || b != http.StatusOK {
		t.Errorf("the call got %d, the end %d", a, b)
	}
	if rec, err := r.store.Read(key.ID()); err != nil || len(rec.Calls) != 1 || !rec.Calls[0].Delivered {
		t.Errorf("recorded %+v, %v", rec, err)
	}
}

// TestSessionEngineErrors proves that an engine's error reaches the client unchanged, and is
// recorded without ids.
func TestSessionEngineErrors(t *testing.T) {
	t.Parallel()
	for _, f := range forms {
		for _, status := range []int{400, 429, 500, 503} {
			engine := f.engine(t)
			const text = `{"error":{"message":"no","type":"x"}}`
			r := newSessionRig(t, proxy.Config{}, trialed{engine, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
			}})
			key := r.begin(t)
			for _, stream := range []bool{false, true} {
				res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", stream, ""))
				got, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.StatusCode != status || string(got) != text || res.Header.Get("Retry-After") != "7" {
					t.Errorf("%s, %d: the client got %d %s", f.name, status, res.StatusCode, got)
				}
			}
			for _, c := range r.record(t, key).Calls {
				if c.Status != status || c.Output != nil || c.Prompt != nil || c.Answer != nil || c.Delivered || c.Cut || len(c.Messages) != 2 {
					t.Errorf("%s, %d: recorded %+v", f.name, status, c)
				}
			}
		}
	}
}

// TestSessionOverflow proves that a call is recorded as too long for the context only if the engine
// states it: vLLM's and SGLang's words, and OpenAI's code. Such a call is not an unread answer.
func TestSessionOverflow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		text   string
		want   string
	}{
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000."}}`, session.UnreadOverflow},
		{400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens)."}`, session.UnreadOverflow},
		{400, `{"error":{"message":"The decoder prompt (length 9000) is longer than the maximum model length of 8192."}}`, session.UnreadOverflow},
		{413, `{"error":{"message":"no","code":"context_length_exceeded"}}`, session.UnreadOverflow},
		{400, `{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 65536. This model's maximum context length is 32768 tokens and your request has 9 input tokens.","code":400}}`, session.UnreadOverflow},
		{400, `{"error":{"message":"You passed 9000 input tokens and requested 1 output tokens. However, the model's context length is only 8192 tokens, resulting in","param":"input_tokens"}}`, session.UnreadOverflow},
		{400, `{"object":"error","message":"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens","code":400}`, session.UnreadOverflow},
		{400, `{"object":"error","message":"Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input","code":400}`, session.UnreadOverflow},
		{400, `{"error":{"message":"tool_choice is not supported"}}`, ""},
		{400, `{"error":{"message":"1 validation error: {'input': \"Explain: This model's maximum context length is 8192 tokens. context_length_exceeded\"}"}}`, ""},
		{400, `{"error":{"message":"no","param":"messages: what is a context window, context_length or max_model_len?"}}`, ""},
		{400, `This model's maximum context length is 8192 tokens.`, ""},
		{422, `{"error":{"message":"Input should be a valid string"}}`, ""},
		{500, `{"error":{"message":"the context length is unknown"}}`, ""},
	} {
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.text)
		}})
		key := r.begin(t)
		res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", false, ""))
		_ = res.Body.Close()
		if calls := r.record(t, key).Calls; len(calls) != 1 || calls[0].Unread != tt.want {
			t.Errorf("%d %s: recorded %+v, want %q", tt.status, tt.text, calls, tt.want)
		}
		if unread := r.proxy.Stats().Unread; len(unread) > 0 {
			t.Errorf("%d %s: unread %v", tt.status, tt.text, unread)
		}
	}
}

// TestSessionKeepAlive proves that a client whose stream is made from a whole answer gets comments
// while it waits, and then the answer or the error.
func TestSessionKeepAlive(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		engine := forms[2].engine(t)
		release := make(chan struct{})
		r := newSessionRig(t, proxy.Config{}, trialed{engine, func(w http.ResponseWriter, r *http.Request) {
			<-release
			if fails {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"error":{"message":"out of memory"}}`)
				return
			}
			engine.ServeHTTP(w, r)
		}})
		r.proxy.Limits().HoldHead, r.proxy.Limits().KeepAlive = time.Millisecond, time.Millisecond
		key := r.begin(t)
		const comment = ": the engine is working\n\n"
		res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("tool", true, ""))
		buf := make([]byte, 3*len(comment))
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != strings.Repeat(comment, 3) || res.StatusCode != 200 {
			t.Fatalf("the client got %d %q, %v", res.StatusCode, buf, err)
		}
		close(release)
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		c := r.record(t, key).Calls[0]
		if fails {
			if !strings.HasSuffix(string(text), `data: {"error":{"message":"out of memory"}}`+"\n\n") || err == nil || c.Status != 500 {
				t.Errorf("the client got %q, %v; recorded %+v", text, err, c)
			}
			continue
		}
		if got := heard(t, string(buf)+string(text)); err != nil || got.Finish != "tool_calls" || len(got.Names) != 1 || !c.Delivered || c.Unread != "" {
			t.Errorf("the client got %q, %v; recorded %+v", text, err, c)
		}
	}
}

// TestSessionFullDisk proves that no client gets a whole answer that is not recorded. A folder that
// is missing causes the same errors as a full disk.
func TestSessionFullDisk(t *testing.T) {
	t.Parallel()
	for _, f := range forms {
		engine := f.engine(t)
		dir := filepath.Join(t.TempDir(), "sessions")
		r := sessionRigOf(t, store.Config{Dir: dir, SyncEvery: time.Hour}, proxy.Config{}, engine)
		for range 128 { // so many files stay open that the store opens the next one for each write
			r.begin(t)
		}
		key := r.begin(t)
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		for _, stream := range []bool{false, true} {
			res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", stream, ""))
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if !strings.Contains(string(text), dir) || !strings.Contains(string(text), "not_recorded") || strings.Contains(string(text), "[DONE]") {
				t.Errorf("%s, stream %v: the client got %d %s", f.name, stream, res.StatusCode, text)
			}
			if res.StatusCode != http.StatusInsufficientStorage && (err == nil || !stream) {
				t.Errorf("%s, stream %v: the client got status %d and %v", f.name, stream, res.StatusCode, err)
			}
		}
		if s := r.proxy.Stats(); s.Dropped != 2 || s.Kept != 0 {
			t.Errorf("%s: %+v", f.name, s)
		}
		health := func(want string) {
			res, err := http.Get(r.url + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), want) {
				t.Errorf("%s: /healthz answers %d %s, want %s", f.name, res.StatusCode, text, want)
			}
		}
		health("degraded: calls of sessions fail with status 507 (")
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		r.begin(t)
		health("ok")
		if calls := r.record(t, key).Calls; len(calls) != 0 {
			t.Errorf("%s: recorded %+v", f.name, calls)
		}
	}
}

// TestSessionDowngrade proves that the proxy asks for whole answers after a stream without ids.
func TestSessionDowngrade(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	lost := true
	r := newSessionRig(t, proxy.Config{}, trialed{e, func(w http.ResponseWriter, r *http.Request) {
		if lost {
			lost = false
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, firstEvent+`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
				`data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":9}}`+"\n\ndata: [DONE]\n\n")
			return
		}
		e.ServeHTTP(w, r)
	}})
	key := r.begin(t)
	for range 2 {
		if status, text := r.call(t, key, chatBody("single", true, "")); status != 200 || heard(t, text).Finish != "stop" {
			t.Errorf("%d %s", status, text)
		}
	}
	if got := r.proxy.Mode(); got != "whole answers" {
		t.Errorf("the ids come by %s", got)
	}
	calls := r.record(t, key).Calls
	if calls[0].Unread != "no_ids" || !calls[0].Delivered || calls[1].Unread != "" || len(calls[1].Output) == 0 {
		t.Errorf("recorded %+v", calls)
	}
}
