package proxy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// checkEdited applies the edits of set and asks to the body of q. Parsed by encoding/json, the
// result has them and is otherwise equal. Outside the edits no byte changes.
func checkEdited(t *testing.T, d dialect, q *request, set *Set) {
	t.Helper()
	edits := q.edits(set, d.asks(q))
	out := edited(q.body, edits)
	before, err := plainValue[map[string]any](q.body)
	if err != nil {
		t.Fatal(err)
	}
	after, err := plainValue[map[string]any](out)
	if err != nil {
		t.Fatalf("%s became %s: %v", q.body, out, err)
	}
	place := before
	if d.name() == "sglang" {
		place, _ = before["sampling_params"].(map[string]any)
		if place == nil && (before["sampling_params"] == nil || len(q.sampling) == 0) {
			place = map[string]any{}
		}
		before["sampling_params"] = place
	}
	for _, m := range set.members(q.keys) {
		v, err := plainValue[any]([]byte(m.value))
		if err != nil {
			t.Fatal(err)
		}
		place[m.key] = v
	}
	for _, a := range d.asks(q) {
		if _, has := before[a.key]; !has {
			v, err := plainValue[any]([]byte(a.value))
			if err != nil {
				t.Fatal(err)
			}
			before[a.key] = v
		}
	}
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("%s became %s, want %v", q.body, out, before)
	}
	at := 0 // the text between the edits is in the result, in this order
	rest := string(out)
	for _, e := range append(slices.Clone(edits), edit{span: span{len(q.body), len(q.body)}}) {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, string(q.body[at:e.from])+string(e.text)); !ok {
			t.Fatalf("%s became %s: other bytes changed", q.body, out)
		}
		at = e.to
	}
	if rest != "" {
		t.Fatalf("%s became %s: %q is too much", q.body, out, rest)
	}
}

// plainValue parses text with encoding/json. It keeps the text of numbers, because a body can have
// numbers that no float64 represents.
func plainValue[T any](text []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

func TestEdits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		set        []string
		asked      bool
		want       string
	}{
		{
			"/generate", `{"input_ids":[1,2],"sampling_params":{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true}`,
			[]string{"top_p=1.0", "max_new_tokens=8192"},
			true,
			`{"input_ids":[1,2],"sampling_params":{"temperature":1.0,"max_new_tokens":8192,"top_p":1.0},"return_logprob":true}`,
		},
		{
			"/generate", `{ "input_ids": [1], "sampling_params": { "top_p" : 0.9 } }`,
			[]string{"seed=7", "stop=<end>", "top_p=1"},
			true,
			`{"return_logprob":true, "input_ids": [1], "sampling_params": {"seed":7,"stop":"<end>", "top_p" : 1 } }`,
		},
		{"/generate", `{"input_ids":[1],"sampling_params":{}}`, []string{"top_k=5"}, false, `{"input_ids":[1],"sampling_params":{"top_k":5}}`},
		{"/generate", `{"input_ids":[1],"sampling_params":null}`, []string{"top_k=5"}, false, `{"input_ids":[1],"sampling_params":{"top_k":5}}`},
		{"/generate", `{"input_ids":[1]}`, []string{"top_k=5", "min_p=0"}, false, `{"sampling_params":{"min_p":0,"top_k":5},"input_ids":[1]}`},
		{"/generate", `{"text":["a","b"],"sampling_params":[{"top_p":0.5},{}]}`, []string{"top_p=1"}, false, `{"text":["a","b"],"sampling_params":[{"top_p":1},{"top_p":1}]}`},
		{
			chatPath, `{"messages":[],"top_p":0.9,"max_tokens":5}`,
			[]string{"top_p=1", "max_new_tokens=9"},
			true,
			`{"max_completion_tokens":9,"return_token_ids":true,"return_prompt_token_ids":true,"return_meta_info":true,"logprobs":true,"messages":[],"top_p":1,"max_tokens":5}`,
		},
		{chatPath, `{"messages":[],"stream":true}`, nil, true, `{"messages":[],"stream":true}`},
		{completionPath, `{"prompt":"x","logprobs":3}`, []string{"max_new_tokens=9"}, true, `{"max_tokens":9,"return_token_ids":true,"prompt":"x","logprobs":3}`},
		{completionPath, `{}`, []string{"seed=1"}, true, `{"seed":1,"return_token_ids":true,"logprobs":0}`},
	} {
		q, d := &request{path: c.path, body: []byte(c.body)}, dialectOf("POST", c.path)
		s := tokenize.NewScanner(tokenize.DecoderConfig{})
		s.ResetBytes(q.body)
		if err := d.request(s, q); err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		set, err := ParseSet(c.set)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(c.want, `"seed":7`, `"sampling_seed":7`)
		var asks []ask
		if c.asked {
			asks = d.asks(q)
		}
		if got := string(edited(q.body, q.edits(&set, asks))); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", c.body, got, want)
		}
	}
}

func TestParseSet(t *testing.T) {
	t.Parallel()
	s, err := ParseSet([]string{"temperature=0", "top_p=0.5", "stop=[\"a\",\"b\"]", "stop_token_ids=[1,2]", "top_k=-1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.members(&sglangNames) {
		got = append(got, m.key+"="+m.value)
	}
	if want := `temperature=0 top_p=0.5 top_k=-1 stop=["a","b"] stop_token_ids=[1,2]`; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for bad, want := range map[string]string{
		"top_p": "want name=value", "top_p=": "want a number in (0, 1]", "top_p=0": "want a number in (0, 1]", "top_p=1.5": "in (0, 1]", "top_p=NaN": "want a number",
		"temperature=-1": "≥ 0", "temperature=0x10": "want a number", "max_new_tokens=0": "> 0", "max_new_tokens=1.5": "integer", "top_k=-2": "integer", "seed=x": "integer",
		"stop=[1]": "strings", "stop_token_ids=5": "ids", "stop_token_ids=[null]": "ids", "stop_token_ids=[-1]": "ids", "best_of=2": "unknown setting", "max_tokens=2": "did you mean max_new_tokens?", `stop=["a"`: "strings",
	} {
		if _, err := ParseSet([]string{bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	if _, err := ParseSet([]string{"top_p=1", "top_p=0.5"}); err == nil {
		t.Error("a duplicate setting is accepted")
	}
}
