package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// TestGateTapMemory: what a tap has resident for a thousand calls that wait for their engine,
// over what it has when it is idle, is no more than so much for each, also after the calls of
// several waves. Each is the next one of its chain, with some 8,000 ids; the spool's memory of
// them is counted too.
func TestGateTapMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 seconds: run without -short")
	}
	if raceEnabled || runtime.GOOS != "linux" {
		t.Skip("reads /proc, which is Linux's; and the race detector takes memory of its own")
	}
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("GOGC or GOMEMLIMIT is set")
	}
	// Measured: 105 to 116 KB, and 350 KB before prompts were packed. How much garbage there
	// is when one looks depends on the machine.
	const calls, waves, most = 1000, 4, 160 << 10
	r := rand.New(rand.NewPCG(14, 8))
	list := func(n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, ",%d", r.IntN(151_936))
		}
		return b.String()
	}
	waiting, release := make(chan struct{}, calls), make(chan struct{})
	var mu sync.Mutex
	gate := func() chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return release
	}
	output := list(400)[1:]
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			held := gate()
			waiting <- struct{}{}
			<-held
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"output_ids":[`+output+`],"meta_info":{"completion_tokens":400}}`)
	}))
	defer e.Close()
	p := startTap(t, "--engine", e.URL)
	idle := resident(p.cmd.Process.Pid)
	system := list(2000)[1:]
	prompts := make([]string, calls)
	for i := range prompts {
		prompts[i] = system + list(5000)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: calls}}
	defer client.CloseIdleConnections()
	for wave := range waves {
		var all sync.WaitGroup
		for i := range prompts {
			all.Go(func() {
				res, err := client.Post(p.url+"/generate", "application/json", strings.NewReader(`{"input_ids":[`+prompts[i]+`],"sampling_params":{"top_p":0.9}}`))
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 400 {
					t.Errorf("%d bytes, %v", n, err)
				}
			})
		}
		for range calls {
			select {
			case <-waiting:
			case <-time.After(time.Minute):
				t.Fatal("a call did not come")
			}
		}
		each := (resident(p.cmd.Process.Pid) - idle) / calls
		t.Logf("wave %d: %d KB for each open call", wave, each>>10)
		if each > most {
			t.Errorf("wave %d: an open call takes %d bytes, want ≤ %d", wave, each, most)
		}
		mu.Lock()
		old := release
		release = make(chan struct{})
		mu.Unlock()
		close(old)
		all.Wait()
		for i := range prompts {
			prompts[i] += "," + output + list(150)
		}
	}
	p.signal(t, os.Interrupt)
	p.ends(t, exit.OK)
	end := p.cmd.ProcessState
	t.Logf("%v of CPU for each call", (end.UserTime()+end.SystemTime())/(calls*waves))
}
