package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestConcurrent proves that 64 goroutines, each with its own session and all with a common one,
// lose no call and mix up none, while readers follow the sealed sessions.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	_, common := begin(t, s)
	const writers, calls = 64, 6
	var all, readers sync.WaitGroup
	folder, err := store.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	orders := make([][]string, 3)
	for i := range orders {
		readers.Go(func() {
			for after := ""; len(orders[i]) < writers; {
				err := s.Wait(t.Context(), after)
				entries, listErr := s.Sealed(after)
				if i == 0 { // through the folder, as another process does
					err = folder.Wait(t.Context(), after)
					entries, listErr = folder.Sealed(t.Context(), after)
				}
				if err = errors.Join(err, listErr); err != nil {
					t.Error(err)
					return
				}
				for _, e := range entries {
					after = e.Name
					orders[i] = append(orders[i], e.ID)
					if rec, err := s.Read(e.ID); err != nil || len(rec.Calls) != calls {
						t.Errorf("session %s: %+v, %v", e.ID, rec, err)
					}
				}
			}
		})
	}
	var mu sync.Mutex
	numbers := map[int]int{} // the seed of each call of the common session
	for w := range writers {
		all.Go(func() {
			key, err := s.Begin(session.Head{})
			if err != nil {
				t.Error(err)
				return
			}
			x, err := s.Session(key)
			if err != nil {
				t.Error(err)
				return
			}
			var want []request
			for n := range calls {
				want = append(want, conversation(w, n))
				for _, x := range []*store.Session{x, common} {
					a, err := x.Admit(nil)
					if err == nil {
						err = want[n].addTo(a)
					}
					if err != nil {
						t.Error(err)
						return
					}
					a.Done()
					if x == common {
						mu.Lock()
						numbers[a.Number()] = w*calls + n
						mu.Unlock()
					}
				}
			}
			if _, err := x.End(t.Context(), session.End{}, true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	readers.Wait()
	for _, order := range orders[1:] {
		if fmt.Sprint(order) != fmt.Sprint(orders[0]) {
			t.Errorf("two readers see different orders")
		}
	}
	end(t, common, session.End{})
	rec := read(t, s, common.ID())
	if len(rec.Calls) != writers*calls {
		t.Fatalf("the common session has %d calls", len(rec.Calls))
	}
	for i, c := range rec.Calls {
		n := numbers[c.Number]
		if c.Number != i+1 {
			t.Fatalf("call %d has the number %d", i, c.Number)
		}
		same(t, rec, i, conversation(n/calls, n%calls))
	}
	if st := s.Stats(); st.Calls != 2*writers*calls || st.Sealed != writers+1 || st.Open != 0 || st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}

// TestLocked proves that a second process cannot open the folder, and that a bad config is refused
// with the name of each bad setting.
func TestLocked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, store.Config{Dir: dir})
	if _, err := store.Open(store.Config{Dir: dir}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("got %v", err)
	}
	shut(t, s)
	shut(t, s)
	shut(t, open(t, store.Config{Dir: dir}))
}
