package lettasim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// plain says whether a model's provider gives no token data: neither its handle
// nor its provider's name says sglang.
func plain(handle string) bool {
	provider, _, _ := strings.Cut(handle, "/")
	return !strings.Contains(strings.ToLower(provider), "sglang")
}

// splitHandle returns the provider's name and the model's own name.
func splitHandle(handle string) (provider, model string) {
	provider, model, _ = strings.Cut(handle, "/")
	return provider, model
}

const modelEndpoint = "http://127.0.0.1:30000/v1"

// llmConfig is the model part of an AgentState.
func (s *Server) llmConfig(handle string, window int, tokens bool, temperature json.Number) []byte {
	provider, model := splitHandle(handle)
	out := quote([]byte(`{"model":`), model)
	out = append(out, `,"display_name":null,"model_endpoint_type":"openai","model_endpoint":"`+modelEndpoint+`","provider_name":`...)
	out = quote(out, provider)
	out = fmt.Appendf(out, `,"provider_category":"base","model_wrapper":null,"context_window":%d,"put_inner_thoughts_in_kwargs":false,"handle":`, window)
	out = quote(out, handle)
	return fmt.Appendf(out, `,"temperature":%s,"max_tokens":4096,"enable_reasoner":false,"reasoning_effort":"high","max_reasoning_tokens":0,"effort":null,`+
		`"frequency_penalty":null,"compatibility_type":null,"verbosity":null,"tier":null,"parallel_tool_calls":false,"response_format":null,"strict":false,`+
		`"return_logprobs":%t,"top_logprobs":null,"return_token_ids":%t,"tool_call_parser":null}`, temperature, tokens, tokens)
}

func (s *Server) handles() []string { return []string{s.cfg.Model, PlainModel} }

// noModel answers that no model has the handle.
func (s *Server) noModel(handle string) answer {
	return detail(http.StatusNotFound, "NOT_FOUND: Handle %s not found, must be one of ['%s']", handle, strings.Join(s.handles(), "', '"))
}

func (s *Server) listModels(*request) answer {
	var models [][]byte
	for _, handle := range s.handles() {
		o, err := parseObject(s.llmConfig(handle, s.cfg.ContextWindow, false, "1.0"))
		if err != nil {
			return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
		}
		_, model := splitHandle(handle)
		o.text("name", model)
		o.text("provider_type", map[bool]string{true: "openai", false: "sglang"}[plain(handle)])
		o.set("max_context_window", fmt.Append(nil, s.cfg.ContextWindow))
		o.text("model_type", "llm")
		models = append(models, o.append(nil))
	}
	return ok(array(models))
}

func (s *Server) listProviders(*request) answer {
	var out [][]byte
	for _, handle := range s.handles() {
		name, _ := splitHandle(handle)
		out = append(out, provider(name, map[bool]string{true: "openai", false: "sglang"}[plain(handle)], draw(s.cfg.Seed, "provider", name)))
	}
	return ok(array(out))
}

func provider(name, kind string, r *rng) []byte {
	out := quote([]byte(`{"id":`), "provider-"+r.uuid())
	out = quote(append(out, `,"name":`...), name)
	out = quote(append(out, `,"provider_type":`...), kind)
	return append(out, `,"provider_category":"base","api_key":null,"base_url":"`+modelEndpoint+`","region":null,"organization_id":"`+organization+`"}`...)
}

// createProvider answers as the real server does when the provider's models
// cannot be listed: 200, and no new models.
func (s *Server) createProvider(q *request) answer {
	var body struct {
		Name         string  `json:"name"`
		ProviderType string  `json:"provider_type"`
		APIKey       *string `json:"api_key"`
	}
	if a := q.decode(&body); a != nil {
		return *a
	}
	if body.Name == "" || body.ProviderType == "" || body.APIKey == nil {
		return unprocessable("missing", "'body', 'api_key'", "Field required")
	}
	for _, handle := range s.handles() {
		if name, _ := splitHandle(handle); name == body.Name {
			return detail(http.StatusBadRequest, "Provider name '%s' conflicts with a base provider", body.Name)
		}
	}
	return ok(provider(body.Name, body.ProviderType, draw(s.cfg.Seed, "provider", body.Name)))
}
