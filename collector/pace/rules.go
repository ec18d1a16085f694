package pace

import (
	"context"
	"time"
)

// A rule returns NotHeld if a sample or a group can start now, and otherwise the reason why it must
// wait. The second result is the number of seconds after which the rule must be evaluated again
// even if no event occurs. It is 0 if only an event can change the decision.
type rule func() (h Hold, again float64)

func (p *Pacer) wait(ctx context.Context, r rule) (<-chan struct{}, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		h, changed := p.evaluate(r)
		if h == NotHeld {
			return changed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.mu.Lock()
			p.held = NotHeld
			p.mu.Unlock()
		}
	}
}

func (p *Pacer) evaluate(r rule) (h Hold, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, again := r()
	p.held = h
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	if again > 0 {
		p.alarm = time.AfterFunc(max(leastWait, seconds(again)), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.change()
		})
	}
	return h, p.changed
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// leastWait is the shortest wait until a rule is evaluated again. It prevents a busy loop.
const leastWait = time.Millisecond

// change wakes the callers that wait for the Pacer's state to change.
func (p *Pacer) change() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *Pacer) satisfied() bool {
	return p.cfg.UntilGroups > 0 && p.done.Informative >= p.cfg.UntilGroups
}

// begun is the rule for the next sample of a group that has already started.
func (p *Pacer) begun() (Hold, float64) {
	switch {
	case p.paused:
		return HeldPaused, 0
	case p.unread:
		return HeldUnread, 0
	}
	return NotHeld, 0
}

// fresh is the rule for the next group.
func (p *Pacer) fresh() (Hold, float64) {
	if p.satisfied() {
		return NotHeld, 0
	}
	if h, _ := p.begun(); h != NotHeld {
		return h, 0
	}
	switch {
	case p.cfg.MaxAhead > 0 && len(p.groups) >= p.cfg.MaxAhead:
		return HeldAhead, 0
	case p.cfg.UntilGroups > 0 && float64(p.done.Informative)+p.informativeShare()*float64(p.progress) >= float64(p.cfg.UntilGroups):
		return HeldUndecided, 0
	case p.cfg.MaxLag >= 0:
		return p.lag()
	}
	return NotHeld, 0
}

// informativeShare estimates what share of the finished groups is informative.
func (p *Pacer) informativeShare() float64 {
	informative := float64(p.done.Informative)
	return (informative + 1) / (informative + float64(p.done.Filtered+p.done.Failed) + 1)
}

// lag is the rule for Config.MaxLag. In the package comment, b is called B and n is called N.
func (p *Pacer) lag() (Hold, float64) {
	b := p.versions.batch()
	if b == 0 {
		return NotHeld, 0
	}
	given := len(p.groups) - p.progress
	n := float64(p.taken+given) + p.informativeShare()*float64(p.progress)
	lag := int(n / b)
	if lag <= p.cfg.MaxLag+p.versions.extra {
		return NotHeld, 0
	}
	if p.progress > 0 {
		return HeldLag, 0 // the trainer might be waiting for these groups
	}
	now := p.elapsed()
	if left := max(p.versions.since+p.versions.mean(), p.idle) + p.times.mean(now) - now; left > 0 {
		return HeldLag, left
	}
	p.versions.extra, p.idle = lag-p.cfg.MaxLag, now
	return NotHeld, 0
}
