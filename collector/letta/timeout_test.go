package letta_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestTimeouts(t *testing.T) {
	t.Parallel()
	const head = `{"messages":[],"turns":[`
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		class   error
		after   time.Duration
	}{
		{"no answer", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, letta.ErrTimeout, letta.DefaultSendTimeout},
		{"stalled body", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Minute) // model time
			_, _ = io.WriteString(w, head)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, letta.ErrIdle, 11 * time.Minute},
		{"trickling body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, head)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(30 * time.Second):
				case <-r.Context().Done():
				}
			}
		}, letta.ErrTimeout, letta.DefaultSendTimeout},
		{"stalled refusal", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, letta.ErrServer, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lettatest.InBubble(t, test.handler, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
				t.Helper()
				start := time.Now()
				_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
				if !errors.Is(err, test.class) {
					t.Errorf("Send = %v, want %v", err, test.class)
				}
				if took := time.Since(start); took < test.after || took > test.after+31*time.Second {
					t.Errorf("took %v, want %v", took, test.after)
				}
			})
		})
	}
}

// TestRoomWaits checks that an answer does not time out while it waits for room.
func TestRoomWaits(t *testing.T) {
	t.Parallel()
	lettatest.InBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]}`)
	}, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		answer, err := c.SendWith(t.Context(), letta.SendOptions{
			AgentID: "agent-1", Request: hello(), Reply: func() *tokenize.Reply { return new(tokenize.Reply) },
			Room: func(context.Context, int64) error { time.Sleep(10 * letta.DefaultIdleBodyTimeout); return nil },
		})
		if err != nil || answer.StopReason != letta.StopEndTurn {
			t.Errorf("SendWith = %+v, %v", answer, err)
		}
	})
}

// TestCallersContext attributes the end of the caller's context to the caller, not the server.
func TestCallersContext(t *testing.T) {
	t.Parallel()
	stopping := errors.New("the run is stopping")
	lettatest.InBubble(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stopping) })
		_, err := c.Send(ctx, "agent-1", hello(), "", new(tokenize.Reply))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, stopping) || errors.Is(err, letta.ErrConnection) {
			t.Errorf("Send = %v, want cancelled with its cause", err)
		}
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		_, err = c.Send(ctx, "agent-1", hello(), "", new(tokenize.Reply))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, letta.ErrConnection) {
			t.Errorf("Send = %v, want the deadline of its caller", err)
		}
	})
}

// TestReadBytes checks that only as many answers are read at once as fit: two of eight, because
// an answer of unknown length counts as 1 MiB.
func TestReadBytes(t *testing.T) {
	t.Parallel()
	var gate chan struct{}
	var read, most atomic.Int32
	lettatest.InBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]`)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat(" ", 256<<10))
		_ = http.NewResponseController(w).Flush()
		// The write above returned only because the client reads the body.
		most.Store(max(most.Load(), read.Add(1)))
		<-gate
		read.Add(-1)
		_, _ = io.WriteString(w, `}`)
	}, letta.ClientConfig{ReadBytes: 2 << 20}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		gate = make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := read.Load(); got != 2 {
			t.Errorf("%d answers are being read at once, want 2", got)
		}
		close(gate)
		wg.Wait()
		if got := most.Load(); got != 2 {
			t.Errorf("at most %d answers were read at once, want 2", got)
		}
	})
}

// TestSlowBodies checks that ten slow answers do not block ninety others within ReadBytes.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	const slow, fast = 10, 90
	done := make(chan struct{}) // closed after the fast answers were read
	body := `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]` + strings.Repeat(" ", 300<<10) + `}`
	var begun sync.WaitGroup // slow answers that are half sent
	begun.Add(slow)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if strings.Contains(r.URL.Path, "slow") {
			_, _ = io.WriteString(w, body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()
			begun.Done()
			<-done
			_, _ = io.WriteString(w, body[len(body)/2:])
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	client := newClient(t, letta.ClientConfig{BaseURL: s.URL, IdleConns: slow + fast})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var slows, fasts sync.WaitGroup
	send := func(wg *sync.WaitGroup, agent string) {
		wg.Go(func() {
			if _, err := client.Send(ctx, agent, hello(), "", new(tokenize.Reply)); err != nil {
				t.Errorf("%s: %v", agent, err)
			}
		})
	}
	for range slow {
		send(&slows, "agent-slow")
	}
	begun.Wait()
	for range fast {
		send(&fasts, "agent-fast")
	}
	fasts.Wait()
	close(done)
	slows.Wait()
}
