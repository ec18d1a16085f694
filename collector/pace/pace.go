package pace

import (
	"context"
	"sync"
	"time"
)

// Config configures a Pacer. A MaxLag of zero is a bound. In the other fields, zero means the
// default.
type Config struct {
	// MaxAhead bounds the number of groups that have begun and are not yet acknowledged, filtered
	// or failed. 0 means no bound.
	MaxAhead int
	// MaxLag bounds the expected age of a group, in versions, at the time when the trainer takes
	// it. 0 means on-policy: the trainer takes each group in the version in which the group began.
	// A negative value means no bound.
	MaxLag int
	// UntilGroups is the number of informative groups that are needed. Default 0: all groups are
	// needed.
	UntilGroups int
	// Now returns the current time. Default nil: time.Now.
	Now func() time.Time
}

// An Outcome is the result of a whole group.
type Outcome uint8

// The outcomes.
const (
	// Given: the trainer has received the group or will receive it. The group counts as ahead until
	// Acknowledged is called.
	Given Outcome = iota
	// Filtered: the group is in the data with keep=false, and no trainer waits for it.
	Filtered
	// Failed: the group has no row.
	Failed
)

// A Hold is the reason why the next group does not begin. String returns the reason as text for
// messages.
type Hold uint8

// The holds, in order of precedence.
const (
	NotHeld       Hold = iota
	HeldPaused         // until Resume
	HeldUnread         // until HoldUnread(false)
	HeldAhead          // until a group is acknowledged, filtered or failed
	HeldUndecided      // until it is known whether the groups in progress are enough
	HeldLag            // until the next version is set, or is long overdue
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
	changed chan struct{} // closed at the next change; nil if no caller waits
	alarm   *time.Timer   // calls change when a hold can end only because time has passed
	held    Hold          // why Group or Sample waits
	paused  bool          // set by Pause
	unread  bool          // set by HoldUnread
	work    work          // clock that stops during a pause

	groups   map[string]*group // groups in progress, and groups that were given but not yet acknowledged
	progress int               // number of groups in progress
	taken    int               // number of groups acknowledged since the version was set
	idle     float64           // time at which the last group in progress ended
	done     Stats             // counts of finished groups

	versions versions
	times    exposure
}

type group struct {
	began   float64 // in work time
	earlier bool    // an earlier process began it
	version int32   // version at the time the group began; -1 if none was set, or unknown
	given   bool
}

// New returns a Pacer. It starts no goroutine.
func New(cfg Config) *Pacer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Pacer{cfg: cfg, enough: make(chan struct{}), groups: map[string]*group{}}
	p.versions.now = -1
	p.work.at = cfg.Now()
	return p
}

// Group waits until the next group can begin, and then counts that group as begun. If no more
// groups are needed, ok is false. The channel leave is closed at the next change. If no worker has
// taken the first sample by then, call Cancel, and then Group again. If ctx is done, the error is
// its cause.
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

// Sample waits until another sample of a group in progress can begin. The results leave and err are
// the same as for Group.
func (p *Pacer) Sample(ctx context.Context) (leave <-chan struct{}, err error) {
	return p.wait(ctx, p.begun)
}

// Enough returns a channel that is closed when no more groups are needed: see Config.UntilGroups.
func (p *Pacer) Enough() <-chan struct{} { return p.enough }

// Resumed adds a group that an earlier process began and that is not whole. The estimate of a
// group's duration ignores such a group. The lag of such a group is known only if the version of
// every token is known.
func (p *Pacer) Resumed(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[id] == nil {
		g := p.begin(id)
		g.earlier, g.version = true, -1
	}
}

// Cancel undoes Group or Resumed. Call it only if no sample of the group has begun.
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

// begin counts the group as begun, unless it was counted before. It does not wake waiting callers,
// because a new group never ends a hold.
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

// Whole records that the group is whole. Call it once for each group, including groups that earlier
// processes began. The parameter oldest is the lowest version of all tokens sampled for the group,
// or -1 if the version of any token is not proven. The result is the number of versions that the
// group is behind. It is -1 if the lag is unknown or no version was set.
func (p *Pacer) Whole(id string, o Outcome, oldest int32) (lag int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.groups[id] // nil if the group was already whole before this process started
	g := p.begin(id)
	if g.given {
		return p.lagOf(g, oldest)
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
	lag = p.lagOf(g, oldest)
	if lag >= 0 && o != Failed {
		p.done.Lags[min(lag, LagMost)]++
	}
	p.change()
	return lag
}

func (p *Pacer) lagOf(g *group, oldest int32) int32 {
	if oldest < 0 {
		oldest = g.version
	}
	if oldest < 0 || p.versions.now < 0 {
		return -1
	}
	return max(0, p.versions.now-oldest)
}

// Acknowledged records that the trainer has acknowledged the group, so that the group no longer
// counts as ahead. The call has no effect on a group that was not Given.
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

// SetVersion records that the policy has version v ≥ 0 from now on. A lower version means that the
// trainer went back to a checkpoint. Such a change is not used to estimate the duration of a
// version.
func (p *Pacer) SetVersion(v int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions.set(p.elapsed(), v) {
		p.taken = 0
		if len(p.groups) > p.progress {
			p.taken = -1 // a reader acknowledges the last group of a batch only when it requests the next batch
		}
		p.change()
	}
}

// Version returns the current version, or -1 if none was set.
func (p *Pacer) Version() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions.now
}

// Pause holds all new groups and samples until Resume is called.
func (p *Pacer) Pause() { p.hold(&p.paused, true) }

// Resume ends a Pause.
func (p *Pacer) Resume() { p.hold(&p.paused, false) }

// HoldUnread holds all new groups and samples while on is true. Use it while the reader of the
// events is too far behind.
func (p *Pacer) HoldUnread(on bool) { p.hold(&p.unread, on) }

func (p *Pacer) hold(why *bool, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elapsed()
	*why = on
	p.work.paused = p.paused || p.unread
	p.change()
}
