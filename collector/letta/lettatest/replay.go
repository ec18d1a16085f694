package lettatest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A Replay is a server that replays one recording. After the last recorded send, it answers sends
// with 500.
type Replay struct {
	*Recording
	t  *testing.T
	mu sync.Mutex

	// Version is the version that the health route reports.
	Version string
	// Made is the agent that requests to create, get or patch an agent return.
	Made map[string]any
	// Requests lists the method and path of each request, in order.
	Requests []string
	// Bodies contains the body of each send. Tagged contains the log id of each send.
	Bodies []json.RawMessage
	Tagged []string
	// Created is the body of the last request that created an agent.
	Created map[string]any
	// Sends counts the replayed sends. Deleted counts the requests to delete an agent.
	Sends, Deleted int
	// Override contains handlers that answer requests instead of the recording, by method and path.
	Override map[string]http.HandlerFunc
}

// NewReplay starts a server that replays the recording with this name. It also returns a client for
// the server.
func NewReplay(t *testing.T, name string) (*Replay, *letta.Client) {
	t.Helper()
	p := &Replay{Recording: Read(t, name), t: t, Version: "0.16.7", Override: map[string]http.HandlerFunc{}}
	if err := json.Unmarshal(p.Agent, &p.Made); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	c, err := letta.NewClient(letta.ClientConfig{BaseURL: s.URL, ReadRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return p, c
}

// ServeHTTP implements http.Handler.
func (p *Replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Requests = append(p.Requests, r.Method+" "+r.URL.Path)
	give := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	if h := p.Override[r.Method+" "+r.URL.Path]; h != nil {
		h(w, r)
		return
	}
	path := r.URL.Path
	switch {
	case path == "/v1/health/":
		give(map[string]string{"version": p.Version, "status": "ok"})
	case path == "/v1/models/":
		give([]map[string]string{{"handle": "sglang//models/qwen3"}, {"handle": "openai/gpt-4o"}})
	case r.Method == http.MethodPost && path == "/v1/agents/":
		if err := json.Unmarshal(body, &p.Created); err != nil {
			p.t.Errorf("create body: %v", err)
		}
		give(p.Made)
	case r.Method == http.MethodPost && path == "/v1/agents/import":
		p.Created = map[string]any{"form": string(body)}
		give(map[string][]string{"agent_ids": {fmt.Sprint(p.Made["id"])}})
	case r.Method == http.MethodPost && path == "/v1/conversations/":
		give(p.Conversation)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/messages"):
		p.Bodies = append(p.Bodies, body)
		p.Tagged = append(p.Tagged, r.Header.Get("x-api-request-log-id"))
		if p.Sends >= len(p.Exchanges) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		e := p.Exchanges[p.Sends]
		p.Sends++
		w.WriteHeader(e.Response.Status)
		_, _ = w.Write(e.Response.Body)
	case strings.HasSuffix(path, "/messages/cancel"):
		w.WriteHeader(http.StatusConflict)
	case strings.HasPrefix(path, "/v1/agents/") && r.Method == http.MethodPatch:
		var patch map[string]any
		_ = json.Unmarshal(body, &patch)
		maps.Copy(p.Made, patch)
		give(p.Made)
	case strings.HasPrefix(path, "/v1/agents/") && r.Method == http.MethodDelete:
		p.Deleted++
		give(map[string]string{"message": "deleted"})
	case strings.HasPrefix(path, "/v1/agents/"):
		give(p.Made)
	case strings.HasPrefix(path, "/v1/messages/"):
		give(p.System)
	case path == "/v1/runs/":
		var runs []json.RawMessage
		for _, e := range p.Exchanges[:p.Sends] {
			for _, run := range e.Runs {
				runs = append(runs, run.Run)
			}
		}
		query := r.URL.Query()
		if query.Get("order") != "asc" {
			slices.Reverse(runs)
		}
		// As on the real server, the cursors "before" and "after" are swapped.
		is := func(cursor string) func(json.RawMessage) bool {
			return func(run json.RawMessage) bool { return idOf(run) == query.Get(cursor) }
		}
		if i := slices.IndexFunc(runs, is("before")); i >= 0 {
			runs = runs[i+1:]
		}
		if i := slices.IndexFunc(runs, is("after")); i >= 0 {
			runs = runs[:i]
		}
		if query.Get("limit") == "1" && len(runs) > 1 {
			runs = runs[:1]
		}
		give(runs)
	case path == "/v1/steps/":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"detail":"Argument order does not match type typing.Optional[str]; is False of type <class 'bool'>"}`)
	default:
		if v := p.object(path); v != nil {
			give(v)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"detail":"NOT_FOUND: %s"}`, path)
	}
}

// object returns the recorded answer for the path of a run or a step, or nil.
func (p *Replay) object(path string) any {
	for _, e := range p.Exchanges {
		for _, run := range e.Runs {
			at := "/v1/runs/" + idOf(run.Run)
			found := map[string]any{at: run.Run, at + "/steps": run.Steps, at + "/messages": run.Messages}
			for i, s := range run.Steps {
				found["/v1/steps/"+idOf(s)] = s
				if i < len(run.Traces) {
					found["/v1/steps/"+idOf(s)+"/trace"] = run.Traces[i]
				}
			}
			if v := found[path]; v != nil {
				return v
			}
		}
	}
	return nil
}

func idOf(object []byte) string {
	var head struct{ ID string }
	_ = json.Unmarshal(object, &head) // cannot fail, because recordings are valid JSON
	return head.ID
}

// Count returns the number of requests whose "METHOD PATH" begins with request.
func (p *Replay) Count(request string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.Requests {
		if strings.HasPrefix(r, request) {
			n++
		}
	}
	return n
}
