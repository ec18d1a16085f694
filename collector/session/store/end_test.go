package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestEndRepeated proves that a repeated end gets the first result, and an end with another body a
// conflict, before and after a restart.
func TestEndRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	bodies := []session.End{
		{},
		{Reward: new(1.0)},
		{Reward: new(0.0)},
		{FinalText: new("")},
		{FinalText: new("a \xff byte")},
		{Metadata: json.RawMessage("{\"a\": [1,\n2], \"b\": \"<\"}")},
		{Metadata: json.RawMessage(`{"a":[1,3]}`)},
		{Metadata: json.RawMessage(`null`)},
	}
	type ended struct {
		key session.Key
		end session.End
	}
	var all []ended
	for _, body := range bodies {
		key, x := begin(t, s)
		add(t, x, conversation(1, 0))
		all = append(all, ended{key, end(t, x, body)})
	}
	repeat := func() {
		for i, e := range all {
			x := find(t, s, e.key)
			body := bodies[i]
			body.At, body.Calls, body.Digest = time.Unix(5, 0), 9, "another" // these fields do not count
			if got := end(t, x, body); !reflect.DeepEqual(got, e.end) {
				t.Errorf("body %d: the repeated end is %+v, the first %+v", i, got, e.end)
			}
			for k, other := range bodies {
				if k == i {
					continue
				}
				if got, err := x.End(t.Context(), other, k%2 == 0); !errors.Is(err, store.ErrConflict) {
					t.Errorf("body %d, then body %d: %+v, %v", i, k, got, err)
				}
			}
		}
	}
	repeat()
	shut(t, s)
	s = open(t, store.Config{Dir: dir})
	repeat()
	if entries, err := s.Sealed(""); err != nil || len(entries) != len(all) {
		t.Errorf("%d sealed sessions, %v", len(entries), err)
	}
}

// TestEndRefuses proves that an end that cannot be written is refused and seals nothing.
func TestEndRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	_, x := begin(t, s)
	for _, e := range []session.End{{Reward: new(math.NaN())}, {Metadata: json.RawMessage(`{`)}, {FinalText: new(strings.Repeat("a", 64<<20))}} {
		if _, err := x.End(t.Context(), e, false); err == nil || len(err.Error()) > 200 {
			t.Errorf("got %v", err)
		}
	}
	add(t, x, conversation(1, 0))
	end(t, x, session.End{})
}

