package lettasim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// plain reports whether a model has no token data. Only providers whose name contains sglang have
// token data.
func plain(handle string) bool {
	provider, _, _ := strings.Cut(handle, "/")
	return !strings.Contains(strings.ToLower(provider), "sglang")
}

func splitHandle(handle string) (provider, model string) {
	provider, model, _ = strings.Cut(handle, "/")
	return provider, model
}

const modelEndpoint = "http://127.0.0.1:30000/v1"

func llmConfig(handle string, window int, tokens bool, settings *modelSettings) []byte {
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
		o, err := parseObject(llmConfig(handle, contextWindow, false, nil))
		if err != nil {
			return detail(http.StatusInternalServerError, "lettasim: internal error: %v", err)
		}
		_, model := splitHandle(handle)
		o.text("name", model)
		o.text("display_name", model)
		o.text("provider_type", "openai") // the type of the endpoint
		o.set("max_context_window", fmt.Append(nil, contextWindow))
		o.text("model_type", "llm")
		models = append(models, o.append(nil))
	}
	return ok(array(models))
}
