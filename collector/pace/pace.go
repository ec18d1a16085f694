package pace

import (
	"context"
	"sync"
	"time"
)

// Config configures a Pacer. The zero value of MaxLag is a rule: on-policy.
type Config struct {
	// MaxAhead bounds the groups that are begun and not yet acknowledged, filtered or failed. 0: no
	// bound.
	MaxAhead int
	// MaxLag bounds the expected age of a group, in versions, when the trainer takes it. 0 is
	// on-policy: the group is taken in the version in which it began. Negative: no bound.
	MaxLag int
	// UntilGroups is the number of informative groups that are needed. Default 0: all groups.
	UntilGroups int
	// Now is the clock. Default nil: time.Now.
	Now func() time.Time
}

// An Outcome is the result of a whole group.
type Outcome uint8

// The outcomes.
const (
	// Given: the trainer has it, or will get it. It counts as ahead until Acknowledged.
	Given Outcome = iota
	// Filtered: it is in the data with keep=false, and no trainer waits for it.
	Filtered
	// Failed: it has no row.
	Failed
)

// A Hold is the reason why the next group does not begin. Its String is for messages.
type Hold uint8

// The holds, the strongest first.
const (
	NotHeld       Hold = iota
	HeldPaused         // until Resume
	HeldUnread         // until HoldUnread(false)
	HeldAhead          // until a group is acknowledged, or becomes whole without being given
	HeldUndecided      // until it is known whether the groups in progress are enough
	HeldLag            // until the next version, or until that is long overdue
)

var holds = [...]string{"", "paused", "waiting for the events to be read", "waiting for acknowledgement", "waiting for groups in progress", "waiting for a new version"}

func (h Hold) String() string {
	if int(h) < len(holds) {
		return holds[h]
	}
	return "held"
}

// A Pacer decides when the next group can begin. Group, Cancel and Sample must be called from one
// goroutine. All other methods are safe for concurrent use.
type Pacer struct {
	cfg    Config
	enough chan struct{} // closed when no more groups are needed

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil: no caller waits
	alarm   *time.Timer   // calls change when time alone can end a hold
	held    Hold          // why Group or Sample waits
	paused  bool          // by Pause
	unread  bool          // by HoldUnread
	work    work          // clock that stops during a pause

	groups   map[string]*group // in progress, or given and not acknowledged
	progress int               // number of groups in progress
	taken    int               // groups acknowledged since the version was set
	idle     float64           // when the last group in progress ended
	done     Stats             // counts of finished groups

	versions versions
	times    exposure
}

type group struct {
	began   float64 // in work time
	earlier bool    // an earlier process began it
	version int32   // version when it began; -1: none was set, or unknown
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

// Group waits until the next group can begin, and counts it as begun. If no more groups are needed,
// ok is false. The channel leave is closed at the next change: if no worker has taken the first
// sample by then, call Cancel and Group again. The error is the cause of ctx.
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

// Sample waits until another sample of a begun group can begin. leave and the error are as for
// Group.
func (p *Pacer) Sample(ctx context.Context) (leave <-chan struct{}, err error) {
	return p.wait(ctx, p.begun)
}

// Enough is closed when no more groups are needed: see Config.UntilGroups.
func (p *Pacer) Enough() <-chan struct{} { return p.enough }

// Resumed adds a group that an earlier process began and that is not whole. It does not count for
// the duration of a group, and its lag is known only if the version of every token is known.
func (p *Pacer) Resumed(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[id] == nil {
		g := p.begin(id)
		g.earlier, g.version = true, -1
	}
}

// Cancel undoes Group or Resumed: no sample of the group has begun.
func (p *Pacer) Cancel(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[id]; g != nil && !g.given {
		delete(p.groups, id)
		p.progress--
		p.done.Begun--
		p.times.end(p.elapsed(), g.began, false)
	}
}

// begin counts the group as begun, once. It wakes no waiter: a new group never ends a hold.
func (p *Pacer) begin(id string) *group {
	if g := p.groups[id]; g != nil {
		return g
	}
	now := p.elapsed()
	g := &group{began: now, version: p.versions.now}
	p.groups[id] = g
	p.progress++
	p.done.Begun++
	p.times.begin(now)
	return g
}

// An Arrival is the age of a group when it becomes whole.
type Arrival struct {
	// Lag is the number of versions it is behind; -1 if unknown or if no version was set.
	Lag int32
	// Stale reports that Lag is more than Config.MaxLag.
	Stale bool
}

// Whole records that the group is whole. Call it once for each group, including groups of earlier
// processes. Parameter oldest is the lowest version of all tokens sampled for the group, or -1 if
// the version of some token is not proven.
func (p *Pacer) Whole(id string, o Outcome, oldest int32) Arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.groups[id] // nil: it was whole before this process
	g := p.begin(id)
	if g.given {
		return p.arrival(g, oldest)
	}
	p.progress--
	p.idle = p.elapsed()
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

// Acknowledged records that the trainer has the group for good: it is no longer ahead. It has no
// effect on a group that is not given.
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

// SetVersion records that the policy has version v ≥ 0 from now on. A lower version, of a trainer
// that went back to a checkpoint, does not count for the duration of a version.
func (p *Pacer) SetVersion(v int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions.set(p.elapsed(), v) {
		p.taken = 0
		if len(p.groups) > p.progress {
			p.taken = -1 // a reader acknowledges the last group of a batch when it requests the next
		}
		p.change()
	}
}

// Version returns the current version; -1 if none was set.
func (p *Pacer) Version() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions.now
}

// Pause stops all new groups and samples until Resume.
func (p *Pacer) Pause() { p.hold(&p.paused, true) }

// Resume ends a Pause.
func (p *Pacer) Resume() { p.hold(&p.paused, false) }

// HoldUnread is a Pause for the time in which the reader of the events is too far behind.
func (p *Pacer) HoldUnread(on bool) { p.hold(&p.unread, on) }

func (p *Pacer) hold(why *bool, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elapsed()
	*why = on
	p.work.paused = p.paused || p.unread
	p.change()
}
