package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A sessionTap is a process of rollout tap --sessions that can be killed and started again at the
// same address.
type sessionTap struct {
	bin, address, spool string
	args                []string
	p                   *process
}

func newSessionTap(t *testing.T, bin, engine string, args ...string) *sessionTap {
	t.Helper()
	l := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	s := &sessionTap{bin: bin, address: l.Addr().String(), spool: filepath.Join(t.TempDir(), "spool")}
	s.args = append([]string{"tap", "--sessions", "--engine", engine, "--listen", s.address, "--spool", s.spool}, args...)
	noError(t, l.Close())
	s.start(t)
	t.Cleanup(func() { s.p.kill() })
	return s
}

func (s *sessionTap) url() string { return "http://" + s.address }

func (s *sessionTap) start(t *testing.T) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	s.p = startProgram(t, s.bin, nil, append(s.args, "--ready-file", ready)...)
	waitFor(t, "the tap", func() bool { _, err := os.Stat(ready); return err == nil || !s.p.alive() })
	if !s.p.alive() {
		t.Fatal(s.p.said())
	}
}

// A tapClient is a program with one session.
type tapClient struct {
	t       *testing.T
	tap     *sessionTap
	n       int
	key, id string
	mu      sync.Mutex
	acked   []string // the answers that it received whole
	ended   string   // the answer to end
}

// post sends a request until it is answered with one of the statuses, and returns the answer.
func (c *tapClient) post(path, body string, want ...int) (status int, text []byte) {
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Post(c.tap.url()+path, "application/json", strings.NewReader(body))
		if err != nil {
			continue // the tap is dead
		}
		text := new(strings.Builder)
		_, err = io.Copy(text, resp.Body)
		_ = resp.Body.Close()
		for _, status := range want {
			if err == nil && resp.StatusCode == status {
				return status, []byte(text.String())
			}
		}
		if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
			c.t.Errorf("POST %s: status %d, want %v: %s", strings.ReplaceAll(path, c.key, "KEY"), resp.StatusCode, want, text)
			return resp.StatusCode, nil
		}
	}
	c.t.Errorf("session %d: no answer for two minutes", c.n)
	return 0, nil
}

// run begins a session, runs an agent in it, and seals it.
func (c *tapClient) run(prompt string) {
	task := must(json.Marshal(map[string]any{"task": map[string]string{"id": fmt.Sprintf("t%d", c.n), "prompt": prompt}}))(c.t)
	var begun struct{ Key, ID string }
	_, text := c.post("/r", string(task), http.StatusCreated)
	if err := json.Unmarshal(text, &begun); err != nil {
		c.t.Errorf("session %d: %v: %s", c.n, err, text)
		return
	}
	c.key, c.id = begun.Key, begun.ID
	k := &talker{url: c.tap.url() + "/r/" + c.key, key: c.key, client: &http.Client{Timeout: time.Minute}, retries: 3000, pause: 20 * time.Millisecond}
	k.answered = func(m message) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.acked = append(c.acked, m.identity())
	}
	if _, err := k.run(prompt); err != nil {
		c.t.Errorf("session %d: %v", c.n, err)
		return
	}
	_, text = c.post("/r/"+c.key+"/end", c.end(), http.StatusOK)
	c.ended = string(text)
}

func (c *tapClient) end() string { return fmt.Sprintf(`{"reward":%d,"metadata":{"n":%[1]d}}`, c.n) }

