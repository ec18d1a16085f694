package collector_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
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

// always is the script of attempts that all follow one step.
func always(st step) func(collector.Attempt) step {
	return func(collector.Attempt) step { return st }
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

func (b *scripted) closedOnce(tb testing.TB) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	is(tb, "agents that are left", b.inFlight, 0)
	for id, n := range b.closed {
		is(tb, "closes of the agent of "+id, n, 1)
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
	err := g.step.closeErr
	if g.step.closing > 0 {
		select {
		case <-time.After(g.step.closing):
		case <-ctx.Done():
			err = ctx.Err()
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
	return err
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

func task(format string, args ...any) *collector.Task {
	return &collector.Task{ID: fmt.Sprintf(format, args...), Messages: []string{"hello"}}
}

// number returns the number of the task of an attempt at tasks(n).
func number(a collector.Attempt) int {
	n, _ := strconv.Atoi(a.Task.ID[1:])
	return n
}

// A rig is a collector under test. The test edits its configuration before the first run: one
// endpoint a for one sample at a time, whose backend follows a script, a sink that commits at once,
// and no jitter.
type rig struct {
	*testing.T
	cfg  collector.Config
	b    *scripted
	s    *shelf
	c    *collector.Collector
	took time.Duration // by the last run
}

func newRig(t *testing.T) *rig {
	t.Helper()
	b, s := new(scripted), &shelf{atOnce: true}
	return &rig{T: t, b: b, s: s, cfg: collector.Config{
		RunID: "run", Endpoints: []collector.Endpoint{{Name: "a", Backend: b, MaxInFlight: 1}}, Sink: s,
		Jitter: func() float64 { return 0 },
	}}
}

// bubble runs a test in fake time.
func bubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(newRig(t)) })
}

// bubbles runs a test in fake time for each case.
func bubbles[C any](t *testing.T, cases map[string]C, test func(r *rig, tt C)) {
	t.Helper()
	t.Parallel()
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newRig(t), tt) })
		})
	}
}

func bothWays(t *testing.T, test func(r *rig, on bool)) {
	t.Helper()
	bubbles(t, map[string]bool{"on": true, "off": false}, test)
}

// room sets how many samples the first endpoint takes at a time.
func (r *rig) room(n int) { r.cfg.Endpoints[0].MaxInFlight = n }

// servers replaces the endpoint by the endpoints a, b, … with the same room each.
func (r *rig) servers(room int, backends ...collector.Backend) {
	r.cfg.Endpoints = nil
	for i, b := range backends {
		e := collector.Endpoint{Name: string(rune('a' + i)), Backend: b, MaxInFlight: room}
		r.cfg.Endpoints = append(r.cfg.Endpoints, e)
	}
}

// build makes the collector, once.
func (r *rig) build() *collector.Collector {
	r.Helper()
	if r.c == nil {
		c, err := collector.New(r.cfg)
		if err != nil {
			r.Fatal(err)
		}
		r.c = c
	}
	return r.c
}

// run runs the collector over the tasks. Afterwards every agent must be closed, once, and the
// counts must add up.
func (r *rig) run(ctx context.Context, source iter.Seq2[*collector.Task, error]) error {
	r.Helper()
	c, start := r.build(), time.Now()
	err := c.Run(ctx, source)
	r.took = time.Since(start)
	for _, e := range r.cfg.Endpoints {
		if b, ok := e.Backend.(interface{ closedOnce(tb testing.TB) }); ok {
			b.closedOnce(r)
		}
	}
	identity(r, c.Stats())
	return err
}

// finish is run for a run without an error.
func (r *rig) finish(source iter.Seq2[*collector.Task, error]) *rig {
	r.Helper()
	if err := r.run(r.Context(), source); err != nil {
		r.Fatal(err)
	}
	return r
}

// fails is run for a run that must return an error that wraps every one of want.
func (r *rig) fails(ctx context.Context, source iter.Seq2[*collector.Task, error], want ...error) *rig {
	r.Helper()
	err := r.run(ctx, source)
	for _, w := range want {
		if !errors.Is(err, w) {
			r.Errorf("Run = %v, want %v", err, w)
		}
	}
	return r
}

// start is run in the background. The returned function waits for its end.
func (r *rig) start(ctx context.Context, source iter.Seq2[*collector.Task, error]) (wait func() error) {
	r.Helper()
	r.build()
	done := make(chan error, 1)
	go func() { done <- r.run(ctx, source) }()
	return func() error { return <-done }
}

// counts fails the test unless the Stats have these four numbers, and returns the Stats.
func (r *rig) counts(committed, failed, skipped, remaining int) collector.Stats {
	r.Helper()
	s := r.c.Stats()
	identity(r, s)
	same(r, "committed, failed, skipped, remaining", []int{s.Committed, s.Failed, s.Skipped, s.Remaining},
		committed, failed, skipped, remaining)
	return s
}

// identity fails the test unless the counts add up.
func identity(tb testing.TB, s collector.Stats) {
	tb.Helper()
	if s.Planned != s.Committed+s.Filtered+s.Failed+s.Skipped+s.Remaining || s.Remaining < s.Accepted {
		tb.Errorf("planned %d ≠ committed %d + filtered %d + failed %d + skipped %d + remaining %d (accepted %d, in flight %d)",
			s.Planned, s.Committed, s.Filtered, s.Failed, s.Skipped, s.Remaining, s.Accepted, s.InFlight)
	}
	byClass := 0
	for _, n := range s.ByClass {
		byClass += n
	}
	if byClass != s.Failed {
		tb.Errorf("%d failed, but by class %d: %v", s.Failed, byClass, s.ByClass)
	}
}

func is[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// equal is is for values that must be equal in depth.
func equal(tb testing.TB, what string, got, want any) {
	tb.Helper()
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

// within fails the test unless got is from low to high.
func within[T cmp.Ordered](tb testing.TB, what string, got, low, high T) {
	tb.Helper()
	if got < low || got > high {
		tb.Errorf("%s: %v, want from %v to %v", what, got, low, high)
	}
}

// same fails the test unless got has the elements of want.
func same[T comparable](tb testing.TB, what string, got []T, want ...T) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

var errPlain = errors.New("plain")
