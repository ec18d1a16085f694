package tap

import (
	"maps"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// telltale returns an output whose log-probabilities no other prompt can produce.
func telltale() (ids []int32, logprobs []float32) {
	for i := range tellingTokens + 1 {
		ids, logprobs = append(ids, int32(100+i)), append(logprobs, -0.5-float32(i)/8)
	}
	return ids, logprobs
}

// TestUnshown proves that a call that no answer shows is counted, by kind, only for the rollout
// that it is proven to belong to.
func TestUnshown(t *testing.T) {
	t.Parallel()
	output, logprobs := telltale()
	first := seen([]int32{1, 2}, output, logprobs...)
	second := seen(append(append([]int32{1, 2}, output...), 9), []int32{5, 7}, -0.5, 0)
	repeated := with(first, func(c *Call) { c.Output, c.Logprobs = []int32{6, 7}, []float32{-0.5, 0} })
	failed := with(first, func(c *Call) { c.Status, c.Output, c.Logprobs = 500, nil, nil })
	cut := with(first, func(c *Call) { c.Cut, c.Output, c.Logprobs = true, nil, nil })
	summary := with(first, func(c *Call) { c.Dialect, c.Prompt, c.Output, c.Logprobs, c.OutputTokens = "openai", nil, nil, nil, 40 })
	readable := with(summary, func(c *Call) { c.Prompt, c.Output, c.Logprobs = []int32{8, 8}, []int32{3, 3}, []float32{-1, -1} })
	again := func(c *Call) *Call {
		return with(second, func(o *Call) {
			o.Prompt, o.Output, o.Logprobs, o.Status, o.Cut = second.Prompt, c.Output, c.Logprobs, c.Status, c.Cut
		})
	}
	tests := []struct {
		name      string
		seen      []*Call // besides first and second
		own       bool    // the prompt names the agent
		summaries int
		want      tokenize.Unshown
	}{
		{name: "none"},
		{"of a named agent", []*Call{repeated, failed, failed, cut}, true, 0, tokenize.Unshown{Retries: 1, Failed: 2, Cut: 1}},
		{"of a prompt that others may have", []*Call{repeated, failed, cut}, false, 0, tokenize.Unshown{}},
		{"behind a call that nobody else has", []*Call{again(repeated), again(failed), again(cut)}, false, 0, tokenize.Unshown{Retries: 1, Failed: 1, Cut: 1}},
		{"of two rollouts that are alike", []*Call{first, second, again(repeated), again(failed)}, false, 0, tokenize.Unshown{}},
		{"of another time", []*Call{moved(repeated, time.Hour), moved(failed, time.Hour)}, true, 0, tokenize.Unshown{}},
		{"a summary", []*Call{summary}, true, 1, tokenize.Unshown{Summaries: 1}},
		{"a summary with ids", []*Call{readable}, true, 1, tokenize.Unshown{Summaries: 1}},
		{"summaries of others as well", []*Call{summary, readable, summary}, true, 2, tokenize.Unshown{Summaries: 2}},
		{"summaries of others", []*Call{summary, readable}, true, 0, tokenize.Unshown{}},
		{"a summary that the tap did not see", []*Call{moved(summary, time.Hour)}, true, 1, tokenize.Unshown{}},
		{"a call of another dialect that failed is no summary", []*Call{with(failed, func(c *Call) { c.Dialect, c.Prompt = "openai", []int32{8} })}, true, 1, tokenize.Unshown{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
			for _, c := range append(tt.seen, first, second) {
				if c.Dialect == "" {
					c = with(c, func(c *Call) { c.Dialect = "sglang" })
				}
				x.add(c)
			}
			r := one("r", -1, first, second)
			r.Sends[0].Summaries = tt.summaries
			if tt.own {
				r.Foreign = func(head func(int) []int32) bool { return head(1)[0] != 1 }
			}
			for range 2 { // the second Join returns the same, and adds nothing to the stats
				var got tokenize.Unshown
				for k, m := range x.Join(t.Context(), r) {
					if m.Call == nil {
						t.Fatalf("call %d: %v", k, m.Refusal)
					}
					got = got.Plus(m.Unshown)
				}
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
			want := map[string]int64{}
			for word, n := range tt.want.Each() {
				if n > 0 {
					want[word] = int64(n)
				}
			}
			if got := x.Stats().Unshown; !maps.Equal(got, want) {
				t.Errorf("the index counts %v, want %v", got, want)
			}
			other := one("other", -1)
			other.Sends[0].Summaries = tt.summaries
			for _, m := range x.Join(t.Context(), other) {
				t.Errorf("a rollout without calls has %v", m)
			}
		})
	}
}

// TestUnshownSummaryOnce proves that a summary is not counted for two rollouts.
func TestUnshownSummaryOnce(t *testing.T) {
	t.Parallel()
	output, logprobs := telltale()
	x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
	var calls []*Call
	for n := range int32(2) {
		calls = append(calls, seen([]int32{1, n}, append([]int32{n}, output...), append([]float32{-1}, logprobs...)...))
		calls[n].Dialect = "sglang"
		x.add(calls[n])
	}
	x.add(with(calls[0], func(c *Call) { c.Dialect, c.Prompt, c.Output, c.Logprobs, c.OutputTokens = "openai", nil, nil, nil, 40 }))
	sum := 0
	for n, id := range []string{"a", "b"} {
		r := one(id, -1, calls[n])
		r.Sends[0].Summaries = 1
		for _, m := range x.Join(t.Context(), r) {
			sum += int(m.Unshown.Summaries)
		}
	}
	if sum != 1 {
		t.Errorf("one summary was counted %d times", sum)
	}
}

// TestUnshownMemory proves that failed calls are dropped like all others.
func TestUnshownMemory(t *testing.T) {
	t.Parallel()
	x := NewIndex(IndexConfig{MaxBytes: 100 * sightingBytes}, &fakeFeed{done: true})
	for n := range int32(1000) {
		x.add(with(seen([]int32{n, 2}, nil), func(c *Call) { c.Status = 502 }))
	}
	s := x.Stats()
	if len(x.all) > 100 || len(x.broken) > 100 || s.Bytes > 100*sightingBytes || s.Broken != 1000 || s.Others+s.Retries+s.Evicted > 0 {
		t.Errorf("%d calls, %d prompts, %+v", len(x.all), len(x.broken), s)
	}
	for len(x.all) > 0 {
		x.drop()
	}
	if x.bytes() != 0 || len(x.broken) > 0 {
		t.Errorf("%d bytes, %d prompts after all was dropped", x.bytes(), len(x.broken))
	}
}
