package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestBrokenIsNotStale proves that a request is not sent again if the engine breaks the connection
// after a while.
func TestBrokenIsNotStale(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if asked.Add(1) == 1 {
			_, _ = io.WriteString(w, "{}") // so that the connection is reused
			return
		}
		time.Sleep(1100 * time.Millisecond) // the engine works
		panic(http.ErrAbortHandler)
	}))
	r.post(t, "/generate", `{"input_ids":[1]}`)
	if status, got := r.post(t, "/generate", `{"input_ids":[1]}`); status != http.StatusBadGateway {
		t.Errorf("the client got %d %s", status, got)
	}
	if n := asked.Load(); n != 2 || r.proxy.Stats().Stale != 0 {
		t.Errorf("the engine received %d requests, want 2", n)
	}
}

// TestMemoryBoundWithoutLength proves that bodies of unknown length count as held memory, and pass
// unread and complete beyond the limit.
func TestMemoryBoundWithoutLength(t *testing.T) {
	t.Parallel()
	engine := &answers{text: "{}"}
	r := newRig(t, proxy.Config{}, engine)
	r.proxy.Limits().MemoryBytes = 10_000
	text := fmt.Sprintf(`{"input_ids":[%s1]}`, strings.Repeat("1234,", 20_000))
	res, err := r.client.Post(r.url+"/generate", "application/json", struct{ io.Reader }{bytes.NewReader([]byte(text))})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := engine.got(); len(got) != 1 || got[0] != text {
		t.Errorf("the engine got %d bodies", len(got))
	}
	if s := r.proxy.Stats(); s.Unread["too_large"] != 1 || s.BodyBytes != 0 {
		t.Errorf("%+v", s)
	}
}
