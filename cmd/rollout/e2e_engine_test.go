package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// TestSimulatedEngine starts an engine in its own process, with the built-in model and with the
// folder of a real one, and compares its answers with its log.
func TestSimulatedEngine(t *testing.T) {
	t.Parallel()
	for _, tokenizer := range []string{"simulated", qwen3Dir} {
		log := filepath.Join(t.TempDir(), "calls.jsonl")
		p, url := startServing(t, "", nil, "simulate", "--serve-engine", "vllm", "--listen", "127.0.0.1:0", "--calls-log", log, "--tokenizer", tokenizer, "--model", "m")
		const tools = `[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}]`
		ask := func(model, marker string) (int, []byte) {
			t.Helper()
			body := `{"model":"` + model + `","return_token_ids":true,"tools":` + tools + `,"messages":[{"role":"user","content":"Go. ` + marker + `"}]}`
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body)))(t)
			resp := must(http.DefaultClient.Do(req))(t)
			defer resp.Body.Close()
			return resp.StatusCode, must(io.ReadAll(resp.Body))(t)
		}
		status, raw := ask("m", enginesim.Marker(3, "busy=1"))
		if status != http.StatusTooManyRequests {
			t.Errorf("%d %s", status, raw)
		}
		var answer struct {
			Prompt  []int32 `json:"prompt_token_ids"`
			Choices []struct {
				IDs []int32 `json:"token_ids"`
			}
		}
		status, raw = ask("m", enginesim.Marker(3, "busy=1"))
		if err := json.Unmarshal(raw, &answer); err != nil || status != http.StatusOK || len(answer.Choices) != 1 {
			t.Fatalf("%d %s", status, raw)
		}
		if status, raw = ask("policy", "[script:single]"); status != http.StatusNotFound {
			t.Errorf("%d %s", status, raw)
		}
		p.signal(t, syscall.SIGTERM, "simulated: 3 calls, 1 sampled")
		p.ends(t, 10*time.Second, 0)
		var lines []struct {
			Status int
			Fault  string
			Prompt []int32 `json:"prompt_ids"`
			Output []int32 `json:"output_ids"`
		}
		text := strings.TrimSpace(string(must(os.ReadFile(log))(t)))
		noError(t, json.Unmarshal([]byte("["+strings.ReplaceAll(text, "\n", ",")+"]"), &lines))
		if len(lines) != 3 || lines[0].Fault != "busy" || lines[2].Status != http.StatusNotFound ||
			!slices.Equal(lines[1].Prompt, answer.Prompt) || !slices.Equal(lines[1].Output, answer.Choices[0].IDs) {
			t.Errorf("the log is %s\nthe answer is %+v", text, answer)
		}
	}
}
