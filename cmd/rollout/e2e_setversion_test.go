package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// streamHere runs collect --stream in this process. c controls it, and ended receives its exit
// code.
func streamHere(t *testing.T, url, dir string, flags ...string) (c *ctl.Client, ended <-chan int) {
	t.Helper()
	stdin, _ := io.Pipe() // its end would end the whole process
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), append([]string{
			"collect", "--stream", "--attached", "--server", url, "--model", simModel,
			"--out", dir, "--preflight", "connect", "--quiet",
		}, flags...), stdin, io.Discard, t.Output(), func(string) string { return "" })
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := ctl.Dial(t.Context(), dir)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c, code
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A row has version N if its send began and ended while N was set. It has no version if set-version
// was called in between, or not yet.
func TestSetVersionOfRows(t *testing.T) {
	t.Parallel()
	// Every message waits at the server until the test lets it pass.
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
	c, ended := streamHere(t, url, dir)
	do := func(r ctl.Request) {
		t.Helper()
		if err := c.Do(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	set := func(version int32) { do(ctl.Request{Op: ctl.OpSetVersion, Version: &version}) }
	// send collects one sample and calls during while its message is at the server.
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
			case <-arrived: // another message of the same sample
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	send("early", none)
	send("late", func() { set(1) })
	send("one", none)
	send("again", func() { set(1) }) // the same version
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
	if info, err := runfolder.Read(dir); err != nil || info.VersionsSource() != "set-version" {
		t.Errorf("the run's versions come of %q, %v", info.VersionsSource(), err)
	}
}

// Versions of a page pace a run like set-version does. A late page never lowers a version that the
// trainer set.
func TestPagePaces(t *testing.T) {
	t.Parallel()
	url := serve(t, newSim(t, lettasim.Config{InputIDs: true}).HTTPServer())
	var says, asked atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, says.Load())
		asked.Add(1)
	}))
	defer page.Close()
	says.Store(3)
	dir := filepath.Join(t.TempDir(), "run")
	c, ended := streamHere(t, url, dir, "--policy-version", page.URL, "--one-engine", "--max-lag", "1")
	version := func() (v int32) {
		t.Helper()
		var s ctl.Status
		if err := c.Do(ctl.Request{Op: ctl.OpStatus}, &s); err != nil {
			t.Fatal(err)
		}
		if v = -1; s.Version != nil {
			v = *s.Version
		}
		return v
	}
	until := func(done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the version is %d, and the page was asked %d times", version(), asked.Load())
			}
		}
	}
	until(func() bool { return version() == 3 })
	says.Store(4)
	until(func() bool { return version() == 4 })
	nine := int32(9)
	if err := c.Do(ctl.Request{Op: ctl.OpSetVersion, Version: &nine}, nil); err != nil {
		t.Fatal(err)
	}
	says.Store(5)
	before := asked.Load()
	until(func() bool { return asked.Load() > before+2 }) // the first answer of 5 was handled
	if v := version(); v != 9 {
		t.Errorf("the version is %d after the page came late, want 9", v)
	}
	if err := c.Do(ctl.Request{Op: ctl.OpDrain}, nil); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exit.OK {
		t.Errorf("exit code %d", code)
	}
	if info, err := runfolder.Read(dir); err != nil || info.VersionsSource() != "trace,url" {
		t.Errorf("the run's versions come of %q, %v", info.VersionsSource(), err)
	}
}

// With --unclaimed, a claimed version is ignored, because the trainer gave an earlier process
// another. A page of versions is still used.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	url := serve(t, newSim(t, lettasim.Config{InputIDs: true, NoTraces: true}).HTTPServer())
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, 6) }))
	defer page.Close()
	dir := filepath.Join(t.TempDir(), "run")
	for _, test := range []struct {
		claimed, want string
		flags         []string
	}{
		{"5", "[5 5]", nil},
		{"5", "[none]", []string{"--unclaimed"}},
		{page.URL, "[6 6]", []string{"--unclaimed", "--one-engine"}},
	} {
		c, ended := streamHere(t, url, dir, append(test.flags, "--resume", "--policy-version", test.claimed)...)
		task := json.RawMessage(fmt.Sprintf(`{"id":"%s%d","prompt":"What is 2+2?"}`, test.want, len(test.flags)))
		for _, r := range []ctl.Request{{Op: ctl.OpTask, Task: task}, {Op: ctl.OpDrain}} {
			if err := c.Do(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		if code := <-ended; code != exit.OK {
			t.Fatalf("%v: exit code %d", test.flags, code)
		}
	}
	for id, rows := range readDataset(t, dir).rows {
		got := "[none]"
		if r := rows[0]; r.PolicyVersionMin != nil {
			got = fmt.Sprintf("[%d %d]", *r.PolicyVersionMin, *r.PolicyVersionMax)
		}
		if !strings.HasPrefix(id.task, got) {
			t.Errorf("task %s: the version is %s", id.task, got)
		}
	}
}

func none() {}
