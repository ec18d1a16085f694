package store

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
)

// An actor uses one session of a story, and remembers what the store has acknowledged.
type actor struct {
	key     session.Key
	talk    *talk
	calls   map[int]*session.Call // the added calls by number
	unsure  map[int]*session.Call // the calls that can be in the file, because a sync failed during Add
	told    map[int]bool          // the calls whose delivery was recorded
	durable []int                 // the numbers of the calls that survive a power failure
	named   bool                  // the session survives a power failure
	end     *session.End          // nil until End has succeeded
	ended   bool                  // End was tried
	removed bool                  // the removal was tried: nothing is known
}

// A story runs all that a store does to its folder. The errors of the disk are expected.
type story struct {
	dir    string
	files  int // Config.maxFiles
	disk   *faultDisk
	store  *Store
	actors []*actor
	ends   []string // the ids in the order in which End succeeded
}

func (st *story) open(tb testing.TB) bool {
	tb.Helper()
	s, err := openOn(st.disk.disk(), Config{Dir: st.dir, maxFiles: st.files})
	if err == nil {
		close(s.ended) // it has no goroutine
	}
	st.store = s
	return err == nil
}

func (st *story) begin() *actor {
	a := &actor{talk: newTalk(uint64(len(st.actors))), calls: map[int]*session.Call{}, unsure: map[int]*session.Call{}, told: map[int]bool{}}
	key, err := st.store.Begin(session.Head{Model: "m"})
	if err != nil {
		return a // all later steps of this actor do nothing
	}
	a.key = key
	st.actors = append(st.actors, a)
	return a
}

func (st *story) add(a *actor) {
	x, err := st.store.Session(a.key)
	if err != nil {
		return
	}
	adm, err := x.Admit(nil)
	if err != nil {
		return
	}
	defer adm.Done()
	c := a.talk.next()
	if adm.Add(c, a.talk.messages, a.talk.tools) != nil {
		if x.failed != nil {
			a.unsure[adm.Number()] = c
		}
		return
	}
	a.calls[adm.Number()] = c
	a.talk.grow(c)
	a.told[adm.Number()] = adm.Delivered() == nil
}

func (st *story) finish(tb testing.TB, a *actor) {
	tb.Helper()
	x, err := st.store.Session(a.key)
	if err != nil {
		return
	}
	a.ended = true
	e, err := x.End(tb.Context(), session.End{Reward: new(1.0)}, false)
	if err != nil {
		return
	}
	if a.end != nil && !reflect.DeepEqual(*a.end, e) {
		tb.Errorf("%v: End returns %+v, and before %+v", st.disk, e, *a.end)
	}
	if a.end == nil {
		st.ends = append(st.ends, a.key.ID())
	}
	a.end, a.named = &e, true
	a.survive()
}

func (a *actor) survive() {
	a.durable = a.durable[:0]
	for n := range a.calls {
		a.durable = append(a.durable, n)
	}
}

// synced notes what is durable after a sync that reports no error, or whose errors are in the sessions.
func (st *story) synced() {
	for _, a := range st.actors {
		x := st.store.sessions[a.key.ID()]
		if x == nil {
			continue
		}
		if x.file == nil && x.failed == nil {
			a.survive()
			a.named = a.named || !st.store.names.changed.Load()
		}
	}
}

// close closes the store. If it fails, the story continues, as after a crash.
func (st *story) close() {
	if st.store.Close() == nil {
		st.synced()
	}
}

func (st *story) run(tb testing.TB) {
	tb.Helper()
	if !st.open(tb) {
		return
	}
	a := st.begin()
	st.add(a)
	st.add(a)
	st.store.syncDirty()
	st.synced()
	st.add(a)
	b := st.begin()
	st.add(b)
	st.finish(tb, a)
	st.finish(tb, a) // again
	c := st.begin()
	st.add(c)
	st.add(b)
	st.finish(tb, b)
	a.removed = true
	_ = st.store.Remove(a.key.ID())
	st.close()
	if !st.open(tb) {
		return
	}
	st.add(c)
	d := st.begin()
	st.add(d)
	st.finish(tb, d)
	e := st.begin()
	st.store.syncDirty()
	st.synced()
	st.add(e)
	st.store.cfg.MaxAge = time.Hour
	c.removed, b.removed, d.removed = true, true, true
	st.cleanAround(e)
	st.store.cfg.MaxAge = 0
	f := st.begin()
	st.add(f)
	st.finish(tb, f)
	st.close()
}

// cleanAround removes old sessions while the actor has a call in flight, so that its session stays. If
// a sync of the session has failed, it is removed, too.
func (st *story) cleanAround(a *actor) {
	a.removed = true
	if x, err := st.store.Session(a.key); err == nil {
		if adm, err := x.Admit(nil); err == nil {
			defer adm.Done()
			a.removed = false
		}
	}
	st.store.clean(time.Now().Add(2 * time.Hour))
}

