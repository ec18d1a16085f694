package tap

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestChunks compares chunked prompts with plain slices, and proves that a release frees memory.
func TestChunks(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all := newChunks(newSeeds())
	var plain [][]int32
	var kept []prompt
	for range 300 {
		ids := make([]int32, r.IntN(5*chunkLen))
		for i := range ids {
			ids[i] = int32(r.IntN(2))
		}
		if n := len(plain); n > 0 && r.IntN(3) > 0 { // the next prompt of a chain
			head := plain[r.IntN(n)]
			ids = append(slices.Clone(head[:len(head)-min(len(head), r.IntN(2)*r.IntN(9))]), ids[:min(len(ids), 50)]...)
		}
		plain, kept = append(plain, ids), append(kept, all.keep(ids))
	}
	for i := range plain {
		if got := kept[i].append(nil); !slices.Equal(got, plain[i]) || kept[i].len() != len(plain[i]) {
			t.Fatalf("prompt %d: got %v, want %v", i, got, plain[i])
		}
		if n := r.IntN(700); !slices.Equal(kept[i].head(n), plain[i][:min(n, len(plain[i]))]) {
			t.Fatalf("prompt %d: the first %d are %v", i, n, kept[i].head(n))
		}
		for j := range plain {
			want := len(plain[i]) >= len(plain[j]) && slices.Equal(plain[i][:len(plain[j])], plain[j])
			if got := kept[i].begins(kept[j]); got != want {
				t.Fatalf("%d begins with %d: got %v, want %v", i, j, got, want)
			}
			lo := r.IntN(len(plain[i]) + 2)
			part := plain[j][:min(len(plain[j]), r.IntN(4))]
			want = lo+len(part) <= len(plain[i]) && slices.Equal(plain[i][lo:lo+len(part)], part)
			if got := kept[i].has(lo, part); got != want {
				t.Fatalf("%d has %v at %d: got %v, want %v", i, part, lo, got, want)
			}
		}
	}
	for _, p := range kept {
		all.release(p)
	}
	if all.bytes != 0 || len(all.m) != 0 {
		t.Errorf("%d bytes, %d chunks after all were released", all.bytes, len(all.m))
	}
}

// TestSentinels proves that an engine's value for minus infinity counts as unknown, like NaN.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := newSeeds()
	ids := []int32{5, 6}
	want := s.of(ids, []float32{-1, float32(math.NaN())})
	for _, v := range []float32{float32(math.Inf(-1)), -math.MaxFloat32, -9999, -1000.1, 0.5} {
		if s.of(ids, []float32{-1, v}) != want {
			t.Errorf("%v has extra bits", v)
		}
		if telling(slices.Repeat([]float32{v}, 2*tellingTokens)) {
			t.Errorf("%v identifies a prompt", v)
		}
	}
	if s.of(ids, []float32{-1, -1000}) == want || !telling(slices.Repeat([]float32{-1000}, tellingTokens)) {
		t.Error("-1000 is a log-probability")
	}
}

// seen returns a call that a tap saw one second after clock.
func seen(prompt, output []int32, logprobs ...float32) *Call {
	return &Call{
		Began: clock.Add(time.Second), Ended: clock.Add(2 * time.Second), Status: 200,
		Prompt: prompt, Output: output, Logprobs: logprobs, OutputTokens: int32(len(output)), Finish: "stop", Version: "3", Matched: 7, Cached: -1,
	}
}

