package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestScriptedEngine proves that the kept calls are the calls that a scripted engine remembers.
func TestScriptedEngine(t *testing.T) {
	t.Parallel()
	prompt := make([]int32, 0, 64)
	for _, b := range []byte("Say something. [script:random seed=3]") {
		prompt = append(prompt, int32(b))
	}
	for _, c := range []struct {
		name, path, body string
		stream           bool
	}{
		{"generate", "/generate", `{"input_ids":` + list(prompt) + `,"sampling_params":{"max_new_tokens":64},"return_logprob":true}`, false},
		{"generate, streamed", "/generate", `{"stream":true,"input_ids":` + list(prompt) + `,"sampling_params":{"max_new_tokens":64},"return_logprob":true}`, true},
	} {
		engine, err := enginesim.New(enginesim.Config{Version: "5"})
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, proxy.Config{AskIDs: true}, engine)
		status, text := r.post(t, c.path, c.body)
		if status != http.StatusOK || strings.HasPrefix(text, "data:") != c.stream {
			t.Fatalf("%s: %d %s", c.name, status, text)
		}
		truth, got := engine.Calls()[0], r.kept.one(t)
		if !slices.Equal(got.Prompt, truth.InputIDs) || !slices.Equal(got.Output, truth.OutputIDs) || len(got.Output) == 0 {
			t.Errorf("%s: kept %v %v, the engine had %v %v", c.name, got.Prompt, got.Output, truth.InputIDs, truth.OutputIDs)
		}
		if !slices.Equal(got.Logprobs, truth.Logprobs) || got.Version != "5" || got.Finish != truth.Finish.Type {
			t.Errorf("%s: kept %+v, the engine had %+v", c.name, got, truth)
		}
	}
}

// event returns an event of an SGLang stream. total is the number of tokens so far.
func event(output []int32, logprobs []float64, total int, finish string) string {
	triples := make([]string, len(logprobs))
	for i, v := range logprobs {
		triples[i] = fmt.Sprintf("[%v,%d,null]", v, int(-10*v))
	}
	return fmt.Sprintf(`data: {"output_ids":%s,"meta_info":{"completion_tokens":%d,"finish_reason":%s,"output_token_logprobs":[%s]}}`+"\n\n",
		list(output), total, finish, strings.Join(triples, ","))
}

// TestStreamShapes proves that tokens and log-probabilities can repeat independently.
func TestStreamShapes(t *testing.T) {
	t.Parallel()
	const end = `{"type":"stop","matched":3}`
	all, one, two, three := []int32{1, 2, 3}, []int32{1}, []int32{2}, []int32{3}
	for _, c := range []struct {
		name   string
		events string
		output []int32
		last   float32 // the last log-probability; 0: none
	}{
		{"repeated", event(one, []float64{-.1}, 1, "null") + event(all[:2], []float64{-.1, -.2}, 2, "null") + event(all, []float64{-.1, -.2, -.3}, 3, end), all, -.3},
		{"not repeated", event(one, []float64{-.1}, 1, "null") + event(two, []float64{-.2}, 2, "null") + event(three, []float64{-.3}, 3, end), all, -.3},
		{"log-probabilities repeated", event(one, []float64{-.1}, 1, "null") + event(two, []float64{-.1, -.2}, 2, "null") + event(three, []float64{-.1, -.2, -.3}, 3, end), all, -.3},
		{"an event is missing", event(one, []float64{-.1}, 1, "null") + event(three, []float64{-.3}, 3, end), nil, 0},
		{"no end", event(one, []float64{-.1}, 1, "null") + event(all[:2], []float64{-.1, -.2}, 2, "null"), nil, 0},
		{"others' log-probabilities", event(one, []float64{-.1}, 1, "null") + event(all[:2], []float64{-.1, -.3}, 2, end), all[:2], 0},
		{"an error", event(one, []float64{-.1}, 1, end) + "data: {\"error\":{\"message\":\"x\"}}\n\n", nil, 0},
		{"no JSON", event(one, []float64{-.1}, 1, end) + "data: x\n\n", nil, 0},
	} {
		r := newRig(t, proxy.Config{}, &answers{kind: "text/event-stream; charset=utf-8", text: c.events + "data: [DONE]\n\n"})
		if _, got := r.post(t, "/generate", `{"input_ids":[5],"stream":true}`); got != c.events+"data: [DONE]\n\n" {
			t.Errorf("%s: the client got %s", c.name, got)
		}
		got := r.kept.one(t)
		if !slices.Equal(got.Output, c.output) || len(got.Prompt) != 1 {
			t.Errorf("%s: output %v, want %v", c.name, got.Output, c.output)
			continue
		}
		if n := len(got.Logprobs); n > 0 && got.Logprobs[n-1] != c.last && (c.last != 0 || got.Logprobs[n-1] == got.Logprobs[n-1]) {
			t.Errorf("%s: log-probabilities %v", c.name, got.Logprobs)
		}
	}
}