// check opens the store on a disk without faults and compares it with what was acknowledged. power is
// true after a power failure. Then it continues the open sessions and seals them, cuts the power, and
// checks that all sealed sessions are still whole.
func (st *story) check(t *testing.T, power bool, r *rand.Rand) {
	t.Helper()
	fault := st.disk.String()
	st.disk.mode = faultNone
	if !st.open(t) {
		t.Fatalf("%s: the store cannot be opened", fault)
	}
	s := st.store
	if n := s.Stats().Damaged; n != 0 {
		t.Errorf("%s: %d files are damaged", fault, n)
	}
	for i, a := range st.actors {
		if a.key == "" || a.removed {
			continue
		}
		if _, err := s.Session(a.key); err != nil {
			if !power || a.named {
				t.Errorf("%s: session %d is lost: %v", fault, i, err)
			}
			continue
		}
		rec, err := s.Read(a.key.ID())
		if err != nil {
			t.Errorf("%s: session %d: %v", fault, i, err)
			continue
		}
		a.compare(t, fault, i, rec, power)
		if rec.End != nil && !s.IsSealed(rec.ID) || rec.End == nil && a.end != nil || rec.End != nil && !a.ended {
			t.Errorf("%s: session %d: End succeeded: %t, tried: %t, end %v, sealed %t", fault, i, a.end != nil, a.ended, rec.End, s.IsSealed(rec.ID))
		}
		if rec.End == nil {
			before := len(a.calls)
			st.add(a)
			st.finish(t, a)
			if a.end == nil || len(a.calls) != before+1 {
				t.Errorf("%s: session %d does not continue", fault, i)
			}
		}
	}
	sealed := st.listed(t, fault)
	if err := s.Close(); err != nil {
		t.Errorf("%s: %v", fault, err)
	}
	st.disk.cut(t, r)
	if !st.open(t) {
		t.Fatalf("%s: the store cannot be opened after a power failure", fault)
	}
	if again := st.listed(t, fault); !reflect.DeepEqual(again, sealed) {
		t.Errorf("%s: after a power failure, the sealed sessions are %v, and before %v", fault, again, sealed)
	}
	if err := st.store.Close(); err != nil {
		t.Errorf("%s: %v", fault, err)
	}
}

// compare checks that the record contains the acknowledged calls and no other call.
func (a *actor) compare(t *testing.T, fault string, i int, rec *session.Record, power bool) {
	t.Helper()
	var numbers []int
	for _, c := range rec.Calls {
		numbers = append(numbers, c.Number)
		want := cmp.Or(a.calls[c.Number], a.unsure[c.Number])
		if want == nil {
			t.Errorf("%s: session %d has the call %d, which was not added", fault, i, c.Number)
		} else if !slices.Equal(c.Prompt, want.Prompt) || !slices.Equal(c.Output, want.Output) || string(c.Answer) != string(want.Answer) {
			t.Errorf("%s: session %d: the call %d has changed", fault, i, c.Number)
		}
		if must := !power || slices.Contains(a.durable, c.Number); must && a.told[c.Number] && !c.Delivered {
			t.Errorf("%s: session %d: the delivery of the call %d is lost", fault, i, c.Number)
		}
	}
	for n := range a.calls {
		must := !power || slices.Contains(a.durable, n)
		if must && !slices.Contains(numbers, n) {
			t.Errorf("%s: session %d: the call %d is lost", fault, i, n)
		}
		if !slices.Contains(numbers, n) {
			delete(a.calls, n)
		}
	}
}

// listed checks the folder, and returns the digests of the sealed sessions by id.
func (st *story) listed(t *testing.T, fault string) map[string]string {
	t.Helper()
	entries, err := st.store.Sealed("")
	if err != nil {
		t.Errorf("%s: %v", fault, err)
	}
	digests, order := map[string]string{}, []string{}
	for _, e := range entries {
		rec, err := st.store.Read(e.ID)
		if err != nil || rec.End == nil || digests[e.ID] != "" {
			t.Errorf("%s: sealed session %s: listed before: %q, %v", fault, e.ID, digests[e.ID], err)
			continue
		}
		digests[e.ID] = rec.End.Digest
		if slices.Contains(st.ends, e.ID) {
			order = append(order, e.ID)
		}
	}
	if want := slices.DeleteFunc(slices.Clone(st.ends), func(id string) bool { return digests[id] == "" }); !slices.Equal(order, want) {
		t.Errorf("%s: the order is %v, want %v", fault, order, want)
	}
	files, err := os.ReadDir(filepath.Join(st.dir, openFolder))
	if err != nil || len(files) != len(st.store.sessions) {
		t.Errorf("%s: %d files in open/, but %d open sessions, %v", fault, len(files), len(st.store.sessions), err)
	}
	return digests
}

// TestFaults stops a store at each operation on its folder, by a kill or a power failure, and lets each
// operation fail, once or together with all later ones. Nothing that was acknowledged is lost, nothing
// appears twice, no file is damaged, and the sessions continue.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, files := range []int{maxFiles, 1} {
		t.Run(fmt.Sprint("files=", files), func(t *testing.T) {
			t.Parallel()
			testFaults(t, files)
		})
	}
}

// testFaults runs TestFaults with a limit of open files. If the limit is 1, most writes also sync.
func testFaults(t *testing.T, files int) {
	t.Helper()
	dry := &story{dir: t.TempDir(), files: files, disk: newFaultDisk(faultNone, -1)}
	dry.run(t)
	n := len(dry.disk.ops)
	for _, op := range []string{"create open", "write open", "sync open", "rename sealed", "remove open", "remove sealed", "sync folder open", "sync folder sealed"} {
		if !slices.Contains(dry.disk.ops, op) {
			t.Errorf("the story has no %q", op)
		}
	}
	dry.check(t, false, rand.New(rand.NewPCG(32, 0)))
	step := 1
	if testing.Short() {
		step = 5
	}
	for _, mode := range []faultMode{faultKill, faultOnce, faultFull} {
		for _, power := range []bool{false, true} {
			for at := 0; at < n; at += step {
				r := rand.New(rand.NewPCG(32, uint64(at)))
				st := &story{dir: t.TempDir(), files: files, disk: newFaultDisk(mode, at)}
				st.run(t)
				if len(st.disk.ops) <= at {
					t.Errorf("%v: the story has only %d operations", st.disk, len(st.disk.ops))
				}
				if power {
					st.disk.cut(t, r)
				}
				st.check(t, power, r)
			}
		}
	}
	t.Logf("%d operations", n)
}
