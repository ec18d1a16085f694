package letta_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
)

type spanKey struct{}

// TestObserve checks that every request is observed once and has the injected headers.
func TestObserve(t *testing.T) {
	t.Parallel()
	cfg := lettasim.Config{Faults: lettasim.Faults{
		{Kind: lettasim.Truncated, Aim: []lettasim.Aim{{Task: "cut", Sample: -1}}},
		{Kind: lettasim.TooMany, Aim: []lettasim.Aim{{Task: "busy", Sample: -1}}, After: 89 * time.Second},
	}}
	var mu sync.Mutex
	var seen []letta.Exchange
	var parents []string
	cfg.InputIDs = true
	sim := must(lettasim.New(cfg))(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		parents = append(parents, r.Header.Get("Traceparent")+" "+r.Header.Get("User-Agent"))
		mu.Unlock()
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	client := newClient(t, letta.ClientConfig{
		BaseURL: web.URL, ReadRetries: -1, Version: "test",
		Inject: func(ctx context.Context, h http.Header) {
			op, _ := ctx.Value(spanKey{}).(string)
			h.Set("Traceparent", "00-"+strings.ReplaceAll(op, " ", "_"))
			h.Set("User-Agent", "other")
		},
		Observe: func(ctx context.Context, op, _ string) (context.Context, func(letta.Exchange)) {
			return context.WithValue(ctx, spanKey{}, op), func(x letta.Exchange) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, x)
			}
		},
	})
	for _, test := range []struct {
		task  string
		code  int
		want  error
		delay time.Duration
	}{
		{"good", 200, nil, 0},
		{"cut", 200, letta.ErrConnection, 0},
		{"busy", 429, letta.ErrBusy, 89 * time.Second},
	} {
		state := must(client.CreateAgent(t.Context(), []byte(`{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":"`+test.task+`"}}}`)))(t)
		_, err := client.Send(t.Context(), state.ID, &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("Add 1 and 2.")}}, "", new(tokenize.Reply))
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.task, err)
		}
		mu.Lock()
		x := seen[len(seen)-1]
		mu.Unlock()
		if x.Op != "send" || x.Method != "POST" || x.Code != test.code || x.Bytes == 0 || x.Duration <= 0 || x.Started.IsZero() || !errors.Is(err, x.Err) {
			t.Errorf("%s: %+v", test.task, x)
		}
		if e := (*letta.APIError)(nil); test.delay > 0 && (!errors.As(err, &e) || e.RetryAfter != test.delay) {
			t.Errorf("%s: retry after %v", test.task, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"create_agent", "send", "create_agent", "send", "create_agent", "send"}
	if len(seen) != len(want) || len(parents) != len(want) {
		t.Fatalf("%d exchanges of %d requests, want %d", len(seen), len(parents), len(want))
	}
	for i, op := range want {
		if parents[i] != "00-"+op+" rollout/test" {
			t.Errorf("request %d has %q, want %q and our own User-Agent", i, parents[i], "00-"+op)
		}
	}
}

// TestNoSuchHost checks that a name that does not resolve is a connection failure that names it.
func TestNoSuchHost(t *testing.T) {
	t.Parallel()
	c := newClient(t, letta.ClientConfig{
		BaseURL: "http://letta.invalid:8283", ReadRetries: -1,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		},
	})
	_, err := c.Health(t.Context())
	if !errors.Is(err, letta.ErrConnection) || !strings.Contains(err.Error(), `cannot resolve host name "letta.invalid"`) {
		t.Errorf("%v", err)
	}
}
