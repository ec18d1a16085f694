package prompt_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A fed is a tap that delivers the calls of a test.
type fed struct {
	mu   sync.Mutex
	all  []*tap.Call
	down error
	gone chan struct{} // closed when all are delivered
}

func (f *fed) Next(ctx context.Context) (*tap.Call, error) {
	f.mu.Lock()
	if len(f.all) > 0 {
		defer f.mu.Unlock()
		c := f.all[0]
		f.all = f.all[1:]
		return c, nil
	}
	f.mu.Unlock()
	close(f.gone)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *fed) Await(ctx context.Context, _ time.Time) error {
	select {
	case <-f.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fed) Skew() time.Duration     { return 0 }
func (f *fed) Trouble() (int64, error) { return 0, f.down }

// taps returns an index of these calls, with current times.
func taps(t *testing.T, all []*tap.Call, down error) *tap.Index {
	t.Helper()
	x := tap.NewIndex(tap.IndexConfig{Slack: 10 * time.Minute, Since: time.Now().Add(-time.Hour)}, &fed{all: all, down: down, gone: make(chan struct{})})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return x
}

// tapped returns the tap's calls of a recording that is played now.
func (r *recording) tapped() (all []*tap.Call) {
	now := time.Now()
	for _, e := range r.Exchanges {
		for _, c := range e.ModelCalls {
			meta := &c.Response.MetaInfo
			seen := &tap.Call{
				Began: now, Ended: now, Status: c.Status, Dialect: "sglang", Prompt: c.InputIDs, Output: c.Response.OutputIDs,
				Finish: meta.FinishReason.Type, Version: meta.Version, OutputTokens: int32(len(c.Response.OutputIDs)),
				Sampling: tap.Sampling{Temperature: new(float64(1)), TopP: new(0.9), MaxNewTokens: new(int64(4096))},
			}
			if c.Path != "/generate" {
				seen.Dialect, seen.OutputTokens = "openai", 31
			}
			for _, item := range meta.Logprobs {
				f := float32(math.NaN())
				if item[0] != nil {
					f = *item[0]
				}
				seen.Logprobs = append(seen.Logprobs, f)
			}
			all = append(all, seen)
		}
	}
	return all
}

// TestTappedSamples runs every recording through the whole collector with a tap. Every call has its
// true prompt, even after a compaction, without requests for records.
func TestTappedSamples(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	calls := 0
	for _, rec := range provable(t) {
		truths := rec.truths()
		if rec.name == "compaction" {
			truths = truths[:2] // the first send ends the sample
		}
		p := newPrompter(t, prompt.Config{Tap: taps(t, rec.tapped(), nil), Model: model})
		s := rec.sample(t, lettasim.Config{}, p)
		n, err := checkGrade(s, truths, tokenize.Exact)
		if err != nil {
			t.Errorf("%s: %v", rec.name, err)
		}
		if n > 0 && n != len(truths) {
			t.Errorf("%s: %d of %d calls in rows", rec.name, n, len(truths))
		}
		calls += n
		var unshown tokenize.Unshown
		if rec.name == "compaction" {
			unshown.Summaries = 1 // the other two belong to the second send
		}
		if s.Unshown != unshown {
			t.Errorf("%s: counts %q that no answer shows, want %q", rec.name, s.Unshown, unshown)
		}
		if n > 0 && p.Stats().Requests.Total() > 0 {
			t.Errorf("%s: requested %v from the server", rec.name, p.Stats().Requests.BySource())
		}
		for i := range s.Rows {
			if r := &s.Rows[i]; r.Source != tokenize.SourceTap || slices.Contains(r.FinishReasons, "") || r.Flags&tokenize.FlagSpliced != 0 {
				t.Errorf("%s: row %d: source %v, finish %q, flags %v", rec.name, i, r.Source, r.FinishReasons, r.Flags)
			}
		}
		if m := &s.Sampling; n > 0 && (m.Temperature == nil || *m.TopP != 0.9 || *m.MaxNewTokens != 4096 || m.TopK != nil) {
			t.Errorf("%s: sampling %+v", rec.name, m)
		}
	}
	// The calls of TestRecordedSamples, and the call of nan: a tap needs no trace.
	if calls != 74 {
		t.Errorf("%d calls have their true context, want 74", calls)
	}
}

// TestTapFallsBack removes calls of the tap. Each missing call gets its prompt from the next
// source, with the reason in its note, and no facts that a tap might have changed.
func TestTapFallsBack(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	rec := recordingOf(t, "tool-two")
	for _, tt := range []struct {
		name    string
		without func([]*tap.Call) []*tap.Call
		down    error
		force   tokenize.PromptSource
		exact   int // number of calls
		note    string
	}{
		{name: "all of it", without: func([]*tap.Call) []*tap.Call { return nil }, note: "no tap saw the call"},
		{name: "one call", without: func(c []*tap.Call) []*tap.Call { return c[1:] }, exact: 2},
		{name: "a tap that is down", without: func([]*tap.Call) []*tap.Call { return nil }, down: errors.New("connection refused")},
		{name: "no other source", without: func(c []*tap.Call) []*tap.Call { return c[1:] }, force: tokenize.SourceTap, exact: 2, note: "tap: no tap saw the call"},
		{name: "a prompt that was changed", without: func(c []*tap.Call) []*tap.Call {
			c[1].Asked = []int32{1}
			return c
		}, exact: 3},
		{name: "a prompt that the count refutes", without: func(c []*tap.Call) []*tap.Call {
			c[1].Prompt = append(slices.Clone(c[1].Prompt), 1)
			return c
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			truths := rec.truths()
			p := newPrompter(t, prompt.Config{Tap: taps(t, tt.without(rec.tapped()), tt.down), Model: model, Force: tt.force})
			s := rec.sample(t, lettasim.Config{}, p)
			seen := make([]bool, len(truths))
			exact := 0
			for i := range s.Rows {
				r := &s.Rows[i]
				if err := checkRow(r, truths, seen); err != nil {
					t.Error(err)
				}
				if r.Grade == tokenize.Exact {
					exact += int(r.LastCall - r.FirstCall)
				}
				if want := tt.exact == len(truths); (r.Flags&tokenize.FlagSpliced != 0) != want {
					t.Errorf("row %d: flags %v", i, r.Flags)
				}
			}
			switch {
			case tt.force == tokenize.SourceNone && slices.Contains(seen, false):
				t.Errorf("calls in rows %v", seen)
			case tt.force == tokenize.SourceTap && (len(s.Failures) != 1 || !strings.Contains(s.Failures[0].Error, tt.note)):
				t.Errorf("failures %+v", s.Failures)
			}
			if exact != tt.exact && tt.exact != 2 {
				t.Errorf("%d calls in exact rows, want %d", exact, tt.exact)
			}
			if full := exact == len(truths); !full && s.Sampling != (tokenize.Sampling{}) {
				t.Errorf("sampling %+v of calls that no tap saw", s.Sampling)
			}
		})
	}
}

func headOf(ids []int32) func(n int) []int32 {
	return func(n int) []int32 { return ids[:min(n, len(ids))] }
}

// TestForeign checks the search for the agent's id in prompts.
func TestForeign(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	const own, other = "agent-0d0e8f6e-3f0e-4c59-9f4b-3b8b2c7a1e55", "agent-1d0e8f6e-3f0e-4c59-9f4b-3b8b2c7a1e55"
	p := newPrompter(t, prompt.Config{Model: model})
	r := record.New(nil)
	r.Agent = &letta.AgentState{ID: own}
	if r.SystemText = "Be kind. - AGENT_ID: " + other; p.Foreign(r) != nil {
		t.Error("the messages of an agent file name another agent, and prompts are looked at")
	}
	r.SystemText = "Be kind. - AGENT_ID: " + own
	foreign := p.Foreign(r)
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"own", "system - AGENT_ID: " + own + " user Hi", false},
		{"another", "system - AGENT_ID: " + other + " user Hi", true},
		{"none", "Hi", true},
		{"another, that talks of it", "- AGENT_ID: " + other + " ask " + own, true},
		{"late", strings.Repeat("word after word, ", 3000) + own, false},
		{"between two looks", strings.Repeat("a ", 1016) + own, false},
	} {
		ids := encode(t, model, tt.text)
		if got := foreign(headOf(ids)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if !foreign(headOf([]int32{1 << 30})) {
		t.Error("ids without a token pass for the agent's")
	}
}

// TestTappedVersions: each token has the version of its span in the tap. If the engine reports
// several versions without spans, no token has one.
func TestTappedVersions(t *testing.T) {
	t.Parallel()
	rec := recordingOf(t, "single")
	for _, tt := range []struct {
		name, word string
		spans      []tokenize.VersionSpan
		one        int32
		each       []int32
	}{
		{"none", "7", nil, 7, nil},
		{"two", "8", []tokenize.VersionSpan{{Version: "7", End: 4}, {Version: "8", Start: 4, End: 10}}, -1, []int32{7, 7, 7, 7, 8, 8, 8, 8, 8, 8}},
		{"a span that cannot be read", "8", []tokenize.VersionSpan{}, -1, slices.Repeat([]int32{-1}, 10)},
	} {
		seen := rec.tapped()
		seen[0].Version, seen[0].Versions, seen[0].Matched = tt.word, tt.spans, 151645
		p := newPrompter(t, prompt.Config{Force: tokenize.SourceTap, Tap: taps(t, seen, nil)})
		reply := live(t, rec)
		for i := range reply.Evidence.Sends {
			reply.Evidence.Sends[i].Began, reply.Evidence.Sends[i].Ended = time.Now().Add(-time.Second), time.Now().Add(time.Second)
		}
		calls := must(p.Prompts(t.Context(), &reply.Reply, reply.Evidence))(t)
		if c := &calls[0]; c.Grade != tokenize.Exact || c.Version != tt.one || !slices.Equal(c.Versions, tt.each) || c.VersionFrom != tokenize.VersionTap || c.StopID == nil || *c.StopID != 151645 {
			t.Errorf("%s: %v %d %v (%s)", tt.name, c.Grade, c.Version, c.Versions, c.Note)
		}
	}
}
