package proxy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize"
)

func insideEngine(tb testing.TB, d enginesim.Dialect, experts tokenize.ExpertShape, masks bool) *enginesim.Engine {
	tb.Helper()
	cfg := enginesim.Config{Version: "step-5", MaxModelLen: 4096, Dialect: d, Experts: experts, SamplingMask: masks, VersionSpans: true}
	var err error
	if cfg.Tokenizer, cfg.Template, err = enginesim.SmallModel(); err != nil {
		tb.Fatal(err)
	}
	e, err := enginesim.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// sameInside compares the values from inside a recorded call with the engine's values.
func sameInside(t *testing.T, got *tap.Call, experts tokenize.ExpertShape, masks bool) {
	t.Helper()
	all := slices.Concat(got.Prompt, got.Output)
	want := tokenize.Experts{Shape: experts}
	for i := range len(all) - 1 {
		for _, id := range enginesim.Experts(experts, all[:i+1]) {
			want.Append(int64(id))
		}
	}
	if got.Experts.Shape != experts || !slices.Equal(got.Experts.IDs, want.IDs) || len(want.IDs) == 0 {
		t.Errorf("the call has %d bytes of experts that are not the %d bytes of the engine", len(got.Experts.IDs), len(want.IDs))
	}
	mask := got.SamplingMask
	for i, id := range got.Output {
		want := enginesim.Mask(all[:len(got.Prompt)+i], id)
		if !masks {
			continue
		}
		if n := int(got.MaskLengths[i]); !slices.Equal(mask[:n], want) {
			t.Errorf("token %d has the mask %v, want %v", i, mask[:n], want)
		}
		mask = mask[got.MaskLengths[i]:]
	}
	if !masks && got.MaskLengths != nil || len(mask) > 0 {
		t.Errorf("%d ids of masks are left", len(mask))
	}
}

// TestInside tests that the tap requests the values from inside a call, also in streams, and records the
// engine's values. It hides them from a client that did not request them.
func TestInside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		dialect enginesim.Dialect
		shape   tokenize.ExpertShape
		masks   bool
	}{
		{enginesim.DialectVLLM, tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}, false},
		{enginesim.DialectVLLM, tokenize.ExpertShape{Layers: 2, TopK: 3, Experts: 512}, false},
		{enginesim.DialectSGLang, tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}, true},
		{enginesim.DialectSGLangFirst, tokenize.ExpertShape{Layers: 2, TopK: 1, Experts: 256}, true},
	} {
		t.Run(fmt.Sprint(test.dialect, test.shape), func(t *testing.T) {
			t.Parallel()
			engine := insideEngine(t, test.dialect, test.shape, true)
			r := newSessionRig(t, proxy.Config{Inside: tokenize.Inside{Experts: test.shape, SamplingMask: test.masks}}, engine)
			if err := r.proxy.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			key := r.begin(t)
			for _, stream := range []bool{false, true} {
				for _, script := range []string{"single", "tool", "unicode"} {
					status, text := r.call(t, key, chatBody(script, stream, ""))
					if status != http.StatusOK || strings.HasPrefix(text, "data:") != stream || strings.Contains(text, "experts") || strings.Contains(text, "mask") {
						t.Fatalf("%s, stream %v: %d %s", script, stream, status, text)
					}
				}
			}
			if status, text := r.call(t, key, chatBody("single", false, `,"return_routed_experts":true`)); status != http.StatusOK || test.dialect == enginesim.DialectVLLM && !strings.Contains(text, "routed_experts") {
				t.Errorf("a client that asks: %d %s", status, text)
			}
			rec := r.record(t, key)
			if len(rec.Calls) != 7 {
				t.Fatalf("%d calls were recorded, want 7", len(rec.Calls))
			}
			for i := range rec.Calls {
				if rec.Calls[i].Unread != "" {
					t.Errorf("call %d: %s", i, rec.Calls[i].Unread)
				}
				sameInside(t, &rec.Calls[i].Call, test.shape, test.masks)
			}
		})
	}
}

// TestInsideGenerate tests the same without sessions, for whole and streamed answers of SGLang's
// own API.
func TestInsideGenerate(t *testing.T) {
	t.Parallel()
	shape := tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}
	var calls []*tap.Call
	r := newRig(t, proxy.Config{Inside: tokenize.Inside{Experts: shape, SamplingMask: true}, AskIDs: true, Keep: func(c *tap.Call) bool {
		own := *c
		own.Prompt, own.Output, own.Experts.IDs = slices.Clone(c.Prompt), slices.Clone(c.Output), slices.Clone(c.Experts.IDs)
		own.SamplingMask, own.MaskLengths = slices.Clone(c.SamplingMask), slices.Clone(c.MaskLengths)
		calls = append(calls, &own)
		return true
	}}, insideEngine(t, enginesim.DialectSGLang, shape, true))
	for _, stream := range []bool{false, true} {
		if status, text := r.post(t, "/generate", fmt.Sprintf(`{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":9},"stream":%v}`, stream)); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, c := range calls {
		sameInside(t, c, shape, true)
	}
}

// TestInsideMisshapen tests that a call with values of another shape is not usable, and that the error
// of the trial names the missing value.
func TestInsideMisshapen(t *testing.T) {
	t.Parallel()
	for _, d := range []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLang} {
		engine := insideEngine(t, d, tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}, false)
		for _, shape := range []tokenize.ExpertShape{{Layers: 5, TopK: 3, Experts: 128}, {Layers: 3, TopK: 2, Experts: 9}} {
			r := newSessionRig(t, proxy.Config{Inside: tokenize.Inside{Experts: shape}}, engine)
			if err := r.proxy.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "no routed experts of the configured shape") {
				t.Errorf("%s, %s: Probe returned %v", d, shape, err)
			}
		}
		r := newSessionRig(t, proxy.Config{Inside: tokenize.Inside{SamplingMask: true}}, engine)
		if err := r.proxy.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "no sampling masks") {
			t.Errorf("%s: Probe returned %v", d, err)
		}
	}
}

// TestInsideChanged tests that a call is recorded as not usable if its experts have another shape,
// because the engine was restarted with another model.
func TestInsideChanged(t *testing.T) {
	t.Parallel()
	shape := tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}
	engines := []*enginesim.Engine{insideEngine(t, enginesim.DialectVLLM, shape, false), insideEngine(t, enginesim.DialectVLLM, tokenize.ExpertShape{Layers: 2, TopK: 2, Experts: 128}, false)}
	now := 0
	r := newSessionRig(t, proxy.Config{Inside: tokenize.Inside{Experts: shape}}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { engines[now].ServeHTTP(w, req) }))
	if err := r.proxy.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = 1
	key := r.begin(t)
	if status, text := r.call(t, key, chatBody("single", false, "")); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	rec := r.record(t, key)
	rec.Head.Task = nil
	out, err := session.Build(rec, session.Config{TrainAuxiliary: true})
	if err != nil || out.Calls[0].Reason != tokenize.ReasonLengthMismatch || !strings.Contains(out.Calls[0].Note, "in the shape of output.routed_experts") {
		t.Errorf("Build: %v %q (%v)", out.Calls[0].Reason, out.Calls[0].Note, err)
	}
	if c := rec.Calls[0]; c.Unread != session.UnreadExperts || c.Experts.IDs != nil || len(c.Output) == 0 {
		t.Errorf("recorded %q with %d bytes of experts and %d ids", c.Unread, len(c.Experts.IDs), len(c.Output))
	}
}