// TestChat proves that a chat with token ids is a call, in the formats of vLLM and SGLang.
func TestChat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, ask, text string
		logprob         float32
		version         string
	}{
		{
			"vLLM", `{"messages":[],"top_p":0.5}`,
			`{"choices":[{"index":0,"message":{"content":"x"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-9.0}]},{"token":"","logprob":-0.25}]},` +
				`"finish_reason":"stop","stop_reason":null,"token_ids":[8,9]}],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":2}},"prompt_token_ids":[1,2,3]}`, -0.25, "",
		},
		{
			"SGLang", `{"messages":[],"top_p":0.5}`,
			`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop","matched_stop":9,"prompt_token_ids":[1,2,3],"token_ids":[8,9],` +
				`"meta_info":{"output_token_logprobs":[[-1,8,null],[-0.25,9,null]],"completion_tokens":2,"prompt_tokens":3,"cached_tokens":2,"weight_version":"4"}}],"usage":{"prompt_tokens":3,"completion_tokens":2},"metadata":{"weight_version":"4"}}`, -0.25, "4",
		},
		{
			"vLLM, streamed", `{"messages":[],"top_p":0.5,"stream":true}`,
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"},\"finish_reason\":null}],\"prompt_token_ids\":[1,2,3]}\n\n" +
				"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":{\"content\":[{\"logprob\":-1}]},\"token_ids\":[8]}]}\n\n" +
				"data: {\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":[{\"logprob\":-0.25}]},\"token_ids\":[9],\"finish_reason\":\"stop\"}]}\n\n" +
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n", -0.25, "",
		},
	} {
		kind := "application/json"
		if strings.HasPrefix(c.text, "data:") {
			kind = "text/event-stream"
		}
		engine := &answers{text: c.text, kind: kind}
		r := newRig(t, proxy.Config{AskIDs: true}, engine)
		if _, got := r.post(t, "/v1/chat/completions", c.ask); got != c.text {
			t.Errorf("%s: the client got %s", c.name, got)
		}
		var told map[string]any
		if err := json.Unmarshal([]byte(engine.got()[0]), &told); err != nil || (told["return_token_ids"] == true) == (kind != "application/json") {
			t.Errorf("%s: the engine got %s", c.name, engine.got()[0])
		}
		got := r.kept.one(t)
		if !slices.Equal(got.Prompt, []int32{1, 2, 3}) || !slices.Equal(got.Output, []int32{8, 9}) || len(got.Logprobs) != 2 || got.Logprobs[1] != c.logprob {
			t.Errorf("%s: kept %+v", c.name, got)
		}
		if got.Finish != "stop" || got.Version != c.version || got.Cached != 2 || got.PromptTokens != 3 || *got.Sampling.TopP != 0.5 || got.Dialect != "openai" {
			t.Errorf("%s: kept %+v", c.name, got)
		}
	}
}
