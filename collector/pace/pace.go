package pace

import (
	"context"
	"sync"
	"time"
)

// Config is what a Pacer holds to. The zero value of MaxLag is a rule: on-policy.
type Config struct {
	// MaxAhead is how many groups may be begun and not yet acknowledged, filtered or failed.
	// Default 0: any number.
	MaxAhead int
	// MaxLag is how many versions old a group may be expected to be when the trainer takes it.
	// 0 is on-policy: it is taken in the version in which it began. Less than 0: any number.
	MaxLag int
	// UntilGroups is how many informative groups are needed. Default 0: all there are.
	UntilGroups int
	// Now is the clock. Default nil: time.Now.
	Now func() time.Time
}

// An Outcome is what became of a group when it was whole.
type Outcome uint8

// The outcomes.
const (
	// Given: the trainer has it, or gets it. It counts as ahead until Acknowledged.
	Given Outcome = iota
	// Filtered: it is in the data with keep=false, and no trainer waits for it.
	Filtered
	// Failed: it has no row.
	Failed
)

// A Hold is why the next group does not begin. Its String is for people.
type Hold uint8

// The holds, the strongest first.
const (
	NotHeld     Hold = iota
	HeldPaused       // until Resume
	HeldUnread       // until Crowd(false)
	HeldAhead        // until a group is acknowledged, or is whole and is not given
	HeldDecided      // until it is known whether those in progress are enough
	HeldLag          // until the next version, or until that is long overdue
)

var holds = [...]string{"", "paused", "waiting for the events to be read", "waiting for acknowledgement", "waiting for groups in progress", "waiting for version"}

func (h Hold) String() string {
	if int(h) < len(holds) {
		return holds[h]
	}
	return "held"
}

// A Pacer decides when the next group may begin. One goroutine begins groups: it calls Group,
// Back and Sample. Everything else may be called from any goroutine at any time.
type Pacer struct {
	cfg    Config
	enough chan struct{} // closed when no further group is needed

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil: nobody was told of it
	alarm   *time.Timer   // makes a change when time alone does
	held    Hold          // what Group or Sample waits for
	paused  bool          // by Pause
	crowded bool          // by Crowd
	work    work          // the clock that stands still in a pause

	groups   map[string]*group // in progress, or given and not acknowledged
	progress int               // of groups
	taken    int               // groups acknowledged since the version was set
	idle     float64           // when the last group ended that was in progress
	done     Stats             // counts of what was decided

	versions versions
	times    exposure
}

// A group is one that has begun.
type group struct {
	began   float64 // by the clock of work
	earlier bool    // in an earlier process, in truth
	version int32   // when it began; -1: none was set, or nobody knows
	given   bool
}

// New makes a Pacer. It starts no goroutine.
func New(cfg Config) *Pacer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Pacer{cfg: cfg, enough: make(chan struct{}), groups: map[string]*group{}}
	p.versions.now = -1
	p.work.at = cfg.Now()
	return p
}

// Group waits until the next group may begin, which then counts as begun. ok is false if no
// further group is needed. If its first sample does not begin at once, because no worker is
// free, leave tells when to call Back and to ask again: it is closed at the next change. The
// error is the cause of ctx.
func (p *Pacer) Group(ctx context.Context, id string) (leave <-chan struct{}, ok bool, err error) {
	ok = true
	leave, err = p.wait(ctx, func() (Hold, float64) {
		h, again := p.fresh()
		if ok = !p.satisfied(); ok && h == NotHeld {
			p.begin(id)
		}
		return h, again
	})
	return leave, ok && err == nil, err
}

// Sample waits until another sample of a group that has begun may begin. leave and the error
// are those of Group.
func (p *Pacer) Sample(ctx context.Context) (leave <-chan struct{}, err error) {
	return p.wait(ctx, p.begun)
}

// Enough is closed when no further group is needed: see Config.UntilGroups.
func (p *Pacer) Enough() <-chan struct{} { return p.enough }