// TestEndCancels proves that End cancels the calls in flight and waits until they are done. A
// cancelled call can still be added.
func TestEndCancels(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	_, x := begin(t, s)
	var calls sync.WaitGroup
	want := []request{conversation(1, 0)}
	add(t, x, want[0])
	var canceled atomic.Int64
	for n := range 8 {
		stop := make(chan error, 1) // buffered, because cancel must not block
		a := admit(t, x, func(err error) { stop <- err })
		r := conversation(2+n, 0)
		r.call.Cut, r.call.Delivered = true, false
		if n%2 == 0 {
			want = append(want, r)
		}
		calls.Go(func() {
			defer a.Done()
			if err := <-stop; !errors.Is(err, store.ErrSealed) {
				t.Errorf("cancelled with %v", err)
			}
			canceled.Add(1)
			if n%2 == 0 {
				if err := r.addTo(a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	e := end(t, x, session.End{})
	if canceled.Load() != 8 || e.Calls != len(want) {
		t.Errorf("%d calls were cancelled, %d are recorded", canceled.Load(), e.Calls)
	}
	calls.Wait()
	check(t, read(t, s, x.ID()), want...)
}

// TestEndWaits proves that End with wait waits for the calls in flight, admits no other, and can be
// repeated after ctx has ended. A repeated End without wait cancels the calls.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		s := open(t, store.Config{Dir: t.TempDir()})
		_, x := begin(t, s)
		r := conversation(1, 0)
		stop := make(chan error, 1) // buffered, because cancel must not block
		a := admit(t, x, func(err error) { stop <- err })
		if _, err := x.End(canceled(t.Context()), session.End{}, true); !errors.Is(err, context.Canceled) {
			t.Errorf("End did not wait: %v", err)
		}
		if _, err := x.Admit(nil); !errors.Is(err, store.ErrSealed) {
			t.Errorf("a session that is being sealed admits a call: %v", err)
		}
		if _, err := x.End(t.Context(), session.End{Reward: new(2.0)}, true); !errors.Is(err, store.ErrConflict) {
			t.Errorf("another body: %v", err)
		}
		if entries, _ := s.Sealed(""); len(entries) > 0 || len(stop) > 0 {
			t.Errorf("sealed with a call in flight: %v", entries)
		}
		var ended sync.WaitGroup
		for range 4 {
			ended.Go(func() {
				if e, err := x.End(t.Context(), session.End{}, patient); err != nil || e.Calls != 1 {
					t.Errorf("End: %+v, %v", e, err)
				}
			})
		}
		if !patient {
			<-stop
		}
		if err := r.addTo(a); err != nil {
			t.Error(err)
		}
		a.Done()
		ended.Wait()
		check(t, read(t, s, x.ID()), r)
	}
}

// TestEndGrace proves that a call that ignores its cancellation does not keep a session open.
func TestEndGrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Config{Dir: dir, SyncEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, x := begin(t, s)
		a := admit(t, x, nil)
		began := time.Now()
		if e := end(t, x, session.End{}); e.Calls != 0 || time.Since(began) != 10*time.Second {
			t.Errorf("sealed after %v: %+v", time.Since(began), e)
		}
		r := conversation(1, 0)
		if err := r.addTo(a); !errors.Is(err, store.ErrSealed) {
			t.Errorf("a sealed session accepts a call: %v", err)
		}
		a.Done()
		check(t, read(t, s, x.ID()))
	})
}

// TestEndOfADeadProcess proves that a session whose end was written but that was not moved is sealed
// when the store is opened.
func TestEndOfADeadProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	key, x := begin(t, s)
	r := conversation(1, 0)
	add(t, x, r)
	e := end(t, x, session.End{Reward: new(1.0)})
	entries, _ := s.Sealed("")
	shut(t, s)
	if err := os.Rename(filepath.Join(dir, "sealed", entries[0].Name+".session"), filepath.Join(dir, "open", x.ID()+".session")); err != nil {
		t.Fatal(err)
	}
	s = open(t, store.Config{Dir: dir})
	again, err := s.Sealed(entries[0].Name)
	if err != nil || len(again) != 1 || again[0].ID != x.ID() {
		t.Fatalf("the sealed sessions are %v, %v", again, err)
	}
	x = find(t, s, key)
	if _, err := x.Admit(nil); !errors.Is(err, store.ErrSealed) {
		t.Errorf("the session admits a call: %v", err)
	}
	if got := end(t, x, session.End{Reward: new(1.0)}); !reflect.DeepEqual(got, e) {
		t.Errorf("the end is %+v, was %+v", got, e)
	}
	check(t, read(t, s, x.ID()), r)
}

// TestAdmission proves that an Admission adds at most one call, and none after Done.
func TestAdmission(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	_, x := begin(t, s)
	r := conversation(1, 0)
	for range 3 {
		a := admit(t, x, nil)
		if err := r.addTo(a); err != nil {
			t.Fatal(err)
		}
		if err := r.addTo(a); err == nil {
			t.Error("a call was added twice")
		}
		if err := a.Delivered(); err == nil {
			t.Error("a call was delivered twice")
		}
		a.Done()
		a.Done()
		if err := r.addTo(a); err == nil {
			t.Error("a call was added after Done")
		}
	}
	if _, err := x.Admit(nil); err != nil { // a call that is never done ...
		t.Fatal(err)
	}
	shut(t, s) // ... does not keep the store open
	if _, err := x.Admit(nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
	if _, err := s.Begin(session.Head{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
	if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}