// A tap that records sessions is killed at random moments while agents work and others collect its
// sessions, over HTTP and from its folder. After each restart the same keys work. A sealed session
// stays sealed. No answer that an agent received is lost. Each collection gets each session once.
func TestKillTapSessions(t *testing.T) {
	t.Parallel()
	kills, bin := killsOf(t, 12)
	if testing.Short() {
		kills = 4
	}
	r := randomOf(t)
	engine, gate, url := newHarnessEngine(t, enginesim.DialectVLLM)
	gate.latency = func() time.Duration { return time.Duration(5+rand.IntN(60)) * time.Millisecond }
	tap := newSessionTap(t, bin, url)

	collect := func(from string) (dir string, p *process) {
		dir = filepath.Join(t.TempDir(), "run")
		p = startProgram(t, bin, nil, "collect", "--from-sessions", from, "--follow", "--json", "--out", dir, "--fail-on-error", "100%", "--reward", "none", "--max-in-flight", "4")
		waitFor(t, "the run", func() bool { return runfolder.Exists(dir) || !p.alive() })
		return dir, p
	}
	remoteDir, remote := collect(tap.url())
	folderDir, folder := collect(tap.spool)

	// Four agents at a time, until there were enough kills.
	var enough atomic.Bool
	var clients []*tapClient
	var mu sync.Mutex
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() {
			for !enough.Load() {
				mu.Lock()
				c := &tapClient{t: t, tap: tap, n: len(clients) + 1}
				clients = append(clients, c)
				mu.Unlock()
				c.run(agentPrompts(c.n)[c.n-1])
			}
		})
	}
	for range kills {
		before := gate.count()
		waitFor(t, "a call", func() bool { return gate.count() > before+r.IntN(8) })
		time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond)
		tap.p.kill()
		if said := tap.p.said(); strings.Contains(said, "panic:") || strings.Contains(said, "fatal error:") {
			t.Fatal(said)
		}
		tap.start(t)
	}
	enough.Store(true)
	agents.Wait()
	if t.Failed() {
		t.Log(tap.p.said())
		return
	}

	tap.p.kill()
	source := must(store.OpenFolder(filepath.Join(tap.spool, runfolder.SessionsDir)))(t)
	tap.start(t)
	acked := 0
	for _, c := range clients {
		// It stays sealed, and the end can be repeated.
		c.post("/r/"+c.key+"/v1/chat/completions", `{"model":"policy","messages":[{"role":"user","content":"More."}]}`, http.StatusGone)
		if _, text := c.post("/r/"+c.key+"/end", c.end(), http.StatusOK); string(text) != c.ended {
			t.Errorf("session %d: the repeated end returned %s, the first %s", c.n, text, c.ended)
		}
		c.post("/r/"+c.key+"/end", `{"reward":-1}`, http.StatusConflict)
		record := must(source.Read(t.Context(), c.id))(t)
		recorded := map[string]int{}
		for _, call := range record.Calls {
			var m message
			if json.Unmarshal(call.Answer, &m) == nil {
				recorded[m.identity()]++
			}
		}
		for _, answer := range c.acked {
			if recorded[answer]--; recorded[answer] < 0 {
				t.Errorf("session %d: an answer that the agent received is not in the record of %d calls: %s", c.n, len(record.Calls), answer)
			}
		}
		acked += len(c.acked)
	}
	for name, run := range map[string]struct {
		dir string
		p   *process
	}{"over HTTP": {remoteDir, remote}, "from the folder": {folderDir, folder}} {
		waitFor(t, "all sessions "+name, func() bool { return len(journaledDone(t, run.dir)) >= len(clients) || !run.p.alive() })
		noError(t, run.p.cmd.Process.Signal(os.Interrupt))
		if code := run.p.wait(t, time.Minute); code != exit.OK && code != exit.Interrupted {
			t.Errorf("%s: exit code %d\n%s", name, code, run.p.said())
		}
		got := verified(t, run.dir)
		if keys := got.once(t); len(keys) != len(clients) || len(got.rows) != len(clients) {
			t.Errorf("%s: %d sessions, %d have rows, want %d\n%s", name, len(keys), len(got.rows), len(clients), run.p.said())
		}
		checkTrained(t, got, engine.Calls())
	}
	t.Logf("%d sessions, %d kills, %d calls, %d answers received", len(clients), kills, gate.count(), acked)
}

// journaledDone returns the keys of the samples that a run reports as done.
func journaledDone(t *testing.T, dir string) map[string]bool {
	t.Helper()
	done := map[string]bool{}
	reportedDone(t, committedKeys(t, dir), dir, done)
	return done
}
