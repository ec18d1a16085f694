package letta_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

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
	request := &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("hi")}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var slows, fasts sync.WaitGroup
	send := func(wg *sync.WaitGroup, agent string) {
		wg.Go(func() {
			if _, err := client.Send(ctx, agent, request, "", new(tokenize.Reply)); err != nil {
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
