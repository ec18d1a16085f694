//go:build linux

package cases_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// A stub is the smallest engine that Letta accepts. It answers "Hi." to everything and records the
// prompts.
type stub struct {
	URL string

	mu      sync.Mutex
	prompts [][]int32
}

func newStub(t *testing.T, model string) *stub {
	t.Helper()
	s := new(stub)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"sglang","max_model_len":32768}]}`, model)
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			InputIDs []int32 `json:"input_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.prompts = append(s.prompts, body.InputIDs)
		s.mu.Unlock()
		// "Hi." and the stop token in tokens of Qwen3.
		fmt.Fprintf(w, `{"text":"Hi.","output_ids":[13048,13,151645],"meta_info":{"id":"r1","finish_reason":{"type":"stop","matched":151645},
			"prompt_tokens":%d,"completion_tokens":3,"weight_version":"default","cached_tokens":0,"input_token_logprobs":[],
			"output_token_logprobs":[[-0.5,13048,null],[-0.25,13,null],[-0.125,151645,null]]}}`, len(body.InputIDs))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func (s *stub) got(prompt []int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.prompts, func(p []int32) bool { return slices.Equal(p, prompt) })
}
