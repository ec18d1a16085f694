package proxy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// Fuzz seeds, in the format of engines.
var answerSeeds = []string{
	`{"text":"x","output_ids":[785,2629,151645],"meta_info":{"id":"a","finish_reason":{"type":"stop","matched":151645},"prompt_tokens":2,"weight_version":"default",` +
		`"input_token_logprobs":[],"output_token_logprobs":[[-0.24,785,null],[-3.5e-05,2629,null],[null,151645,"a"]],"completion_tokens":3,"cached_tokens":0}}`,
	`{"output_ids":[1],"meta_info":{"weight_versions":[{"version":"1"},{"version":"2"}],"weight_version":"2","finish_reason":"length"}}`,
	`{"output_ids":[1,2],"meta_info":{"weight_versions":[{"version":"1","start":0,"end":1},{"end":2,"version":2,"start":1}],"weight_version":2}}`,
	`{"output_ids":[1],"meta_info":{"weight_versions":{"a":1},"weight_version":[],"prompt_tokens":"x","completion_tokens":{},"cached_tokens":[],"finish_reason":{"type":[],"matched":"x"}},"prompt_token_ids":{}}`,
	`{"choices":[{"index":"x","token_ids":[5],"logprobs":{"content":[{"logprob":"x"}]},"meta_info":{"weight_versions":[{"version":"1","start":0,"end":1}],"weight_version":"1"}}],"sglext":{"weight_versions":[{"version":"2","start":0,"end":1}]},"metadata":{"weight_version":"2"}}`,
	`[{"output_ids":[1]}]`,
	`{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"é"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},` +
		`{"token":"b","logprob":-9999.0}]},"finish_reason":"stop","stop_reason":7,"token_ids":[5,6]}],"prompt_token_ids":[1,2],"usage":{"prompt_tokens":2,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}`,
	`{"choices":[{"index":0,"prompt_token_ids":[1,2],"matched_stop":6,"meta_info":{"output_token_logprobs":[[-1,5,null],[-2,6,null]],"completion_tokens":2,"weight_version":"9"}}],"metadata":{"weight_version":"9"}}`,
	`{"choices":[{"text":"x","token_ids":[5],"logprobs":{"token_logprobs":[-0.25],"tokens":["x"]},"finish_reason":"length"}]}`,
	"data: {\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1,\"output_token_logprobs\":[[-1,1,null]],\"finish_reason\":null}}\n\n" +
		"data: {\"output_ids\":[1,2],\"meta_info\":{\"completion_tokens\":2,\"output_token_logprobs\":[[-1,1,null],[-2,2,null]],\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
	"data: {\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1}}\r\n\r\n: ping\n\ndata: {\"output_ids\":[2],\"meta_info\":{\"completion_tokens\":2,\"finish_reason\":{\"type\":\"stop\",\"matched\":2}}}\n\ndata: [DONE]\n\n",
	"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}],\"prompt_token_ids\":[1,2]}\n\ndata: {\"choices\":[{\"index\":0,\"token_ids\":[5],\"logprobs\":{\"content\":[{\"logprob\":-0.5}]}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"token_ids\":[6,7],\"logprobs\":{\"content\":[{\"logprob\":-1},{\"logprob\":-2}]},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
	"data: {\"error\":{\"message\":\"x\"}}\n\n",
	// The weights change between two events, without and with spans.
	"data: {\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1,\"weight_version\":\"7\"}}\n\n" +
		"data: {\"output_ids\":[1,2],\"meta_info\":{\"completion_tokens\":2,\"weight_version\":\"8\",\"finish_reason\":{\"type\":\"stop\"}}}\n\n",
	"data: {\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1,\"weight_version\":\"7\",\"weight_versions\":[{\"version\":\"7\",\"start\":0,\"end\":1}]}}\n\n" +
		"data: {\"output_ids\":[1,2],\"meta_info\":{\"completion_tokens\":2,\"weight_version\":\"8\",\"weight_versions\":[{\"version\":\"7\",\"start\":0,\"end\":1},{\"version\":\"8\",\"start\":1,\"end\":2}],\"finish_reason\":{\"type\":\"stop\"}}}\n\n",
	// Outputs repeat, but log-probabilities do not, and belong to other ids.
	"data: {\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1,\"output_token_logprobs\":[[-1,1,null]]}}\n\n" +
		"data: {\"output_ids\":[7,2],\"meta_info\":{\"completion_tokens\":2,\"output_token_logprobs\":[[-2,2,null]],\"finish_reason\":{\"type\":\"stop\"}}}\n\n",
}

