package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestKilledAnywhere lets one process after another work on one run. Each dies at a random step: at
// a journal entry, while an agent is made, while it runs, at the sink, or while it is removed. A
// dead process has no further effect, but servers finish their work.
//
// It proves at every step and at the end: each sample is in the sink once, no attempt number is
// used twice, no sample runs again if its agent can be taken over, the journal has an agent before
// the agent is used, and the counts add up.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, func(r *rig) { killedRun(r.T, seed) })
		})
	}
}

func killedRun(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	const nTasks, samples = 12, 3
	w := &world{t: t, seed: seed, agents: map[string]*livingAgent{}, journal: map[string]collector.SampleState{}, sink: map[string]collector.Class{}}
	faults := rng.IntN(3) > 0
	reattached, processes := 0, 0
	for remaining := true; remaining; processes++ {
		p := &process{w: w, left: -1, faults: faults}
		if processes < 25 {
			p.left = 1 + rng.IntN(120) // steps until it dies
		}
		names := []string{"a", "b"}
		if rng.IntN(4) == 0 {
			names = names[:1] // b is not configured this time
		}
		w.left, w.names = w.lookup(), names
		ctx, die := context.WithCancelCause(t.Context())
		p.die = die
		r := newRig(t)
		r.cfg.Endpoints, r.cfg.Sink = nil, p
		for _, name := range names {
			e := collector.Endpoint{Name: name, Backend: &post{p, name}, MaxInFlight: 1 + rng.IntN(5)}
			r.cfg.Endpoints = append(r.cfg.Endpoints, e)
		}
		r.cfg.Samples, r.cfg.Planned, r.cfg.Retries, r.cfg.DataRetries = samples, nTasks*samples, 4, 1
		r.cfg.Journal, r.cfg.Outage = p, time.Hour
		r.cfg.Left = func(key string) collector.SampleState { return w.left[key] }
		c := r.build()
		p.lost = func(name string) bool {
			return slices.ContainsFunc(c.Stats().Endpoints, func(e collector.EndpointStats) bool { return e.Name == name && e.Lost })
		}
		p.look = func() { identity(t, c.Stats()) }
		if rng.IntN(4) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Second, c.Drain)
		}
		if rng.IntN(4) == 0 { // stopped, not killed
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Second, func() { die(errStopped) })
		}
		err := r.run(ctx, tasks(nTasks))
		if err != nil && !errors.Is(err, errDead) && !errors.Is(err, errStopped) && !errors.Is(err, collector.ErrUnavailable) {
			t.Fatalf("process %d: %v", processes, err)
		}
		st := c.Stats()
		reattached += st.Reattached
		w.mu.Lock()
		remaining = len(w.sink) < nTasks*samples
		if err == nil && st.Remaining == 0 && remaining {
			t.Errorf("process %d reports that nothing remains, but the sink has %d", processes, len(w.sink))
		}
		w.mu.Unlock()
		die(nil)
		if processes > 60 {
			t.Fatal("the run does not end")
		}
	}
	// A last process finds everything done, and counts it.
	w.left = w.lookup()
	p := &process{w: w, left: -1}
	r := newRig(t)
	r.servers(1, &post{p, "a"})
	r.cfg.Sink, r.cfg.Samples = p, samples
	r.cfg.Left = func(key string) collector.SampleState { return w.left[key] }
	r.finish(tasks(nTasks))
	committed, failed := 0, 0
	for _, class := range w.sink {
		if class == collector.ClassNone {
			committed++
		} else {
			failed++
		}
	}
	st := r.counts(committed, failed, 0, 0)
	is(t, "attempts", st.Attempts, 0)
	is(t, "earlier", st.Earlier, collector.Earlier{Committed: committed, Failed: failed})
	is(t, "attempts taken over, as the processes count", reattached, w.taken)
	t.Logf("%d processes, %d of %d attempts taken over", processes, w.taken, w.made)
}

var (
	errDead    = errors.New("dead")
	errStopped = errors.New("stopped")
)

