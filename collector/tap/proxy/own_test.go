package proxy_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

type bystander struct{}

func (bystander) Prompt([]int32) ([]int32, int) { return nil, 0 }
func (bystander) Answered(*tap.Call)            {}

// A continuer replaces the prompt, or panics.
type continuer struct {
	sent    []int32
	spliced int
	panics  bool
	mu      sync.Mutex
	calls   []*tap.Call
}

func (c *continuer) Prompt([]int32) ([]int32, int) {
	if c.panics {
		panic("a fault")
	}
	return c.sent, c.spliced
}

func (c *continuer) Answered(call *tap.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, cloned(call))
	if c.panics {
		panic("another fault")
	}
}

// TestContinuer proves that the engine gets the Continuer's prompt in an otherwise unchanged body,
// and that the call has both prompts.
func TestContinuer(t *testing.T) {
	t.Parallel()
	engine := &answers{text: answered(4, []int32{7})}
	c := &continuer{sent: []int32{9, 8, 7, 6}}
	r := newRig(t, proxy.Config{Continuer: c}, engine)
	r.post(t, "/generate", `{"x": [1], "input_ids": [ 1, 2 ], "sampling_params": {"top_p": 0.9}}`)
	if got := engine.got()[0]; got != `{"x": [1], "input_ids": [9,8,7,6], "sampling_params": {"top_p": 0.9}}` {
		t.Errorf("the engine got %s", got)
	}
	call := r.kept.one(t)
	if !slices.Equal(call.Asked, []int32{1, 2}) || !slices.Equal(call.Prompt, c.sent) || len(call.Output) != 1 {
		t.Errorf("kept %+v", call)
	}
	if len(c.calls) != 1 || !slices.Equal(c.calls[0].Asked, call.Asked) || !slices.Equal(c.calls[0].Output, call.Output) {
		t.Errorf("the continuer received %d calls", len(c.calls))
	}
	if s := r.proxy.Stats(); s.Continued != 1 || sum(s.Continuity.Counts) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestContinuerOfAnotherPrompt proves that the Continuer gets the prompt that it knows even if the
// engine counts another one, and then no output.
func TestContinuerOfAnotherPrompt(t *testing.T) {
	t.Parallel()
	c := &continuer{}
	r := newRig(t, proxy.Config{Continuer: c}, &answers{text: answered(3, []int32{7})})
	r.post(t, "/generate", asked([]int32{1, 2}))
	if got := c.calls[0]; !slices.Equal(got.Prompt, []int32{1, 2}) || got.Output != nil || got.Status != http.StatusOK {
		t.Errorf("the continuer received %+v", got)
	}
	if got := r.kept.one(t); got.Prompt != nil || len(got.Output) != 1 {
		t.Errorf("kept %+v", got)
	}
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestOwnFaults proves that faults of the tap's own parts harm no call: the body passes unchanged.
func TestOwnFaults(t *testing.T) {
	t.Parallel()
	ask := asked([]int32{1, 2})
	for _, c := range []struct {
		name  string
		cfg   proxy.Config
		body  int64 // the limit of a body; 0 means the default
		check func(s proxy.Stats) bool
	}{
		{"the continuer panics", proxy.Config{Continuer: &continuer{panics: true}}, 0, func(s proxy.Stats) bool {
			return s.Panics == 2 && s.Kept == 0 && s.Dropped == 0 || s.Panics == 2 && s.Kept == 1
		}},
		{"nothing can be kept", proxy.Config{Keep: func(*tap.Call) bool { return false }}, 0, func(s proxy.Stats) bool { return s.Dropped == 1 }},
		{"keeping panics", proxy.Config{Keep: func(*tap.Call) bool { panic("a fault") }}, 0, func(s proxy.Stats) bool { return s.Dropped == 1 && s.Panics == 1 }},
		{"too large", proxy.Config{}, 20, func(s proxy.Stats) bool { return s.Unread["too_large"] == 1 && s.Kept == 1 }},
	} {
		engine := &answers{text: answered(2, []int32{7})}
		r := newRig(t, c.cfg, engine)
		r.proxy.Limits().BodyBytes = cmp.Or(c.body, r.proxy.Limits().BodyBytes)
		want := engine.text
		if c.cfg.Continuer != nil {
			want = withMark(want, 0)
		}
		status, got := r.post(t, "/generate", ask)
		if status != http.StatusOK || got != want || engine.got()[0] != ask {
			t.Errorf("%s: the client got %d %s, the engine %s", c.name, status, got, engine.got())
		}
		if s := r.proxy.Stats(); !c.check(s) || s.BodyBytes != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// TestMemoryBound proves that bodies beyond the memory limit pass unread.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, proxy.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Wait") != "" {
			began <- struct{}{}
			<-release
		}
		_, _ = w.Write([]byte("{}"))
	}))
	r.proxy.Limits().MemoryBytes = 50
	var all sync.WaitGroup
	all.Go(func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/generate", strings.NewReader(asked([]int32{1, 2})))
		req.Header.Set("Wait", "1")
		res, err := r.client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
	})
	<-began
	if s := r.proxy.Stats(); s.BodyBytes < 80 || s.BodyBytes > 130 || s.Open != 1 {
		t.Errorf("held %d bytes of %d requests", s.BodyBytes, s.Open)
	}
	if _, got := r.post(t, "/generate", asked([]int32{1})); got != "{}" {
		t.Errorf("got %s", got)
	}
	if s := r.proxy.Stats(); s.Unread["too_large"] != 1 {
		t.Errorf("unread %v", s.Unread)
	}
	close(release)
	all.Wait()
}

// TestLongPrompt proves that a prompt of 32k ids is parsed like one of three.
func TestLongPrompt(t *testing.T) {
	t.Parallel()
	ids := make([]int32, 32<<10)
	for i := range ids {
		ids[i] = int32(i * 4)
	}
	engine := &answers{text: answered(len(ids), ids[:4096])}
	r := newRig(t, proxy.Config{}, engine)
	if _, got := r.post(t, "/generate", asked(ids)); got != engine.text {
		t.Errorf("the client got %d bytes", len(got))
	}
	if c := r.kept.one(t); !slices.Equal(c.Prompt, ids) || len(c.Output) != 4096 || c.Logprobs[4095] != c.Logprobs[4095] {
		t.Errorf("kept %d and %d ids", len(c.Prompt), len(c.Output))
	}
}
