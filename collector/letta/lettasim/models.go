package lettasim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// plain reports whether a model's provider has no token data: its name does not contain sglang.
func plain(handle string) bool {
	provider, _, _ := strings.Cut(handle, "/")
	return !strings.Contains(strings.ToLower(provider), "sglang")
}

func splitHandle(handle string) (provider, model string) {
	provider, model, _ = strings.Cut(handle, "/")
	return provider, model
}

const modelEndpoint = "http://127.0.0.1:30000/v1"

func (s *Server) llmConfig(handle string, window int, tokens bool, settings *modelSettings) []byte {
	provider, model := splitHandle(handle)
	temperature, effort := json.Number("1.0"), "null"
	if settings != nil {
		temperature, effort = cmp.Or(settings.Temperature, temperature), `"high"`
	}
	out := quote([]byte(`{"model":`), model)
	out = append(out, `,"display_name":null,"model_endpoint_type":"openai","model_endpoint":"`+modelEndpoint+`","provider_name":`...)
	out = quote(out, provider)
	out = fmt.Appendf(out, `,"provider_category":"base","model_wrapper":null,"context_window":%d,"put_inner_thoughts_in_kwargs":false,"handle":`, window)
	out = quote(out, handle)
	return fmt.Appendf(out, `,"temperature":%s,"max_tokens":4096,"enable_reasoner":false,"reasoning_effort":%s,"max_reasoning_tokens":0,"effort":null,`+
		`"frequency_penalty":null,"compatibility_type":null,"verbosity":null,"tier":null,"parallel_tool_calls":false,"response_format":null,"strict":false,`+
		`"return_logprobs":%t,"top_logprobs":null,"return_token_ids":%t,"tool_call_parser":null}`, temperature, effort, tokens, tokens)
}

func (s *Server) handles() []string { return []string{s.cfg.Model, PlainModel} }

func (s *Server) noModel(handle string) answer {
	return detail(http.StatusNotFound, "NOT_FOUND: Handle %s not found, must be one of ['%s']", handle, strings.Join(s.handles(), "', '"))
}

func (s *Server) listModels(*request) answer {
	var models [][]byte
	for _, handle := range s.handles() {
		o, err := parseObject(s.llmConfig(handle, s.cfg.ContextWindow, false, nil))
		if err != nil {
			return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
		}
		_, model := splitHandle(handle)
		o.text("name", model)
		o.text("display_name", model)
		o.text("provider_type", "openai") // the type of the endpoint
		o.set("max_context_window", fmt.Append(nil, s.cfg.ContextWindow))
		o.text("model_type", "llm")
		models = append(models, o.append(nil))
	}
	return ok(array(models))
}

func (s *Server) listEmbeddings(*request) answer {
	return ok([]byte(`[{"handle":"letta/letta-free","name":"letta-free","display_name":"letta-free","provider_type":"openai","provider_name":"openai","model_type":"embedding",` +
		`"embedding_endpoint_type":"openai","embedding_endpoint":"https://inference.letta.com/v1/","embedding_model":"letta-free","embedding_dim":1536,"embedding_chunk_size":300,` +
		`"batch_size":32,"azure_endpoint":null,"azure_version":null,"azure_deployment":null}]`))
}

// A provider is a provider that a client created. The server lists neither the providers of its
// settings nor the provider of lettasim's models.
type provider struct {
	name, id string
	state    []byte
}

func (s *Server) listProviders(q *request) answer {
	name := q.URL.Query().Get("name")
	var out [][]byte
	for i := range s.providers {
		if name == "" || name == s.providers[i].name {
			out = append(out, s.providers[i].state)
		}
	}
	return ok(array(out))
}

// createProvider answers as the real server does if the provider's models cannot be listed: 200,
// and no new models.
func (s *Server) createProvider(q *request) answer {
	var body struct {
		Name         string  `json:"name"`
		ProviderType string  `json:"provider_type"`
		APIKey       *string `json:"api_key"`
		BaseURL      string  `json:"base_url"`
	}
	if a := q.decode(&body); a != nil {
		return *a
	}
	for _, need := range []struct {
		name string
		none bool
	}{{"name", body.Name == ""}, {"provider_type", body.ProviderType == ""}, {"api_key", body.APIKey == nil}} {
		if need.none {
			return unprocessable("missing", "'body', '"+need.name+"'", "Field required")
		}
	}
	for _, handle := range s.handles() {
		if name, _ := splitHandle(handle); name == body.Name {
			return detail(http.StatusBadRequest, "Provider name '%s' conflicts with a base provider", body.Name)
		}
	}
	if slices.ContainsFunc(s.providers, func(p provider) bool { return p.name == body.Name }) {
		return detail(http.StatusConflict, "A unique constraint was violated for Provider. Check your input for duplicates: unique_name_organization_id")
	}
	p := provider{name: body.Name, id: "provider-" + draw(s.cfg.Seed, "provider", body.Name).uuid()}
	out := quote([]byte(`{"id":`), p.id)
	out = quote(append(out, `,"name":`...), body.Name)
	out = quote(append(out, `,"provider_type":`...), body.ProviderType)
	out = quote(append(out, `,"provider_category":"byok","api_key":null,"base_url":`...), body.BaseURL)
	p.state = fmt.Appendf(out, `,"access_key":null,"region":null,"api_version":null,"organization_id":"%s","updated_at":"%s","last_synced":null,"api_key_enc":null,"access_key_enc":null}`,
		organization, s.cfg.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	s.providers = append(s.providers, p)
	return ok(p.state)
}
