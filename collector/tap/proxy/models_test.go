package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An adapters engine lists models, of which the first is its own, and records which model each call
// gets. It refuses a model that it does not list. If the owner is sglang, a call gets an adapter only if
// its name follows a colon, and its own model otherwise.
type adapters struct {
	http.Handler
	owner  string
	mu     sync.Mutex
	models []string
	asked  []string
}

func (e *adapters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Method == http.MethodGet {
		var cards []map[string]any
		for _, m := range e.models {
			cards = append(cards, map[string]any{"id": m, "object": "model", "owned_by": e.owner})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": cards})
		return
	}
	body, _ := io.ReadAll(r.Body)
	var q struct{ Model string }
	_ = json.Unmarshal(body, &q) // the scripted engine refuses a body that is not JSON
	model := q.Model
	if e.owner == "sglang" {
		var ok bool
		if _, model, ok = strings.Cut(q.Model, ":"); !ok {
			model = e.models[0]
		}
	}
	if !slices.Contains(e.models, model) {
		w.WriteHeader(map[bool]int{true: http.StatusBadRequest, false: http.StatusNotFound}[e.owner == "sglang"])
		_, _ = io.WriteString(w, `{"error":{"message":"no such model"}}`)
		return
	}
	if !strings.Contains(string(body), `"content":"Hi"`) {
		e.asked = append(e.asked, model)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	e.Handler.ServeHTTP(w, r)
}

func (e *adapters) load(models ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.models = models
}

// got returns the models that the calls asked for.
func (e *adapters) got() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// TestSessionAdapters proves that a client that names an adapter gets this adapter or a refusal, also if
// adapters are loaded and unloaded while the engine runs.
func TestSessionAdapters(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"vllm", "sglang"} {
		t.Run(owner, func(t *testing.T) { testAdapters(t, owner) })
	}
}

func testAdapters(t *testing.T, owner string) {
	t.Helper()
	e := &adapters{Handler: newEngine(t), owner: owner, models: []string{"qwen3", "step-1"}}
	r := newSessionRig(t, proxy.Config{}, e)
	key := r.begin(t)
	var statuses []int
	for _, c := range []struct {
		name   string
		loaded []string
		asked  string // JSON
		want   string // the model that the engine gets; "": refused
	}{
		{"the tap's name", nil, `"policy"`, "qwen3"},
		{"no name", nil, `null`, "qwen3"},
		{"any name", nil, `"gpt-4"`, "qwen3"},
		{"the engine's name", nil, `"qwen3"`, "qwen3"},
		{"an adapter", nil, `"step-1"`, "step-1"},
		{"escaped", nil, `"step\u002d1"`, "step-1"},
		{"SGLang's form", nil, `"qwen3:step-1"`, "step-1"},
		{"SGLang's form with the tap's name", nil, `"policy:step-1"`, "step-1"},
		{"a tag", nil, `"qwen3:8b"`, "qwen3"},
		{"a tag of the tap's name", nil, `"policy:latest"`, "qwen3"},
		{"a prefix", nil, `"step-"`, "qwen3"},
		{"loaded later", []string{"qwen3", "step-1", "step-2"}, `"step-2"`, "step-2"},
		{"unloaded, not yet noticed", []string{"qwen3", "step-1"}, `"step-2"`, ""},
		{"loaded again", []string{"qwen3", "step-2"}, `"step-2"`, "step-2"},
		{"another model", []string{"qwen4", "step-3"}, `"step-3"`, "step-3"},
		{"unloaded", nil, `"step-2"`, ""},
		{"unloaded, SGLang's form", nil, `"policy:step-2"`, ""},
		{"any name again", nil, `"gpt-4o"`, "qwen4"},
	} {
		if c.loaded != nil {
			e.load(c.loaded...)
		}
		body := strings.Replace(chatBody("single", false, ""), `"policy"`, c.asked, 1)
		before := e.got()
		status, text := r.call(t, key, body)
		got := e.got()[len(before):]
		statuses = append(statuses, status)
		switch {
		case c.want == "":
			if status != http.StatusNotFound && status != http.StatusBadRequest || len(got) > 0 {
				t.Errorf("%s: %d %s", c.name, status, text)
			}
		case status != http.StatusOK || !slices.Equal(got, []string{c.want}):
			t.Errorf("%s: the engine gets %q, want %q: %d %s", c.name, got, c.want, status, text)
		case c.asked != "null" && !strings.Contains(text, `"model":`+c.asked):
			t.Errorf("%s: the client sees another model: %s", c.name, text)
		}
	}
	for i, c := range r.record(t, key).Calls {
		if c.Status != statuses[i] {
			t.Errorf("call %d: the recorded status is %d, want %d", i, c.Status, statuses[i])
		}
		if c.Delivered != (c.Status == http.StatusOK) || (c.Status == http.StatusOK) != (len(c.Output) > 0) {
			t.Errorf("call %d: recorded %+v", i, c)
		}
	}
}

// TestSessionAdapterEngine proves that a call that names an adapter goes to the engine that has it.
func TestSessionAdapterEngine(t *testing.T) {
	t.Parallel()
	a := &adapters{Handler: newEngine(t), models: []string{"qwen3"}}
	b := &adapters{Handler: newEngine(t), models: []string{"qwen3", "step-1"}}
	r := newSessionRig(t, proxy.Config{}, a, b)
	if err := r.proxy.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(chatBody("single", true, ""), "policy", "step-1", 1)
	for range 4 {
		key := r.begin(t)
		if status, text := r.call(t, key, body); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	if len(a.got()) > 0 || !slices.Equal(b.got(), []string{"step-1", "step-1", "step-1", "step-1"}) {
		t.Errorf("the engines got %v and %v", a.got(), b.got())
	}
}

// TestSessionAdapterRefused proves that a call gets a status that clients repeat if one engine cannot be
// reached and another one refuses the model.
func TestSessionAdapterRefused(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	e := &adapters{Handler: newEngine(t), models: []string{"qwen3", "step-1"}}
	r := newSessionRig(t, proxy.Config{Engines: []*url.URL{parse(t, gone.URL)}}, e)
	ask := func(key session.Key, model string) (int, string) {
		return r.call(t, key, strings.Replace(chatBody("single", true, ""), "policy", model, 1))
	}
	for _, model := range []string{"step-1", "step-2"} {
		e.load("qwen3", model)
		if status, text := ask(r.begin(t), model); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	for range 2 {
		key := r.begin(t)
		status, text := ask(key, "step-1")
		if status != http.StatusBadGateway || len(e.got()) > 2 {
			t.Errorf("%d %s", status, text)
		}
		if c := r.record(t, key).Calls[0]; c.Status != 0 {
			t.Errorf("recorded %+v", c)
		}
	}
}
