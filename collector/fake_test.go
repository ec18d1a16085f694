package collector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// A step is the script of one attempt. The zero step is a good rollout without delay.
type step struct {
	openErr, runErr, closeErr error
	takes                     time.Duration // duration of Run
	closing                   time.Duration // duration of Close, unless its context ends first
	hang, opening             bool          // Run, or Open, waits for the end of its context
	reply                     func() *collector.Reply
	prompts                   promptsFunc // nil: the backend's
}

// A scripted backend follows its script for each attempt, and records the calls of the collector.
type scripted struct {
	script  func(a collector.Attempt) step
	prompts promptsFunc // nil: fromTurns

	mu       sync.Mutex
	opened   []string // rollout ids, in order
	closed   map[string]int
	inFlight int
	most     int // in flight at a time
}

func (b *scripted) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	var s step
	if b.script != nil {
		s = b.script(a)
	}
	if s.opening {
		<-ctx.Done()
		return nil, fmt.Errorf("create: %w", ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened = append(b.opened, collector.RolloutID(a.Key, a.N))
	if s.openErr != nil {
		return nil, s.openErr
	}
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	return &scriptedAgent{b: b, a: a, step: s}, nil
}

// A promptsFunc is the Prompts of every agent of a backend.
type promptsFunc func(context.Context, *collector.Reply) ([]tokenize.Call, error)

// promptsOf returns a Prompts function for cfg and for replies whose server stores nothing.
func promptsOf(tb testing.TB, cfg prompt.Config) promptsFunc {
	tb.Helper()
	p, err := prompt.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return func(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) { return p.Prompts(ctx, r, nil) }
}

// fromTurns takes the prompts from the turns.
func fromTurns(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	p, err := prompt.New(prompt.Config{})
	if err != nil {
		return nil, err
	}
	return p.Prompts(ctx, r, nil)
}

// check fails the test unless every agent was closed exactly once.
func (b *scripted) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight != 0 {
		t.Errorf("%d agents are left", b.inFlight)
	}
	for id, n := range b.closed {
		if n != 1 {
			t.Errorf("agent of %s was closed %d times", id, n)
		}
	}
}

type scriptedAgent struct {
	b     *scripted
	a     collector.Attempt
	step  step
	reply *collector.Reply
}

func (g *scriptedAgent) ID() string { return "agent-" + collector.RolloutID(g.a.Key, g.a.N) }

func (g *scriptedAgent) Run(ctx context.Context) (*collector.Reply, error) {
	wait := g.step.takes
	if g.step.hang {
		wait = 1000 * time.Hour
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("send: %w", ctx.Err())
		}
	}
	if g.step.reply != nil {
		g.reply = g.step.reply()
	} else if g.step.runErr == nil {
		g.reply = goodReply()
	}
	return g.reply, g.step.runErr
}

func (g *scriptedAgent) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	switch {
	case g.step.prompts != nil:
		return g.step.prompts(ctx, r)
	case g.b.prompts != nil:
		return g.b.prompts(ctx, r)
	}
	return fromTurns(ctx, r)
}