// Began notes a group that an earlier process began and that is not whole. Nobody knows when it
// began and what the version was then: it tells nothing of how long a group takes, and its lag
// is known only if the version of every token is.
func (p *Pacer) Began(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[id] == nil {
		g := p.begin(id)
		g.earlier, g.version = true, -1
	}
}

// Back undoes Group or Began: no sample of the group has begun.
func (p *Pacer) Back(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[id]; g != nil && !g.given {
		delete(p.groups, id)
		p.progress--
		p.done.Begun--
		p.times.end(p.lived(), g.began, false)
	}
}

// begin counts the group as begun, unless it counts already. Nobody waits for that: it lets
// nothing else begin.
func (p *Pacer) begin(id string) *group {
	if g := p.groups[id]; g != nil {
		return g
	}
	now := p.lived()
	g := &group{began: now, version: p.versions.now}
	p.groups[id] = g
	p.progress++
	p.done.Begun++
	p.times.begin(now)
	return g
}

// An Arrival is how old a group is when it is whole.
type Arrival struct {
	// Lag is how many versions it is behind; -1 if no version was ever set.
	Lag int32
	// Stale reports that this is more than Config.MaxLag.
	Stale bool
}

// Whole notes that the group is whole. It must be called once for each group, also for those
// that were whole in an earlier process. oldest is the lowest version of all tokens that were
// sampled for it, or -1 if that is not proven for every one of them.
func (p *Pacer) Whole(id string, o Outcome, oldest int32) Arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.groups[id] // nil: it was whole before this process
	g := p.begin(id)
	if g.given {
		return p.arrival(g, oldest)
	}
	p.progress--
	p.idle = p.lived()
	p.times.end(p.idle, g.began, begun != nil && !g.earlier && o != Failed)
	switch o {
	case Given:
		g.given = true
		p.done.Informative++
		if p.done.Informative == p.cfg.UntilGroups {
			close(p.enough)
		}
	case Filtered:
		p.done.Filtered++
	case Failed:
		p.done.Failed++
	}
	if o != Given {
		delete(p.groups, id)
	}
	a := p.arrival(g, oldest)
	if a.Lag >= 0 && o != Failed {
		p.done.Lags[min(a.Lag, LagMost)]++
	}
	p.change()
	return a
}

// arrival returns how old the group is now.
func (p *Pacer) arrival(g *group, oldest int32) Arrival {
	if oldest < 0 {
		oldest = g.version
	}
	if oldest < 0 || p.versions.now < 0 {
		return Arrival{Lag: -1}
	}
	lag := max(0, p.versions.now-oldest)
	return Arrival{Lag: lag, Stale: p.cfg.MaxLag >= 0 && int(lag) > p.cfg.MaxLag}
}

// Acknowledged notes that the trainer has the group for good: it is ahead no longer. It
// changes nothing for a group that is not given.
func (p *Pacer) Acknowledged(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[id]; g != nil && g.given {
		delete(p.groups, id)
		p.taken++
		p.versions.taken++
		p.change()
	}
}

// SetVersion notes that the policy has version v from now on, 0 or higher. A version that is
// lower than the present one is that of a trainer that went back to a checkpoint: it tells
// nothing of how long a version lasts.
func (p *Pacer) SetVersion(v int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions.set(p.lived(), v) {
		p.taken = 0
		if len(p.groups) > p.progress {
			p.taken = -1 // a reader acknowledges the last group of a batch when it asks for the next
		}
		p.change()
	}
}

// Version returns the present version; -1 if none was set.
func (p *Pacer) Version() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions.now
}

// Pause lets nothing begin until Resume.
func (p *Pacer) Pause() { p.hold(&p.paused, true) }

// Resume ends a Pause.
func (p *Pacer) Resume() { p.hold(&p.paused, false) }

// Crowd lets nothing begin, as Pause does, from Crowd(true) to Crowd(false): whoever tells of
// the groups has more to tell than it may keep.
func (p *Pacer) Crowd(on bool) { p.hold(&p.crowded, on) }

func (p *Pacer) hold(why *bool, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lived()
	*why = on
	p.work.paused = p.paused || p.crowded
	p.change()
}
