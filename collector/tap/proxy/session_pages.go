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
)

// beginSession serves POST /r.
func (p *Proxy) beginSession(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		(&refusal{http.StatusMethodNotAllowed, "bad_method", "POST " + prefix + " begins a session"}).send(w)
		return
	}
	var body struct {
		Task *session.Task `json:"task"`
	}
	if bad := p.decode(w, r, &body); bad != nil {
		bad.send(w)
		return
	}
	if t := body.Task; t != nil {
		if bad := metadata(&t.Metadata); bad != nil {
			bad.send(w)
			return
		}
	}
	if most := p.cfg.MaxSessions; p.cfg.Sessions.Open() >= most {
		(&refusal{http.StatusServiceUnavailable, "too_many_sessions", fmt.Sprintf("%d sessions are open; end some of them (POST %s/KEY/end)", most, prefix)}).send(w)
		return
	}
	key, err := p.cfg.Sessions.Begin(session.Head{Task: body.Task, Model: p.Engines()[0].Model})
	if err != nil {
		p.refused(err).send(w)
		return
	}
	p.count(func(s *Stats) { s.Sessions.Begun++ })
	sendJSON(w, http.StatusCreated, map[string]string{"key": string(key), "id": key.ID(), "path": prefix + "/" + string(key)})
}

// endSession serves POST /r/KEY/end.
func (p *Proxy) endSession(w http.ResponseWriter, r *http.Request, key session.Key) {
	var body struct {
		Reward    *float64        `json:"reward"`
		Metadata  json.RawMessage `json:"metadata"`
		FinalText *string         `json:"final_text"`
	}
	bad := p.decode(w, r, &body)
	if bad == nil {
		bad = metadata(&body.Metadata)
	}
	wait := r.URL.Query().Get("wait")
	if bad == nil && wait != "" && wait != "true" && wait != "false" {
		bad = &refusal{http.StatusBadRequest, "bad_request", "wait: want true or false"}
	}
	if bad != nil {
		bad.send(w)
		return
	}
	arrived := time.Now()
	end, err := p.EndSession(r.Context(), key, session.End{Reward: body.Reward, Metadata: body.Metadata, FinalText: body.FinalText}, wait == "true")
	if err != nil {
		p.refused(err).send(w)
		return
	}
	if !end.At.Before(arrived) || end.At.IsZero() { // otherwise, the request repeats an earlier one
		p.count(func(s *Stats) { s.Sessions.Ended++ })
	}
	sendJSON(w, http.StatusOK, end)
}

// EndSession seals a session like Config.Sessions.End, and frees what the proxy keeps for its calls. A
// program that has the Sessions should use it, too.
func (p *Proxy) EndSession(ctx context.Context, key session.Key, e session.End, wait bool) (session.End, error) {
	end, err := p.cfg.Sessions.End(ctx, key, e, wait)
	if err == nil {
		p.turns.forget(key)
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
// replaces it with the engine's own name.
const ModelName = "policy"

// sessionPage serves the pages that clients read before their first call. No other GET request is
// forwarded, because some engines change their state on one.
func (p *Proxy) sessionPage(w http.ResponseWriter, r *http.Request, path string) {
	tokens := int64(0)
	model := strings.HasSuffix(path, "/models") || strings.HasSuffix(path, "/models/"+ModelName)
	if model || strings.HasSuffix(path, "/props") {
		var err error
		if tokens, err = p.tokens(r); err != nil {
			(&refusal{http.StatusBadGateway, "engine_unreachable", err.Error()}).send(w)
			return
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
		sendJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{m}})
	case model:
		m := map[string]any{"id": ModelName, "object": "model", "created": 1700000000, "owned_by": "rollout"}
		if tokens > 0 {
			m["max_model_len"] = tokens
		}
		if strings.HasSuffix(path, "/"+ModelName) {
			sendJSON(w, http.StatusOK, m)
			return
		}
		sendJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{m}})
	case strings.HasSuffix(path, "/props"): // llama.cpp
		sendJSON(w, http.StatusOK, map[string]any{
			"model_alias": ModelName, "total_slots": 1, "default_generation_settings": map[string]any{"n_ctx": tokens},
		})
	case strings.HasSuffix(path, "/health"):
		sendJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	default:
		(&refusal{http.StatusNotFound, "not_found", "a session serves GET …/models, and no other page of the engine"}).send(w)
	}
}

// tokens returns the smallest context length of the engines, or 0 if no engine states one. It
// returns an error if no engine's ability is known.
func (p *Proxy) tokens(r *http.Request) (least int64, err error) {
	known := false
	for _, e := range p.balance.engines {
		a := e.trial.able.Load()
		if a == nil && !known {
			var failed error
			if a, failed = p.able(r.Context(), e); failed != nil {
				err = failed
			}
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

func sendJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error means that the client disconnected
}