// Close corrupts the reply, which is not valid any longer.
func (g *scriptedAgent) Close(ctx context.Context) error {
	if g.step.closing > 0 {
		select {
		case <-time.After(g.step.closing):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.inFlight--
	if g.b.closed == nil {
		g.b.closed = make(map[string]int)
	}
	g.b.closed[collector.RolloutID(g.a.Key, g.a.N)]++
	if g.reply != nil {
		for _, s := range g.reply.Sends {
			for _, turn := range s.Turns {
				fill(turn.PromptIDs, -99)
				fill(turn.OutputIDs, -99)
				fill(turn.Logprobs, 99)
			}
		}
		*g.reply = collector.Reply{}
	}
	return g.step.closeErr
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// goodReply has two calls with a tool result in between. They make one row; sampled ids are in
// brackets:
//
//	1 2 3 [10 11] 5 6 [12]
func goodReply() *collector.Reply {
	return &collector.Reply{
		AgentID: "agent-1", Model: "test/model", Output: "twelve",
		Sends: []collector.Send{{
			Turns: []tokenize.Turn{
				{Role: tokenize.RoleAssistant, PromptIDs: []int32{1, 2, 3}, OutputIDs: []int32{10, 11}, Logprobs: []float32{-1, -2}, IDMismatch: -1, Content: "ten"},
				{Role: tokenize.RoleTool, Content: "sunny", ToolName: "weather", IDMismatch: -1},
				{Role: tokenize.RoleAssistant, PromptIDs: []int32{1, 2, 3, 10, 11, 5, 6}, OutputIDs: []int32{12}, Logprobs: []float32{-3}, IDMismatch: -1, Content: "twelve"},
			},
			RunID: "run-1", StopReason: "end_turn",
			Usage: collector.Usage{PromptTokens: 10, CompletionTokens: 3, Steps: 2},
		}},
	}
}

// A shelf is a sink in memory. It commits on settle, or at once.
type shelf struct {
	atOnce bool
	err    func(n int) error // of the n-th Append, from 0
	takes  time.Duration

	mu      sync.Mutex
	n       int
	samples []*tokenize.Sample
	waiting []func(error)
}

func (s *shelf) Append(ctx context.Context, sample *tokenize.Sample, done func(error)) error {
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	n := s.n
	s.n++
	if s.err != nil {
		if err := s.err(n); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.samples = append(s.samples, sample)
	if !s.atOnce {
		s.waiting = append(s.waiting, done)
	}
	s.mu.Unlock()
	if s.atOnce {
		done(nil)
	}
	return nil
}

func (s *shelf) settle(err error) {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, done := range waiting {
		done(err)
	}
}

// tasks yields n tasks t0, t1, …
func tasks(n int) iter.Seq2[*collector.Task, error] { return each(n, func(int) {}) }

// each yields n tasks t0, t1, … and calls before with the number of each task before that.
func each(n int, before func(i int)) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for i := range n {
			before(i)
			if !yield(task("t%d", i), nil) {
				return
			}
		}
	}
}

// setup makes a collector with one endpoint, one worker and no jitter. edit can change every
// setting.
func setup(t *testing.T, b collector.Backend, s collector.Sink, edit func(*collector.Config)) *collector.Collector {
	t.Helper()
	cfg := collector.Config{
		RunID:     "run",
		Endpoints: []collector.Endpoint{{Name: "a", Backend: b, MaxInFlight: 1}},
		Sink:      s,
		Jitter:    func() float64 { return 0 },
	}
	if edit != nil {
		edit(&cfg)
	}
	c, err := collector.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// identity fails the test unless the counts add up.
func identity(t *testing.T, s collector.Stats) {
	t.Helper()
	if s.Planned != s.Committed+s.Filtered+s.Failed+s.Skipped+s.Remaining || s.Remaining < s.Accepted {
		t.Errorf("planned %d ≠ committed %d + filtered %d + failed %d + skipped %d + remaining %d (accepted %d, in flight %d)",
			s.Planned, s.Committed, s.Filtered, s.Failed, s.Skipped, s.Remaining, s.Accepted, s.InFlight)
	}
	byClass := 0
	for _, n := range s.ByClass {
		byClass += n
	}
	if byClass != s.Failed {
		t.Errorf("%d failed, but by class %d: %v", s.Failed, byClass, s.ByClass)
	}
}

// counts fails the test unless the Stats have these four numbers, and returns the Stats.
func counts(t *testing.T, c *collector.Collector, committed, failed, skipped, remaining int) collector.Stats {
	t.Helper()
	return counted(t, c.Stats(), committed, failed, skipped, remaining)
}

func counted(t *testing.T, s collector.Stats, committed, failed, skipped, remaining int) collector.Stats {
	t.Helper()
	identity(t, s)
	if s.Committed != committed || s.Failed != failed || s.Skipped != skipped || s.Remaining != remaining {
		t.Errorf("committed, failed, skipped, remaining = %d, %d, %d, %d, want %d, %d, %d, %d",
			s.Committed, s.Failed, s.Skipped, s.Remaining, committed, failed, skipped, remaining)
	}
	return s
}

// except returns a script with another step for one task.
func except(id string, its, others step) func(collector.Attempt) step {
	return func(a collector.Attempt) step {
		if a.Task.ID == id {
			return its
		}
		return others
	}
}

// fails fails the test unless Run returns an error that wraps want.
func fails(ctx context.Context, t *testing.T, c *collector.Collector, source iter.Seq2[*collector.Task, error], want error) {
	t.Helper()
	if err := c.Run(ctx, source); !errors.Is(err, want) {
		t.Errorf("Run = %v, want %v", err, want)
	}
}

// same fails the test unless got has the elements of want.
func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

// finish runs c over the tasks, fails the test on an error, and returns the duration.
func finish(t *testing.T, c *collector.Collector, source iter.Seq2[*collector.Task, error]) time.Duration {
	t.Helper()
	start := time.Now()
	if err := c.Run(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

var errPlain = errors.New("plain")
