package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A pipes listener accepts connections in memory, so that a test can run in fake time. A write to
// such a connection blocks until the other side reads it.
type pipes struct {
	accepted chan net.Conn
	closed   context.Context
	close    context.CancelFunc
}

func newPipes() *pipes {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), ctx, cancel}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.close(); return nil }
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipes) dial() (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.accepted <- b:
		return a, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// A slowRig is a proxy, its engine and its clients in fake time.
type slowRig struct {
	*Proxy
	t     *testing.T
	store *store.Store
	front *pipes
}

// slowly runs a test in fake time. engine answers the calls; it is not asked for its ability.
func slowly(t *testing.T, engine http.HandlerFunc, test func(r *slowRig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Config{Dir: dir, SyncEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := New(Config{Engines: []*url.URL{{Scheme: "http", Host: "engine"}}, Sessions: s, Token: "the-token"})
		if err != nil {
			t.Fatal(err)
		}
		p.balance.engines[0].trial.able.Store(&ability{models: []string{"m"}})
		front, back := newPipes(), newPipes()
		p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return back.dial() }
		tap, model := &http.Server{Handler: p}, &http.Server{Handler: engine}
		go tap.Serve(front)
		go model.Serve(back)
		test(&slowRig{p, t, s, front})
		_ = tap.Close()
		_ = model.Close()
		p.Close()
	})
}

func (r *slowRig) begin() session.Key {
	r.t.Helper()
	key, err := r.store.Begin(session.Head{})
	if err != nil {
		r.t.Fatal(err)
	}
	return key
}

// send connects and sends a request with the header and the beginning of a body of n bytes.
func (r *slowRig) send(path, body string, n int) net.Conn {
	r.t.Helper()
	c, err := r.front.dial()
	if err == nil {
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\n\r\n%s", path, n, body)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// answer reads an answer. It returns its status, its body and the time since began.
func (r *slowRig) answer(c net.Conn, began time.Time) (status int, text string, took time.Duration) {
	r.t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	took = time.Since(began)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	_ = c.Close()
	return res.StatusCode, string(b), took
}

// end ends a session and returns its record. It fails if that takes longer than most.
func (r *slowRig) end(key session.Key, most time.Duration) *session.Record {
	r.t.Helper()
	began := time.Now()
	x, err := r.store.Session(key)
	if err == nil {
		_, err = x.End(r.t.Context(), session.End{}, false)
	}
	rec, readErr := r.store.Read(key.ID())
	if took := time.Since(began); err != nil || readErr != nil || took > most {
		r.t.Fatalf("the end took %v, want ≤ %v: %v", took, most, errors.Join(err, readErr))
	}
	return rec
}

func noCall(http.ResponseWriter, *http.Request) { panic("the engine was called") }

// TestSlowBody proves that a request whose body does not arrive is refused after a while, and leaves
// nothing behind. A session that is sealed or unknown cannot make the tap wait for as long, or reserve
// memory for the body.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	slowly(t, noCall, func(r *slowRig) {
		open, sealed := r.begin(), r.begin()
		r.end(sealed, 0)
		for _, c := range []struct {
			path   string
			length int
			status int
			code   string
			after  time.Duration
			held   int64
		}{
			{"/r/" + string(open) + "/chat/completions", 1000, 408, "slow_body", time.Minute, 1000},
			{"/r/" + string(open) + "/chat/completions", 1 << 20, 408, "slow_body", time.Minute, 1 << 20},
			{"/r/" + string(open) + "/chat/completions", 16<<20 + 1, 413, "too_large", 0, 0},
			{"/r/" + string(open) + "/end", 1000, 408, "slow_body", time.Minute, 0},
			{"/r/" + string(open) + "/end", 1<<20 + 1, 413, "too_large", 0, 0},
			{"/r/" + string(open) + "/other", 1000, 404, "not_found", 5 * time.Second, 0},
			{"/r/" + string(sealed) + "/chat/completions", 1000, 410, "after_seal", 5 * time.Second, 0},
			{"/r/" + string(sealed) + "/chat/completions", 1 << 20, 410, "after_seal", 0, 0},
			{"/r/" + string(session.NewKey()) + "/chat/completions", 1000, 401, "unknown_key", 5 * time.Second, 0},
			{"/r", 1000, 401, "unauthorized", 5 * time.Second, 0},
			{"/generate", 1000, 401, "unauthorized", 5 * time.Second, 0},
		} {
			began := time.Now()
			conn := r.send(c.path, `{"mess`, c.length)
			synctest.Wait()
			if held := r.memory.Load(); held != c.held {
				t.Errorf("%s: %d bytes are held, want %d", c.path, held, c.held)
			}
			status, text, took := r.answer(conn, began)
			if status != c.status || !strings.Contains(text, c.code) || took != c.after {
				t.Errorf("%s, %d bytes: %d %s after %v, want %d %s after %v", c.path, c.length, status, text, took, c.status, c.code, c.after)
			}
			synctest.Wait()
			if r.memory.Load() != 0 || r.Open() != 0 || len(r.shares) != 0 {
				t.Errorf("%s: %d bytes, %d requests and %d shares remain", c.path, r.memory.Load(), r.Open(), len(r.shares))
			}
		}
		r.end(open, 0) // no slow request has ended it, or is in flight
	})
}

