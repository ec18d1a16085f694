package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session/store"
)

// A lastWords body belongs to a client that disconnects as soon as it has sent the body.
type lastWords struct {
	*strings.Reader
	disconnect func()
}

func (b *lastWords) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Len() == 0 {
		b.disconnect()
	}
	return n, err
}

func (b *lastWords) Close() error { return nil }

// TestLastWords proves that a request counts if its whole body arrived, even if the client disconnected
// before the tap noticed the end of the body: an end seals its session, and a call is recorded.
func TestLastWords(t *testing.T) {
	t.Parallel()
	p, key := newTrialRig(t, noCall)
	p.balance.engines[0].trial.able.Store(&ability{models: []string{"m"}})
	post := func(path, body string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/r/"+string(key)+path, &lastWords{strings.NewReader(body), cancel})
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if ctx.Err() == nil || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: the client is still connected: %d %v", path, w.Code, w.Header())
		}
	}
	post("/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`)
	post("/end", `{"reward":1}`)
	rec, err := p.cfg.Sessions.Read(key.ID())
	if err != nil || rec.End == nil || *rec.End.Reward != 1 || len(rec.Calls) != 1 || rec.Calls[0].Delivered || len(rec.Calls[0].Messages) != 1 {
		t.Errorf("recorded %+v, %v", rec, err)
	}
}

// TestReceive proves how the end of the context changes the result of a read.
func TestReceive(t *testing.T) {
	t.Parallel()
	p := &Proxy{limits: defaultLimits()}
	for _, c := range []struct {
		name       string
		cause, err error // ctx ends during the read because of cause, unless it is nil; the result of the read
		want       *refusal
	}{
		{"in time", nil, nil, nil},
		{"disconnected after the body", context.Canceled, nil, nil},
		{"disconnected during the body", context.Canceled, io.ErrUnexpectedEOF, errIncomplete},
		{"cut", nil, io.ErrUnexpectedEOF, errIncomplete},
		{"sealed after the body", store.ErrSealed, nil, errCanceled},
		{"sealed during the body", store.ErrSealed, io.ErrUnexpectedEOF, errCanceled},
		{"refused", context.Canceled, errMemory, errMemory},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := httptest.NewRecorder()
		got := p.receive(ctx, w, func() error {
			if c.cause != nil {
				cancel(c.cause)
			}
			return c.err
		})
		cancel(nil)
		if got != c.want || (w.Header().Get("Connection") == "close") != (c.cause != nil) {
			t.Errorf("%s: %v, %v", c.name, got, w.Header())
		}
	}
}