// one returns a rollout with one send of these calls.
func one(id string, tokens int64, calls ...*Call) *Rollout {
	s := Send{From: clock, To: clock.Add(3 * time.Second), PromptTokens: tokens}
	for _, c := range calls {
		s.Calls = append(s.Calls, Sampled{c.Output, c.Logprobs})
	}
	return &Rollout{ID: id, Sends: []Send{s}}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	a := seen([]int32{1, 2}, []int32{5, 7}, -0.5, 0)
	tests := []struct {
		name     string
		seen     []*Call
		lost     bool
		behind   bool
		tokens   int64 // 0: 2
		foreign  int32
		want     Refusal
		finish   string
		versions string
	}{
		{name: "the only one", seen: []*Call{a}, finish: "stop", versions: "3"},
		{name: "other bits", seen: []*Call{seen([]int32{1, 2}, []int32{5, 7}, math.Nextafter32(-0.5, 0), 0)}, want: RefusedUnseen},
		{name: "other ids", seen: []*Call{seen([]int32{1, 2}, []int32{6, 7}, -0.5, 0)}, want: RefusedUnseen},
		{name: "minus 0", seen: []*Call{seen([]int32{1, 2}, []int32{5, 7}, -0.5, float32(math.Copysign(0, -1)))}, finish: "stop", versions: "3"},
		{name: "another time", seen: []*Call{moved(a, time.Hour)}, want: RefusedUnseen},
		{name: "clocks that differ", seen: []*Call{moved(a, 17*time.Second)}, finish: "stop", versions: "3"},
		{name: "two prompts", seen: []*Call{a, seen([]int32{1, 3}, a.Output, a.Logprobs...)}, want: RefusedLike},
		{name: "two with one prompt", seen: []*Call{a, with(a, func(c *Call) { c.Version = "4" })}, finish: "stop"},
		{name: "others may be missing", seen: []*Call{a}, lost: true, want: RefusedWeak},
		{name: "not all is there", seen: []*Call{a}, behind: true, want: RefusedWeak},
		{name: "the count is another", seen: []*Call{a}, tokens: 3, want: RefusedCount},
		{name: "no count", seen: []*Call{a}, tokens: -1, finish: "stop", versions: "3"},
		{name: "another agent's", seen: []*Call{a}, foreign: 1, want: RefusedForeign},
		{name: "one of them another agent's", seen: []*Call{a, seen([]int32{9, 3}, a.Output, a.Logprobs...)}, foreign: 9, finish: "stop", versions: "3"},
		{name: "without a prompt", seen: []*Call{with(a, func(c *Call) { c.Prompt = nil })}, want: RefusedUnread},
		{name: "an answer that ended early", seen: []*Call{with(a, func(c *Call) { c.Cut = true })}, want: RefusedUnseen},
		{name: "an error", seen: []*Call{with(a, func(c *Call) { c.Status = 500 })}, want: RefusedUnseen},
		{name: "tokens that nobody read", seen: []*Call{a, with(a, func(c *Call) { c.Output, c.OutputTokens = nil, -1 })}, want: RefusedWeak},
		{name: "tokens of a summary", seen: []*Call{a, with(a, func(c *Call) { c.Output, c.OutputTokens, c.Dialect = nil, 2, "openai" })}, finish: "stop", versions: "3"},
		{name: "another number of such tokens", seen: []*Call{a, with(a, func(c *Call) { c.Output, c.OutputTokens = nil, 9 })}, finish: "stop", versions: "3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := NewIndex(IndexConfig{}, &fakeFeed{done: !tt.behind})
			for _, c := range tt.seen {
				x.add(c)
			}
			if tt.lost {
				x.gaps = append(x.gaps, gap{clock, clock.Add(time.Minute), -1, ""})
			}
			if tt.tokens == 0 {
				tt.tokens = 2
			}
			r := one("r", tt.tokens, a)
			if tt.foreign > 0 {
				r.Foreign = func(head func(int) []int32) bool { return head(1)[0] == tt.foreign }
			}
			got := x.Join(context.Background(), r)[0]
			if got.Refusal != tt.want {
				t.Fatalf("got %q, want %q", got.Refusal, tt.want)
			}
			if got.Call == nil {
				return
			}
			if c := got.Call; !slices.Equal(c.Prompt, a.Prompt) || c.Finish != tt.finish || c.Version != tt.versions {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func with(c *Call, change func(*Call)) *Call {
	other := *c
	change(&other)
	return &other
}

func moved(c *Call, by time.Duration) *Call {
	return with(c, func(c *Call) { c.Began, c.Ended = c.Began.Add(by), c.Ended.Add(by) })
}

// TestJoinTwice joins a rollout twice, and other rollouts that have an equal call.
func TestJoinTwice(t *testing.T) {
	t.Parallel()
	a := seen([]int32{1, 2}, []int32{5, 7}, -0.5, 0)
	x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
	x.add(a)
	for i, tt := range []struct {
		id   string
		want Refusal
	}{{"one", RefusedNone}, {"one", RefusedNone}, {"two", RefusedTaken}} {
		if got := x.Join(t.Context(), one(tt.id, 2, a))[0].Refusal; got != tt.want {
			t.Errorf("join %d of %s: got %q, want %q", i, tt.id, got, tt.want)
		}
	}
	x.add(a) // as an agent of the same file makes it
	if got := x.Join(t.Context(), one("two", 2, a))[0]; got.Call == nil {
		t.Errorf("the second of two equal calls: %q", got.Refusal)
	}
	if s := x.Stats(); s.Calls != 2 || s.Claimed != 2 || s.Retries+s.Others != 0 {
		t.Errorf("stats %+v", s)
	}
	x.add(seen([]int32{1, 2}, []int32{6, 7}, -0.25, 0)) // a retry by the server
	x.add(seen([]int32{3, 4}, []int32{6, 7}, -0.25, 0))
	if s := x.Stats(); s.Retries != 1 || s.Others != 1 {
		t.Errorf("retries %d, others %d, want 1 and 1", s.Retries, s.Others)
	}
}

// TestIndexBound proves that a full index drops claimed calls first, and that it never counts a
// time as complete from which it dropped calls.
func TestIndexBound(t *testing.T) {
	t.Parallel()
	const most = 40 << 10
	x := NewIndex(IndexConfig{MaxBytes: most}, &fakeFeed{done: true})
	call := func(n int) *Call {
		prompt := make([]int32, 1000)
		for i := range prompt {
			prompt[i] = int32(n)
		}
		return moved(seen(prompt, []int32{int32(n), 7}, -0.5, 0), time.Duration(n)*time.Millisecond)
	}
	x.add(call(0))
	if m := x.Join(t.Context(), one("r0", 1000, call(0))); m[0].Call == nil {
		t.Fatalf("the first call: %q", m[0].Refusal)
	}
	for n := 1; n < 9; n++ {
		x.add(call(n))
	}
	if s := x.Stats(); s.Bytes > most || s.Evicted != 0 {
		t.Fatalf("stats %+v, want no call lost in %d bytes", s, most)
	}
	if m := x.Join(t.Context(), one("r1", 1000, call(1))); m[0].Call == nil {
		t.Errorf("a call beside one that was claimed: %q", m[0].Refusal)
	}
	for n := 9; n < 200; n++ {
		x.add(call(n))
	}
	if s := x.Stats(); s.Bytes > most || s.Evicted == 0 {
		t.Errorf("stats %+v, want calls evicted for %d bytes", s, most)
	}
	if m := x.Join(t.Context(), one("r2", 1000, call(2))); m[0].Refusal != RefusedUnseen {
		t.Errorf("a call that was dropped: %q", m[0].Refusal)
	}
	last := one("r199", 1000, call(199)) // other calls of its time were dropped
	if m := x.Join(t.Context(), last); m[0].Refusal != RefusedWeak {
		t.Errorf("a call whose match can have been dropped: %q", m[0].Refusal)
	}
	x.add(moved(call(1), 5*time.Hour))
	if s := x.Stats(); s.Bytes > 2*sightingBytes+6000 {
		t.Errorf("stats %+v, want old entries dropped", s)
	}
}

// TestJoinNeighbours decides equal outputs under several prompts by the neighboring calls.
func TestJoinNeighbours(t *testing.T) {
	t.Parallel()
	long := func(base int32) ([]int32, []float32) {
		ids, logprobs := make([]int32, tellingTokens), make([]float32, tellingTokens)
		for i := range ids {
			ids[i], logprobs[i] = base+int32(i), -0.5
		}
		return ids, logprobs
	}
	o1, l1 := long(100)
	o2, l2 := long(200)
	p1 := []int32{1, 2, 3}
	verbatim := append(append(slices.Clone(p1), o1...), 9)
	printed := append(slices.Clone(p1), 8, 9)
	weak := []int32{50, 7}
	tests := []struct {
		name  string
		calls [][]int32 // the prompts of the three calls: long, weak, long
		like  [][]int32 // other prompts of the weak call
		want  bool
		twice bool // another rollout had the first prompt too
	}{
		{"continues the call before", [][]int32{p1, verbatim, {4}}, [][]int32{{4, 4}}, true, false},
		{"begins the call after", [][]int32{{6, 6}, printed, append(slices.Clone(printed), 1)}, [][]int32{{4, 4}}, true, false},
		{"begins as the call before", [][]int32{p1, printed, {4}}, [][]int32{{4, 4}}, true, false},
		{"nothing decides", [][]int32{{6, 6}, printed, {4}}, [][]int32{{4, 4}}, false, false},
		{"two begin as the call before", [][]int32{p1, printed, {4}}, [][]int32{append(slices.Clone(p1), 5)}, false, false},
		{"begins as a call before that others had", [][]int32{p1, {6, 6}, {4}}, [][]int32{append(slices.Clone(p1), 5)}, false, true},
		{"the neighbours disagree", [][]int32{p1, verbatim, append(slices.Clone(printed), 1)}, [][]int32{printed}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
			calls := []*Call{seen(tt.calls[0], o1, l1...), seen(tt.calls[1], weak, 0, 0), seen(tt.calls[2], o2, l2...)}
			for _, c := range calls {
				x.add(c)
			}
			for _, p := range tt.like {
				x.add(seen(p, weak, 0, 0))
			}
			if tt.twice {
				x.add(seen(p1, o2, l2...))
			}
			m := x.Join(t.Context(), one("r", -1, calls...))
			if got := m[1].Call != nil; got != tt.want {
				t.Fatalf("found %v, want %v: %q", got, tt.want, m[1].Refusal)
			}
			if tt.want && !slices.Equal(m[1].Call.Prompt, tt.calls[1]) {
				t.Errorf("got %v, want %v", m[1].Call.Prompt, tt.calls[1])
			}
		})
	}
}

// TestJoinLoop joins a rollout whose model repeats its output.
func TestJoinLoop(t *testing.T) {
	t.Parallel()
	weak := []int32{50, 7}
	calls := []*Call{seen([]int32{1}, weak, 0, 0), seen([]int32{1, 2}, weak, 0, 0), seen([]int32{1, 2, 3}, weak, 0, 0)}
	for _, tt := range []struct {
		name string
		more *Call
		want bool
	}{{"alone", nil, true}, {"beside another's", seen([]int32{1, 2, 4}, weak, 0, 0), false}, {"with one more", seen([]int32{1, 2, 3, 4}, weak, 0, 0), false}} {
		x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
		for _, k := range []int{2, 0, 1} {
			x.add(calls[k])
		}
		if tt.more != nil {
			x.add(tt.more)
		}
		for k, m := range x.Join(t.Context(), one("r", 6, calls...)) {
			if (m.Call != nil) != tt.want || tt.want && len(m.Call.Prompt) != k+1 {
				t.Errorf("%s: call %d: got %+v", tt.name, k, m)
			}
		}
	}
}

// BenchmarkIndexJoin measures a rollout of 10 calls that grow to 8,000 ids, from delivery to claim.
func BenchmarkIndexJoin(b *testing.B) {
	x := NewIndex(IndexConfig{}, &fakeFeed{done: true})
	calls := make([]*Call, 10)
	for k := range calls {
		calls[k] = seen(make([]int32, 800*(k+1)), make([]int32, 300), make([]float32, 300)...)
		for i := range calls[k].Prompt {
			calls[k].Prompt[i] = int32(i)
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		for k, c := range calls {
			for i := range c.Output {
				c.Output[i], c.Logprobs[i] = int32(i+k), -float32(n*300+i+1)/(1<<24)
			}
			for i := range c.Prompt {
				c.Prompt[i] = int32(i + n*8000)
			}
			x.add(c)
		}
		for _, m := range x.Join(context.Background(), one(fmt.Sprint(n), -1, calls...)) {
			if m.Call == nil {
				b.Fatal(m.Refusal)
			}
		}
	}
	b.ReportMetric(float64(x.Stats().Bytes)/float64(len(x.all))*10, "bytes/rollout")
}
