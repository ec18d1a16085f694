package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A lostConnection is a client's connection that breaks when the last part of an answer is written.
// Before that, it calls written.
type lostConnection struct {
	*httptest.ResponseRecorder
	last    string
	broken  bool
	written func()
}

func (w *lostConnection) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.last) {
		w.written()
		w.broken = true
		return 0, io.ErrClosedPipe
	}
	return w.ResponseRecorder.Write(b)
}

func (w *lostConnection) FlushError() error {
	if w.broken {
		return io.ErrClosedPipe
	}
	return nil
}

type writerFunc func(text string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// TestDelivered proves that an answer counts as delivered only if its last part was written to the
// client, and that the call is recorded before that.
func TestDelivered(t *testing.T) {
	t.Parallel()
	const whole = `{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	const stream = `data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n"
	for _, c := range []struct {
		name              string
		mode              mode
		streamed          bool
		last              string // the part of the answer with which the connection breaks
		gone, want, calls bool   // the client has disconnected; the answer is delivered; the call is recorded before the last part
	}{
		{"whole", modeBody, false, "none", false, true, true},
		{"whole, not written", modeBody, false, "Hi", false, false, true},
		{"whole, the client has disconnected", modeBody, false, "none", true, false, true},
		{"stream", modeBody, true, "none", false, true, true},
		{"stream, end not written", modeBody, true, "[DONE]", false, false, true},
		{"stream, text not written", modeBody, true, "Hi", false, false, false},
		{"stream from a whole answer", modeWhole, true, "none", false, true, true},
		{"stream from a whole answer, not written", modeWhole, true, "[DONE]", false, false, true},
	} {
		p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"stream":true`) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, stream)
				return
			}
			_, _ = io.WriteString(w, whole)
		})
		sessions := p.cfg.Sessions
		ctx, cancel := context.WithCancel(t.Context())
		p.cfg.Log = slog.New(slog.NewTextHandler(writerFunc(func(line string) {
			if c.gone && strings.Contains(line, "msg=call ") { // the call was recorded
				cancel()
			}
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
		p.balance.engines[0].trial.able.Store(&ability{models: []string{"m"}, mode: c.mode})
		body := `{"messages":[]}`
		if c.streamed {
			body = `{"messages":[],"stream":true}`
		}
		w := &lostConnection{ResponseRecorder: httptest.NewRecorder(), last: c.last}
		w.written = func() {
			if rec, err := sessions.Read(key.ID()); err != nil || len(rec.Calls) > 0 != c.calls || c.calls && rec.Calls[0].Delivered {
				t.Errorf("%s: before the last part: recorded %+v, %v", c.name, rec, err)
			}
		}
		x, err := sessions.Session(key)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if v := recover(); v != nil && v != http.ErrAbortHandler {
					panic(v)
				}
			}()
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
			if bad := p.chat(w, req, &target{session: x}); bad != nil {
				t.Errorf("%s: %v", c.name, bad)
			}
		}()
		cancel()
		rec, err := sessions.Read(key.ID())
		if err != nil || len(rec.Calls) != 1 || rec.Calls[0].Delivered != c.want {
			t.Errorf("%s: recorded %+v, %v", c.name, rec, err)
		}
	}
}
