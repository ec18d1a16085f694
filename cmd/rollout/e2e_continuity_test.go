package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// If the server deletes a thought or renders a call differently, the tap gives the engine its
// earlier output, even after the tap was killed and restarted.
func TestTapContinuity(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	ids := func(text string) []int32 {
		all, err := tok.AppendTokens(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	const (
		head   = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2 and 3?<|im_end|>\n<|im_start|>assistant\n"
		said   = "<think>\nI add them.\n</think>\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":2,\"b\":3}}</tool_call><|im_end|>"
		shown  = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call><|im_end|>"
		result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
		answer = "Five.<|im_end|>"
	)
	var mu sync.Mutex
	var given [][]int32
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":4200}]}`)
			return
		}
		var body struct {
			InputIDs []int32 `json:"input_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		given = append(given, body.InputIDs)
		output := [][]int32{ids(said), ids(answer), ids(answer), ids(said), ids(answer)}[len(given)-1]
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"output_ids": output, "meta_info": map[string]any{"prompt_tokens": len(body.InputIDs), "completion_tokens": len(output)}})
	}))
	defer e.Close()
	ask := func(p *tapProcess, prompt []int32) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"input_ids": prompt})
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.Post(p.url+"/generate", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v: %s", res.StatusCode, err, text)
		}
	}

	args := []string{"--engine", e.URL, "--continuity", "--tokenizer", qwen3Dir}
	p := startTap(t, args...)
	ask(p, ids(head))
	p.calls(t, 1) // it is in the spool
	p.signal(t, os.Kill)
	_ = p.cmd.Wait() // killed

	again := startTap(t, append(args, "--spool", p.spool)...)
	again.spool = p.spool
	ask(again, ids(head+shown+result))
	want := ids(head + said + result)
	if len(given) != 2 || !slices.Equal(given[1], want) {
		t.Errorf("the engine got %v, want %v", given, want)
	}
	if c := again.calls(t, 2)[1]; !slices.Equal(c.Prompt, want) || !slices.Equal(c.Asked, ids(head+shown+result)) {
		t.Errorf("the call is kept as %+v", c)
	}
	counted := func(p *tapProcess, outcome, reason string) {
		t.Helper()
		res, err := http.Get(p.url + "/tap/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), `rollout_tap_continuity_total{outcome="`+outcome+`",reason="`+reason+`"} 1`) {
			t.Errorf("%v\n%s", err, text)
		}
	}
	counted(again, "spliced", "text")
	again.signal(t, os.Kill)
	_ = again.cmd.Wait() // killed

	// The same prompt after its answer is another conversation.
	third := startTap(t, append(args, "--spool", p.spool)...)
	ask(third, ids(head+shown+result))
	if len(given) != 3 || !slices.Equal(given[2], ids(head+shown+result)) {
		t.Errorf("the engine got %v, want what was asked", given)
	}
	counted(third, "refused", "taken")

	// The engine takes 4,200 tokens. With an output of 4,140, the prompt has 60 and the spliced
	// prompt 61.
	short := startTap(t, append(args, "--set", "max_new_tokens=4140")...)
	ask(short, ids(head))
	ask(short, ids(head+shown+result))
	if len(given) != 5 || !slices.Equal(given[4], ids(head+shown+result)) {
		t.Errorf("the engine got %v, want what was asked", given)
	}
	counted(short, "refused", "long")
}
