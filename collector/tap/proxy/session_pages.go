package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// beginSession serves POST /r.
func (p *Proxy) beginSession(w http.ResponseWriter, r *http.Request) *refusal {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &refusal{http.StatusMethodNotAllowed, "bad_method", "POST " + prefix + " begins a session"}
	}
	var body struct {
		Task *session.Task `json:"task"`
	}
	if bad := p.decode(w, r, &body); bad != nil {
		return bad
	}
	if t := body.Task; t != nil {
		if bad := metadata(&t.Metadata); bad != nil {
			return bad
		}
	}
	if most := p.limits.Sessions; p.cfg.Sessions.Stats().Open >= most {
		return &refusal{http.StatusServiceUnavailable, "too_many_sessions", fmt.Sprintf("%d sessions are open; end some of them (POST %s/KEY/end)", most, prefix)}
	}
	key, err := p.cfg.Sessions.Begin(session.Head{Task: body.Task, Model: p.balance.engines[0].stats().Model})
	if err != nil {
		return refused(err)
	}
	p.count(func(s *Stats) { s.Sessions.Begun++ })
	return sendJSON(w, http.StatusCreated, map[string]string{"key": string(key), "id": key.ID(), "path": prefix + "/" + string(key)})
}

// endSession serves POST /r/KEY/end.
func (p *Proxy) endSession(w http.ResponseWriter, r *http.Request, x *store.Session) *refusal {
	var body struct {
		Reward    *float64        `json:"reward"`
		Metadata  json.RawMessage `json:"metadata"`
		FinalText *string         `json:"final_text"`
	}
	if bad := p.decode(w, r, &body); bad != nil {
		return bad
	}
	if bad := metadata(&body.Metadata); bad != nil {
		return bad
	}
	wait := r.URL.Query().Get("wait")
	if wait != "" && wait != "true" && wait != "false" {
		return &refusal{http.StatusBadRequest, "bad_request", "wait: want true or false"}
	}
	arrived := time.Now()
	// If the client disconnects, the end is completed nevertheless. Otherwise, the session would accept
	// no calls although it is not sealed.
	end, err := p.EndSession(context.WithoutCancel(r.Context()), x, session.End{Reward: body.Reward, Metadata: body.Metadata, FinalText: body.FinalText}, wait == "true")
	if err != nil {
		return refused(err)
	}
	if !end.At.Before(arrived) { // otherwise, the request repeats an earlier one
		p.count(func(s *Stats) { s.Sessions.Ended++ })
	}
	return sendJSON(w, http.StatusOK, end)
}

// EndSession seals a session of Config.Sessions like x.End, and frees what the proxy keeps for its
// calls. A program that has the store should use it, too.
func (p *Proxy) EndSession(ctx context.Context, x *store.Session, e session.End, wait bool) (session.End, error) {
	end, err := x.End(ctx, e, wait)
	if err == nil {
		p.turns.forget(x.ID())
	}
	return end, err
}

// metadata checks that metadata is an object, and sets null to nil.
func metadata(m *json.RawMessage) *refusal {
	switch text := bytes.TrimSpace(*m); {
	case len(text) == 0 || string(text) == "null":
		*m = nil
	case text[0] != '{':
		return &refusal{http.StatusBadRequest, "bad_request", "metadata: want an object"}
	}
	return nil
}

// ModelName is the name of the model that sessions list. A client can use any name, because the tap
// replaces it with the engine's own name, unless the engine lists a model with this name.
const ModelName = "policy"

// sessionPage serves the pages that clients read before their first call. No other GET request is
// forwarded, because some engines change their state on one.
func (p *Proxy) sessionPage(w http.ResponseWriter, r *http.Request, path string) *refusal {
	tokens := int64(0)
	model := strings.HasSuffix(path, "/models") || strings.HasSuffix(path, "/models/"+ModelName)
	if model || strings.HasSuffix(path, "/props") {
		var err error
		if tokens, err = p.tokens(r); err != nil {
			return &refusal{http.StatusBadGateway, "engine_unreachable", err.Error()}
		}
	}
	switch {
	case strings.HasSuffix(path, "/api/v0/models"): // LM Studio
		m := map[string]any{
			"id": ModelName, "object": "model", "type": "llm", "publisher": "rollout", "arch": "unknown", "compatibility_type": "unknown",
			"quantization": "none", "state": "loaded", "capabilities": []string{"tool_use"},
		}
		if tokens > 0 {
			m["max_context_length"], m["loaded_context_length"] = tokens, tokens
		}
		return sendJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{m}})
	case model:
		m := map[string]any{"id": ModelName, "object": "model", "created": 1700000000, "owned_by": "rollout"}
		if tokens > 0 {
			m["max_model_len"] = tokens
		}
		if strings.HasSuffix(path, "/"+ModelName) {
			return sendJSON(w, http.StatusOK, m)
		}
		return sendJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{m}})
	case strings.HasSuffix(path, "/props"): // llama.cpp
		return sendJSON(w, http.StatusOK, map[string]any{
			"model_alias": ModelName, "total_slots": 1, "default_generation_settings": map[string]any{"n_ctx": tokens},
		})
	case strings.HasSuffix(path, "/health"):
		return sendJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}
	return &refusal{http.StatusNotFound, "not_found", "a session serves GET …/models, and no other page of the engine"}
}

// tokens returns the smallest context length of the engines, or 0 if no engine states one. It
// returns an error if no engine's ability is known.
func (p *Proxy) tokens(r *http.Request) (least int64, err error) {
	known := false
	for _, e := range p.balance.engines {
		a := e.trial.able.Load()
		if a == nil && !known {
			a, err = p.able(r.Context(), e, nil)
		}
		if a == nil {
			continue
		}
		if known = true; a.tokens > 0 && (least == 0 || a.tokens < least) {
			least = a.tokens
		}
	}
	if known {
		return least, nil
	}
	return 0, err
}

// sendJSON sends an answer. It returns nil, as the handlers do that have sent an answer.
func sendJSON(w http.ResponseWriter, status int, v any) *refusal {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error means that the client disconnected
	return nil
}