// FuzzAnswer proves that a reader returns what encoding/json returns, or less, for any pieces, and
// that it never panics.
func FuzzAnswer(f *testing.F) {
	for _, seed := range answerSeeds {
		for d := range dialects {
			f.Add([]byte(seed), uint8(d), strings.HasPrefix(seed, "data:"), 7)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, which uint8, streamed bool, chop int) {
		d := dialects[int(which)%len(dialects)]
		read := func(chop int) (*tap.Call, string) {
			c := &tap.Call{Prompt: []int32{1, 2}, Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}
			r := newReader(d, streamed)
			defer r.close()
			for part := range slices.Chunk(text, chop) {
				r.write(part)
			}
			r.end()
			why, _ := r.call(c, nil)
			c.Prompt, c.Output, c.Logprobs = slices.Clone(c.Prompt), slices.Clone(c.Output), slices.Clone(c.Logprobs)
			return c, why
		}
		got, why := read(max(1, len(text)))
		if chopped, why2 := read(max(1, chop&255)); show(chopped) != show(got) || why != why2 {
			t.Fatalf("as a whole %s (%s)\nchopped    %s (%s)", show(got), why, show(chopped), why2)
		}
		if why == "malformed" {
			if got.Output != nil || got.Finish != "" {
				t.Fatalf("malformed, and %s", show(got))
			}
			return
		}
		want := &tap.Call{Prompt: []int32{1, 2}, Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}
		if !plainAnswer(d, streamed, text, want) {
			t.Fatalf("is not JSON, and %s", show(got))
		}
		if show(got) != show(want) && why != "several" {
			t.Fatalf("got  %s (%s)\nwant %s", show(got), why, show(want))
		}
	})
}

// show formats a call, bit by bit.
func show(c *tap.Call) string {
	bits := make([]uint32, len(c.Logprobs))
	for i, v := range c.Logprobs {
		if bits[i] = math.Float32bits(v); v != v {
			bits[i] = 0xffffffff
		}
	}
	s := c.Sampling
	return fmt.Sprint(c.Prompt, c.Output, c.Output == nil, bits, c.Finish, c.Matched, c.Version, c.Versions, c.Versions == nil, c.PromptTokens, c.OutputTokens, c.Cached,
		value(s.Temperature), value(s.TopP), value(s.MinP), value(s.TopK), value(s.MaxNewTokens), value(s.Seed), s.Stop, s.StopIDs)
}

func value[T any](p *T) any {
	if p == nil {
		return "-"
	}
	return *p
}

var requestSeeds = []string{
	`{"input_ids":[151644,8948,198],"sampling_params":{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true}`,
	`{"input_ids": [1, 2], "sampling_params": {"stop": ["a", "\u00e9"], "stop_token_ids": [7], "sampling_seed": 5, "top_k": -1, "min_p": 0}, "session_params": null}`,
	`{"input_ids":[[1],[2]],"sampling_params":[{},{"n":2}]}`, `{"text":"hello","sampling_params":null}`, `{"input_ids":[]}`, `{ }`, `{"sampling_params":{}}`,
	`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":0.7,"max_tokens":5,"max_completion_tokens":9,"n":1,"seed":3,"stop":"x"}`,
	`{"model":"m","prompt":[1,2,3],"max_tokens":5,"logprobs":1,"stream":true}`, `{"prompt":"text"}`, `{"prompt":["a"]}`, `[]`, `{"input_ids":[1],"input_ids":[2]}`,
	`{"input_ids":[1],"priority":1E164478948,"sampling_params":{"frequency_penalty":-1e999}}`,
	`{"input_ids":[1],"sampling_params":{"stop":["a",10]}}`, `{"input_ids":[1],"sampling_params":{"stop":["a",null],"sampling_seed":0.0,"top_k":1e1}}`,
}

// FuzzRequest proves that a request is parsed as by encoding/json, or not at all. With settings and
// asks, the body has these members and its other values stay. Without them no byte changes. The
// payload sends the same bytes. A request in an API that is translated is either refused or becomes a
// chat completion.
func FuzzRequest(f *testing.F) {
	for i, api := range apis[1:] {
		for _, seed := range apiSeeds[api.dialect.Name()] {
			f.Add([]byte(seed), uint8(3+i), 0)
		}
	}
	for _, seed := range append(requestSeeds, `{"input_ids":[1, 2,3]}`, `{"input_ids":[1,  2,3]}`, `{"input_ids":[10,0, 7 ],"stop":[1]}`) {
		for path := range 3 {
			f.Add([]byte(seed), uint8(path), 5)
		}
	}
	set, err := ParseSet([]string{"top_p=1.0", "max_new_tokens=8192", `stop=["x"]`, "seed=7"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8, chop int) {
		if which %= 5; which >= 3 {
			checkRequest(t, apis[which-2].dialect, body, &mutator{Rand: rand.New(rand.NewPCG(uint64(chop), 0))})
			return
		}
		path := []string{"/generate", chatPath, completionPath}[which]
		d := dialectOf("POST", path)
		q := &request{path: path, body: body}
		s := tokenize.NewScanner(tokenize.DecoderConfig{})
		s.ResetBytes(body)
		err := d.request(s, q)
		if err == nil {
			err = s.End()
		}
		if err != nil {
			return
		}
		checkPayload(t, d, path, body, chop&63)
		if q.several {
			return
		}
		if edits := q.edits(&Set{}, nil); edits != nil {
			t.Fatalf("edits without a wish: %v", edits)
		}
		got, want := &tap.Call{Sampling: q.told(&Set{})}, &tap.Call{}
		if !q.foreign {
			got.Prompt = q.prompt
		}
		plainRequest(d, path, body, want)
		if path == chatPath {
			want.Prompt = nil
		}
		if show(got) != show(want) {
			t.Fatalf("got  %s\nwant %s", show(got), show(want))
		}
		checkEdited(t, d, q, &set)
	})
}
