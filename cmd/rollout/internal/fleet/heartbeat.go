package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
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

// A Heartbeat is the content of workers/NAME.json. It is only a hint, because it can be old.
type Heartbeat struct {
	Counter int64 `json:"counter"` // from 1
	// RunID is the run id of the worker's collector, with which its agents are tagged.
	RunID string `json:"run_id"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Claims contains the last claims of the worker, by partition, except for those that it has lost.
	Claims map[int]Claim `json:"claims,omitempty"`
}

// A Claim is a claim in a heartbeat.
type Claim struct {
	Epoch int64  `json:"epoch"`
	State string `json:"state,omitempty"` // sealed, left, or empty if the worker has the partition
}

// States of a claim.
const (
	StateSealed = "sealed" // the partition is complete
	stateLeft   = "left"

	workersDir = "workers/"
)

func heartbeatName(worker string) string { return workersDir + worker + ".json" }

// A Beat is the heartbeat of a worker, with the time of the store at which it was put.
type Beat struct {
	Worker string    `json:"worker"`
	Time   time.Time `json:"time"`
	Heartbeat
}

// Count returns the number of partitions in a state.
func (h *Heartbeat) Count(state string) (n int) {
	for _, c := range h.Claims {
		if c.State == state {
			n++
		}
	}
	return n
}

// Beats reads the heartbeats of all workers. If one is damaged, only its run id is known. The run id of an
// object that is not a heartbeat is empty.
func Beats(objects store.Store) (list []Beat, err error) {
	for info, err := range objects.List(workersDir, "") {
		b := Beat{Worker: workerOf(info), Time: info.Time}
		if err == nil {
			b.Heartbeat, err = readBeat(objects, b.Worker)
		}
		if err != nil {
			return nil, err
		}
		if b.RunID == "" { // the heartbeat is damaged
			b.RunID = b.Worker[:max(0, strings.LastIndexByte(b.Worker, '-'))]
		}
		list = append(list, b)
	}
	return list, nil
}

// A pulse is the state of the worker's own heartbeat.
type pulse struct {
	Heartbeat
	acked time.Time     // start of the last request that the store has acknowledged; zero before the first
	beats chan struct{} // closed and replaced after each acknowledged request
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
	w.mu.Lock()
	w.pulse.Counter++
	body, err := json.Marshal(w.pulse.Heartbeat)
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

// checkClaims looks for claims of other workers in the logs of this worker's partitions. If a log is
// damaged, the next entry of this worker decides.
func (w *Worker) checkClaims() error {
	w.mu.Lock()
	held := slices.Collect(maps.Values(w.claimed))
	w.mu.Unlock()
	for _, c := range held {
		end, err := sink.ReadEnd(Dataset(w.objects, c.partition), sink.End{})
		if err != nil && !errors.Is(err, sink.ErrCorrupt) {
			return err
		}
		if end.Epoch > c.epoch {
			w.mu.Lock()
			c.lost = true
			w.mu.Unlock()
			c.cancel(moved(c.partition))
		}
	}
	return nil
}

// A watch is what this worker knows about the heartbeat of another worker.
type watch struct {
	counter     int64 // 0: there is no heartbeat
	since, seen time.Time
	dead        bool // the counter has not changed for deadAfter
}

// look reads the heartbeat of another worker, and learns its claims. The counter must be the same in several
// reads without a longer pause: after a pause of this process or of the store, the time starts again. A dead
// worker stays dead until its counter changes.
func (w *Worker) look(worker string) error {
	started := w.clock.Now()
	h, err := readBeat(w.objects, worker)
	if err != nil {
		return err
	}
	ended, v := w.clock.Now(), w.watches[worker]
	paused := v != nil && !v.dead && (started.Sub(v.seen) > staleAfter || ended.Sub(started) > staleAfter)
	if v == nil || v.counter != h.Counter || paused {
		v = &watch{counter: h.Counter, since: ended}
		w.watches[worker] = v
	}
	v.seen = ended
	v.dead = v.dead || started.Sub(v.since) >= deadAfter
	for p, c := range h.Claims {
		if p >= 0 && p < len(w.ends) {
			w.learn(p, c.Epoch, worker, c.State, c.State == StateSealed)
		}
	}
	return nil
}

// readBeat reads the heartbeat of a worker. It is empty if there is none or if it is damaged.
func readBeat(objects store.Store, worker string) (h Heartbeat, err error) {
	body, err := objects.Get(heartbeatName(worker))
	if err == nil && json.Unmarshal(body, &h) == nil {
		return h, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return Heartbeat{}, err
}

// workerOf returns the name of the worker whose heartbeat was listed.
func workerOf(info store.Info) string {
	return strings.TrimSuffix(strings.TrimPrefix(info.Name, workersDir), ".json")
}