// A world is the state that outlives a process: servers, a journal, a dataset.
type world struct {
	t    *testing.T
	seed uint64

	names []string                         // endpoints of the current process
	left  map[string]collector.SampleState // what the current process found

	mu      sync.Mutex
	agents  map[string]*livingAgent // by rollout id
	journal map[string]collector.SampleState
	sink    map[string]collector.Class
	made    int // number of attempts
	taken   int // number of attempts taken over by a later process
}

// A livingAgent works on its server until its end, with or without a process.
type livingAgent struct {
	a        collector.Attempt
	endpoint string
	ends     time.Time
	closed   bool
	spoiled  bool // cannot be taken over
	seen     bool // a live process has given it up
}

// lookup returns what the next process finds.
func (w *world) lookup() map[string]collector.SampleState {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]collector.SampleState{}
	for key, l := range w.journal {
		if l.Open != nil {
			open := *l.Open
			l.Open = &open
		}
		all[key] = l
	}
	for key, class := range w.sink {
		l := all[key]
		l.Done, l.Failed = class == collector.ClassNone, class
		all[key] = l
	}
	return all
}

// fate is the random source of an attempt, the same in every process.
func (w *world) fate(id string) *rand.Rand {
	h := w.seed
	for _, c := range []byte(id) {
		h = h*1099511628211 + uint64(c)
	}
	return rand.New(rand.NewPCG(h, 3))
}

// A process is the journal, the sink and the backends of one collector, until it dies.
type process struct {
	w      *world
	faults bool
	die    context.CancelCauseFunc
	look   func()

	mu    sync.Mutex
	left  int // steps until it dies; negative: it does not
	ended bool
	lost  func(endpoint string) bool // endpoints that this process has given up
}

