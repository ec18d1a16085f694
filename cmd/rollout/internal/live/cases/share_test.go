//go:build linux

package cases_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// TestShare compares the CPU time of the program with Letta's for the same rollouts, and counts its
// requests for evidence.
func TestShare(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form of the tests: nothing is measured")
	}
	w := newWorld(t, Config{Servers: 4})
	talks := map[string]any{"system": "You are a careful assistant.", "conversation": true}
	for _, m := range []struct {
		name    string
		agent   map[string]any // its settings
		tasks   []task
		most    int    // requests for evidence per sample
		weights string // version of the engine
	}{
		{"one call", nil, []task{play("single", "single").uses()}, 2, "3"},
		{"one tool", nil, []task{play("tool", "tool").uses("add")}, 2, "3"},
		{"one tool, three messages", nil, []task{play("three-one", "tool", "single", "tool").uses("add")}, 2, "default"},
		{"one tool, three messages, numbered weights", nil, []task{play("three-numbered", "tool", "single", "tool").uses("add")}, 2, "3"},
		{"a conversation, one tool, two messages", talks, []task{play("talk", "tool", "single").uses("add")}, 2, "3"},
		{"five tools", nil, []task{play("many", "many")}, 3, "3"},
		{"five tools, three messages", nil, []task{play("three", "many", "think-tool", "single")}, 5, "3"},
	} {
		// The limit is two, plus a trace of each send with several tools, which shows their order.
		t.Run(m.name, func(t *testing.T) {
			w.engine.sim.SetVersion(m.weights)
			w.share(t, collection{name: m.name, agent: m.agent, tasks: m.tasks, samples: 12}, m.most)
		})
	}
	// The one-time work of a new process is not measured.
	t.Run("warm", func(t *testing.T) { w.pace(t, 4) })
	for _, servers := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) { w.pace(t, servers) })
	}
	// The claim of doctor --tune about a pool.
	w.l.Pool(true)
	w.l.Restart(t, 0)
	t.Run("one server with a pool", func(t *testing.T) { w.pace(t, 1) })
}

// pace measures the rollouts per second of a number of servers, and the distribution of CPU time.
// It only logs them, because they depend on the machine.
func (w *world) pace(t *testing.T, servers int) {
	t.Helper()
	c := collection{name: "pace", tasks: []task{play("single", "single").uses(), play("tool", "tool").uses("add")}, samples: 12 * servers}
	c.settings = map[string]any{"server": map[string]any{"max_in_flight": 8}}
	for _, u := range w.l.URLs[1:servers] {
		c.args = append(c.args, "--server", u)
	}
	args, _ := w.write(t, &c)
	of := func() (lettas, postgres time.Duration) {
		postgres = w.l.Postgres.CPU()
		return w.l.CPU() - postgres, postgres
	}
	lettas, postgres := of()
	began := time.Now()
	r := w.l.MustRun(t, exit.OK, w.program, args...)
	took := time.Since(began)
	lettasAfter, postgresAfter := of()
	n := float64(c.samples * len(c.tasks))
	each := func(d time.Duration) float64 { return d.Seconds() * 1000 / n }
	t.Logf("%d servers, %d in flight at each: %.2f rollouts/s; CPU per rollout: Letta with its tools %.0f ms, PostgreSQL %.0f ms, program %.1f ms",
		servers, 8, n/took.Seconds(), each(lettasAfter-lettas), each(postgresAfter-postgres), each(r.CPU))
}

// share collects, and compares the CPU time of the program with Letta's. Each sample must need at
// most this many requests for evidence.
func (w *world) share(t *testing.T, c collection, most int) {
	t.Helper()
	counted := newCounter(t, w.l.URLs[0])
	args, dir := w.write(t, &c)
	args[slices.Index(args, "--server")+1] = counted.url
	from, before := len(w.engine.calls()), w.l.CPU()
	r := w.l.MustRun(t, exit.OK, w.program, args...)
	letta := w.l.CPU() - before
	w.compare(t, &c, dir, from)
	n := float64(c.samples * len(c.tasks))
	evidence := float64(counted.evidence()) / n
	t.Logf("%s: CPU per rollout: Letta %.0f ms, program %.1f ms, which is %.1f %%; %.2f requests for evidence\n%s",
		c.name, letta.Seconds()*1000/n, r.CPU.Seconds()*1000/n, 100*r.CPU.Seconds()/letta.Seconds(), evidence, counted)
	if r.CPU.Seconds() > 0.05*letta.Seconds() {
		t.Errorf("the program took %v of CPU, Letta %v: more than 5 %%", r.CPU, letta)
	}
	// A trace that does not exist yet is requested again.
	if evidence > float64(most)+0.5 {
		t.Errorf("%.2f requests for evidence a sample, want %d", evidence, most)
	}
}

// A counter is a proxy in front of a server that counts requests by kind.
type counter struct {
	url string

	mu    sync.Mutex
	kinds map[string]int
}

var anID = regexp.MustCompile(`(agent|run|step|message|conv|tool)-[0-9a-f-]{36}`)

func newCounter(t *testing.T, server string) *counter {
	t.Helper()
	target := must(url.Parse(server))(t)
	n := &counter{kinds: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.kinds[r.In.Method+" "+anID.ReplaceAllString(r.In.URL.Path, "{$1}")]++
	}}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	n.url = s.URL
	return n
}

// evidence returns the number of requests for the server's record of a rollout, without those that
// create an agent.
func (n *counter) evidence() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := 0
	for kind, count := range n.kinds {
		if strings.HasPrefix(kind, http.MethodGet+" /v1/runs/{run}/") || strings.HasPrefix(kind, http.MethodGet+" /v1/steps/") ||
			strings.HasPrefix(kind, http.MethodGet+" /v1/conversations/") || kind == http.MethodGet+" /v1/agents/{agent}" {
			sum += count
		}
	}
	return sum
}

func (n *counter) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(n.kinds)) {
		fmt.Fprintf(&out, "  %4d %s\n", n.kinds[kind], kind)
	}
	return out.String()
}