// TestSealDuringBody proves that the end of a session does not wait for the body of a call.
func TestSealDuringBody(t *testing.T) {
	t.Parallel()
	slowly(t, noCall, func(r *slowRig) {
		key := r.begin()
		began := time.Now()
		conn := r.send("/r/"+string(key)+"/v1/chat/completions", `{"mess`, 1000)
		synctest.Wait()
		if rec := r.end(key, 0); len(rec.Calls) != 0 {
			t.Errorf("recorded %+v", rec.Calls)
		}
		// The server does not wait for the rest of the body.
		if status, text, took := r.answer(conn, began); status != http.StatusGone || !strings.Contains(text, "after_seal") || took != 0 {
			t.Errorf("%d %s after %v", status, text, took)
		}
	})
}

const slowEvent = `data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1,2],"logprobs":{"content":[{"logprob":-1},{"logprob":-2}]}}],"prompt_token_ids":[7,8]}` + "\n\n"

// TestSessionShare proves that the request bodies of one session cannot fill the memory for all
// sessions.
func TestSessionShare(t *testing.T) {
	t.Parallel()
	slowly(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, func(r *slowRig) {
		r.limits.MemoryBytes, r.limits.ShareBytes = 1000, 250
		greedy, other := "/r/"+string(r.begin())+"/chat/completions", "/r/"+string(r.begin())+"/chat/completions"
		body := `{"messages":[]}` + strings.Repeat(" ", 85)
		first, second := r.send(greedy, "", 100), r.send(greedy, "", 100)
		synctest.Wait()
		for path, want := range map[string]int{greedy: http.StatusServiceUnavailable, other: http.StatusTeapot} {
			if status, text, _ := r.answer(r.send(path, body, 100), time.Now()); status != want {
				t.Errorf("%d %s, want %d", status, text, want)
			}
		}
		_ = first.Close()
		synctest.Wait()
		if status, text, _ := r.answer(r.send(greedy, body, 100), time.Now()); status != http.StatusTeapot {
			t.Errorf("after another call has ended: %d %s", status, text)
		}
		_ = second.Close()
	})
}

// TestSealUnread proves that the end of a session soon cancels a call whose client does not read the
// answer, and that the call is recorded.
func TestSealUnread(t *testing.T) {
	t.Parallel()
	const document = `{"choices":[{"message":{"content":"a"},"finish_reason":"stop","token_ids":[1,2]}],"prompt_token_ids":[7,8],"usage":{"prompt_tokens":2,"completion_tokens":2}}`
	for _, kind := range []string{"document", "stream", "comments"} {
		slowly(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			switch kind {
			case "document":
				_, _ = io.WriteString(w, document)
				return
			case "stream":
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, slowEvent+slowEvent)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}, func(r *slowRig) {
			if kind == "comments" {
				r.balance.engines[0].trial.able.Store(&ability{models: []string{"m"}, mode: modeWhole})
			}
			key := r.begin()
			body := fmt.Sprintf(`{"messages":[],"stream":%v}`, kind != "document")
			conn := r.send("/r/"+string(key)+"/v1/chat/completions", body, len(body))
			if lines := bufio.NewReader(conn); kind == "stream" { // reads the head
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = lines.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Minute) // meanwhile, the tap writes, or tries to
			calls := r.end(key, time.Second).Calls
			if len(calls) != 1 || calls[0].Cut != (kind != "document") || calls[0].Delivered || (calls[0].Output == nil) != (kind == "comments") {
				t.Errorf("%s: recorded %+v", kind, calls)
			}
			_ = conn.Close()
		})
	}
}

// TestEndWithoutClient proves that an end is completed even if its client disconnects, and that it
// can be repeated. An end whose body has not arrived changes nothing.
func TestEndWithoutClient(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		slowly(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(time.Hour):
				w.WriteHeader(http.StatusTeapot)
			case <-r.Context().Done():
			}
		}, func(r *slowRig) {
			key := r.begin()
			path := "/r/" + string(key)
			const call, end = `{"messages":[]}`, `{"reward":1}`
			agent := r.send(path+"/v1/chat/completions", call, len(call))
			path += fmt.Sprintf("/end?wait=%v", wait)
			half := r.send(path, end[:5], len(end))
			_ = half.Close()
			synctest.Wait()
			if x, _ := r.store.Session(key); x == nil {
				t.Fatal("no session")
			} else if a, err := x.Admit(nil); err != nil {
				t.Fatalf("half an end: %v", err)
			} else {
				a.Done()
			}
			began := time.Now()
			client := r.send(path, end, len(end))
			_ = client.Close()
			status, text, took := r.answer(agent, began)
			if want := map[bool]int{false: http.StatusGone, true: http.StatusTeapot}[wait]; status != want || wait != (took == time.Hour) {
				t.Errorf("wait %v: the call got %d %s after %v", wait, status, text, took)
			}
			synctest.Wait()
			rec, err := r.store.Read(key.ID())
			if err != nil || rec.End == nil || *rec.End.Reward != 1 || len(rec.Calls) != 1 {
				t.Fatalf("wait %v: %+v, %v", wait, rec, err)
			}
			time.Sleep(time.Second)
			var again session.End
			status, text, _ = r.answer(r.send(path, end, len(end)), time.Now())
			if err := json.Unmarshal([]byte(text), &again); err != nil || status != http.StatusOK || !again.At.Equal(rec.End.At) || again.Digest != rec.End.Digest {
				t.Errorf("wait %v: the repeated end got %d %s, the first %+v", wait, status, text, rec.End)
			}
			if s := r.Stats(); s.Sessions.Ended != 1 {
				t.Errorf("wait %v: %+v", wait, s.Sessions)
			}
		})
	}
}