// step runs do on the world, unless the process is dead. When the process dies at this step, do
// runs a last time or not at all.
func (p *process) step(do func() error) error {
	if p.look != nil {
		p.look()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errDead
	}
	if p.left--; p.left == 0 {
		p.ended = true
		defer p.die(errDead)
		if p.w.fate(fmt.Sprint("death", len(p.w.journal))).IntN(2) == 0 {
			return errDead // before the step
		}
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	err := do()
	if p.ended {
		return errDead // the step is done, but its result is lost
	}
	return err
}

func (p *process) note(key string, n int, do func(l *collector.SampleState)) error {
	return p.step(func() error {
		l := p.w.journal[key]
		do(&l)
		p.w.journal[key] = l
		return nil
	})
}

func (p *process) Begin(a collector.Attempt, endpoint string) error {
	return p.note(a.Key, a.N, func(l *collector.SampleState) {
		if a.N != l.Attempts+1 {
			p.w.t.Errorf("attempt %d of %s begins after %d", a.N, taskOf(a.Key), l.Attempts)
		}
		l.Attempts, l.Open = a.N, &collector.OpenAttempt{N: a.N, Endpoint: endpoint}
	})
}

func (p *process) Agent(key string, n int, agentID string) error {
	return p.note(key, n, func(l *collector.SampleState) { l.Open.AgentID = agentID })
}

func (p *process) ServerRun(key string, n int, runID string) error {
	return p.note(key, n, func(l *collector.SampleState) { l.Open.ServerRuns = append(l.Open.ServerRuns, runID) })
}

func (p *process) End(key string, n int, class collector.Class, charged bool) error {
	return p.note(key, n, func(l *collector.SampleState) {
		if _, there := p.w.sink[key]; class == collector.ClassNone && !there {
			p.w.t.Errorf("attempt %d of %s ends well, and the sink does not have it", n, taskOf(key))
		}
		if l.Open == nil || l.Open.N != n {
			p.w.t.Errorf("attempt %d of %s ends, open is %+v", n, taskOf(key), l.Open)
		}
		l.Open = nil
		if g := p.w.agents[collector.RolloutID(key, n)]; g != nil && class == collector.ClassLost {
			if g.seen = true; !g.closed && !g.spoiled && slices.Contains(p.w.names, g.endpoint) && !p.lost(g.endpoint) {
				p.w.t.Errorf("attempt %d of %s was given up, but its agent exists", n, taskOf(key))
			}
		}
		switch {
		case charged && class.DataRetryable():
			l.DataCharged++
		case charged:
			l.Charged++
		}
	})
}

// Append is durable when it returns, and calls done before that.
func (p *process) Append(_ context.Context, s *tokenize.Sample, done func(error)) error {
	err := p.step(func() error {
		if _, twice := p.w.sink[s.Key]; twice {
			p.w.t.Errorf("duplicate sample %s", taskOf(s.Key))
		}
		class := collector.ClassNone
		if len(s.Rows) == 0 {
			class, _ = collector.ParseClass(s.Failures[0].Class)
		}
		p.w.sink[s.Key] = class
		return nil
	})
	if err == nil {
		done(nil)
	}
	return err
}

// A post is a server as one process sees it.
type post struct {
	p    *process
	name string
}

func (b *post) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	id, w := collector.RolloutID(a.Key, a.N), b.p.w
	fate := w.fate(id)
	g := &livingAgent{a: a, endpoint: b.name, spoiled: fate.IntN(10) == 0}
	err := b.p.step(func() error {
		l := w.journal[a.Key]
		switch {
		case l.Open == nil || l.Open.N != a.N || l.Open.Endpoint != b.name:
			w.t.Errorf("attempt %d of %s at %s is not in the journal: %+v", a.N, taskOf(a.Key), b.name, l.Open)
		case w.agents[id] != nil:
			w.t.Errorf("attempt %d of %s is made twice", a.N, taskOf(a.Key))
		}
		for _, other := range w.agents {
			if other.a.Key == a.Key && !other.closed && !other.spoiled && !other.seen && slices.Contains(w.names, other.endpoint) && w.left[a.Key].Open != nil {
				w.t.Errorf("attempt %d of %s is made while attempt %d can be taken over", a.N, taskOf(a.Key), other.a.N)
			}
		}
		if b.p.faults && fate.IntN(12) == 0 {
			return collector.ErrServer
		}
		w.made++
		g.ends = time.Now().Add(time.Duration(1+fate.IntN(20)) * time.Second)
		w.agents[id] = g
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &visit{b, g, false}, nil
}

func (b *post) Reattach(_ context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	w := b.p.w
	var g *livingAgent
	err := b.p.step(func() error {
		if left.Endpoint != b.name || left.N != a.N {
			w.t.Errorf("attempt %d of %s is looked for at %s: %+v", a.N, taskOf(a.Key), b.name, left)
		}
		if g = w.agents[collector.RolloutID(a.Key, a.N)]; g == nil || g.closed {
			return collector.ErrGone
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &visit{b, g, true}, nil
}

// A visit is a process's handle of an agent.
type visit struct {
	b     *post
	g     *livingAgent
	again bool
}

func (v *visit) ID() string { return "agent-" + collector.RolloutID(v.g.a.Key, v.g.a.N) }

func (v *visit) Run(ctx context.Context) (*collector.Reply, error) {
	p, g := v.b.p, v.g
	fate := p.w.fate("run" + v.ID())
	if v.g.a.ServerRun != nil && !v.again {
		g.a.ServerRun("run-" + v.ID())
	}
	select {
	case <-time.After(time.Until(g.ends)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var reply *collector.Reply
	err := p.step(func() error {
		switch n := fate.IntN(12); {
		case v.again && g.spoiled:
			return collector.ErrGone
		case p.faults && n == 0:
			g.seen = true
			return collector.ErrMalformedCall
		case p.faults && n == 1:
			g.seen = true
			return collector.ErrConnection
		}
		reply = goodReply()
		return nil
	})
	if v.again && err == nil {
		p.w.mu.Lock()
		p.w.taken++
		p.w.mu.Unlock()
	}
	return reply, err
}

func (v *visit) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	return fromTurns(ctx, r)
}

func (v *visit) Close(context.Context) error {
	return v.b.p.step(func() error {
		if v.b.p.faults && v.b.p.w.fate("close"+v.ID()).IntN(12) == 0 {
			return errPlain
		}
		v.g.closed = true
		return nil
	})
}
