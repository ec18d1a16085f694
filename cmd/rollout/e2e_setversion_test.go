package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A row has version N where its send began and ended while N was set, and no version where
// set-version was called in between; so it is before the first set-version.
func TestSetVersionOfRows(t *testing.T) {
	t.Parallel()
	// Every message waits in the gate until the test lets it pass.
	arrived, pass := make(chan struct{}, 16), make(chan struct{})
	sim := newSim(t, lettasim.Config{InputIDs: true, NoTraces: true}).HTTPServer()
	inner := sim.Handler
	sim.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/messages") {
			arrived <- struct{}{}
			select {
			case <-pass:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	})
	url := serve(t, sim)
	dir := filepath.Join(t.TempDir(), "run")
	stdin, _ := io.Pipe() // the end of which would end the whole process
	ended := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		ended <- run(ctx, []string{
			"collect", "--stream", "--attached", "--server", url, "--model", simModel,
			"--out", dir, "--preflight", "connect", "--quiet",
		}, stdin, io.Discard, t.Output(), func(string) string { return "" })
	}()
	var c *ctl.Client
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var err error
		if c, err = ctl.Dial(t.Context(), dir); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	do := func(r ctl.Request) {
		t.Helper()
		if err := c.Do(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	set := func(version int32) { do(ctl.Request{Op: ctl.OpSetVersion, Version: &version}) }
	// send collects one sample, and calls during while its message is at the server.
	send := func(task string, during func()) {
		t.Helper()
		do(ctl.Request{Op: ctl.OpTask, Task: json.RawMessage(fmt.Sprintf(`{"id":%q,"prompt":"What is 2+2?"}`, task))})
		<-arrived
		during()
		for {
			var s ctl.Status
			if err := c.Do(ctl.Request{Op: ctl.OpStatus}, &s); err != nil {
				t.Fatal(err)
			}
			if s.Remaining == 0 {
				return
			}
			select {
			case pass <- struct{}{}:
			case <-arrived: // a further message of the same sample
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	send("early", none)
	send("late", func() { set(1) })
	send("one", none)
	send("again", func() { set(1) }) // it is the same version
	send("over", func() { set(2) })
	send("back", func() { set(1); set(2) })
	send("two", none)
	do(ctl.Request{Op: ctl.OpDrain})
	select {
	case code := <-ended:
		if code != exit.OK {
			t.Fatalf("exit code %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the run does not end")
	}
	got := map[string]string{}
	for id, rows := range readDataset(t, dir).rows {
		got[id.task] = "none"
		if r := rows[0]; r.PolicyVersionMin != nil {
			got[id.task] = fmt.Sprint(*r.PolicyVersionMin, *r.PolicyVersionMax)
		} else if r.Versions != nil {
			got[id.task] = fmt.Sprint(r.Versions)
		}
	}
	want := map[string]string{"early": "none", "late": "none", "one": "1 1", "again": "1 1", "over": "none", "back": "none", "two": "2 2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the rows have versions %v, want %v", got, want)
	}
	if info, err := runfolder.Read(dir); err != nil || info.VersionsSource() != "flag" {
		t.Errorf("the run's versions come of %q, %v", info.VersionsSource(), err)
	}
}

func none() {}
