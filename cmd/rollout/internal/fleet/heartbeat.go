package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// The times of the package comment. A worker that is alive is never mistaken for dead, because its
// heartbeats come at least twice in staleAfter, and staleAfter is half of deadAfter.
const (
	beatEvery  = 10 * time.Second
	staleAfter = 3 * beatEvery
	deadAfter  = 6 * beatEvery
)

// A Clock is a monotonic clock. A test can replace it.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives the time when the duration has passed.
	After(d time.Duration) <-chan time.Time
}

type machineClock struct{}

func (machineClock) Now() time.Time                         { return time.Now() } // with a monotonic reading
func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// A heartbeat is the content of workers/NAME.json.
type heartbeat struct {
	Counter int64  `json:"counter"` // from 1
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Left contains the partitions that the worker has sealed or left, and the epochs of its claims.
	Left map[int]int64 `json:"left,omitempty"`
}

func heartbeatName(worker string) string { return "workers/" + worker + ".json" }

// A pulse is the state of the worker's own heartbeat.
type pulse struct {
	counter int64         // of the last request; used by one goroutine at a time
	acked   time.Time     // start of the last request that the store has acknowledged; zero before the first
	beats   chan struct{} // closed and replaced after each acknowledged request
	left    map[int]int64 // see heartbeat
}

// fresh reports whether the last acknowledged heartbeat is new enough to start attempts. The caller must
// have locked w.mu.
func (w *Worker) fresh() bool { return w.clock.Now().Sub(w.pulse.acked) <= staleAfter }

// awaitBeat waits until the worker has a fresh heartbeat.
func (w *Worker) awaitBeat(ctx context.Context) error {
	for {
		w.mu.Lock()
		ok, beats := w.fresh(), w.pulse.beats
		w.mu.Unlock()
		switch {
		case w.failed.Err() != nil:
			return context.Cause(w.failed)
		case ok:
			return nil
		}
		select {
		case <-beats:
		case <-w.failed.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// beat sends heartbeats until ctx is done or the store refuses one.
func (w *Worker) beat(ctx context.Context) error {
	for {
		started := w.clock.Now()
		if err := w.sendBeat(started); err != nil {
			return err
		}
		select {
		case <-w.clock.After(beatEvery - w.clock.Now().Sub(started)):
		case <-ctx.Done():
			return nil
		}
	}
}

// sendBeat sends one heartbeat and waits until it is acknowledged. If the last one is old, other workers can
// have claimed the partitions of this worker in the meantime. sendBeat then looks for their claims before
// attempts can start again.
func (w *Worker) sendBeat(started time.Time) error {
	host, _ := os.Hostname() // only for people
	w.mu.Lock()
	w.pulse.counter++
	body, err := json.Marshal(heartbeat{Counter: w.pulse.counter, Host: host, PID: os.Getpid(), Left: w.pulse.left})
	late := started.Sub(w.pulse.acked) > staleAfter
	w.mu.Unlock()
	if err == nil {
		err = w.objects.Put(heartbeatName(w.name), body)
	}
	if err == nil && late {
		err = w.checkClaims()
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulse.acked = started
	close(w.pulse.beats)
	w.pulse.beats = make(chan struct{})
	return nil
}

// A watch is the heartbeat of another worker, as this worker has seen it.
type watch struct {
	counter     int64 // 0: there is no heartbeat
	since, seen time.Time
	left        map[int]int64
	dead        bool // the counter has not changed for deadAfter
}

// look reads the heartbeat of another worker. The counter must be the same in several reads without a
// longer pause: after a pause of this process or of the store, the time starts again. A dead worker stays
// dead until its counter changes.
func (w *Worker) look(worker string) (*watch, error) {
	started := w.clock.Now()
	var h heartbeat
	body, err := w.objects.Get(heartbeatName(worker))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && json.Unmarshal(body, &h) != nil {
		h = heartbeat{} // damage counts as an absent heartbeat, because it is only a hint
	}
	ended := w.clock.Now()
	v := w.watches[worker]
	paused := v != nil && !v.dead && (started.Sub(v.seen) > staleAfter || ended.Sub(started) > staleAfter)
	if v == nil || v.counter != h.Counter || paused {
		v = &watch{counter: h.Counter, since: ended}
		w.watches[worker] = v
	}
	v.seen, v.left = ended, h.Left
	v.dead = v.dead || started.Sub(v.since) >= deadAfter
	return v, nil
}
