package sink

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestBudgetLargePassesAlone tests that a request above the budget keeps its turn and runs alone.
func TestBudgetLargePassesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		must(t, b.acquire(t.Context(), 60))
		var in []int64
		for _, n := range []int64{1000, 70, 40} {
			go func() {
				if err := b.acquire(t.Context(), n); err != nil {
					t.Error(err)
				}
				in = append(in, n)
			}()
			synctest.Wait() // they wait in this order
		}
		check := func(used int64, want ...int64) {
			t.Helper()
			synctest.Wait()
			if b.inUse() != used || !slices.Equal(in, want) {
				t.Errorf("%d bytes in use, %d passed; want %d, %d", b.inUse(), in, used, want)
			}
		}
		check(60)
		b.release(60)
		check(1000, 1000)
		b.release(1000)
		check(70, 1000, 70)
		b.release(70)
		check(40, 1000, 70, 40)
		b.release(40)
		if b.inUse() != 0 || !b.free.TryAcquire(100) {
			t.Error("not all was given back")
		}
	})
}

// TestBudgetStop tests that a stop wakes all waiting callers, a canceled context only its own.
func TestBudgetStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		must(t, b.acquire(t.Context(), 100))
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- b.acquire(ctx, 1000) }()
		synctest.Wait()
		go func() { ended <- b.acquire(t.Context(), 1) }()
		synctest.Wait()
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("acquire() = %v, want the cause", err)
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("a context ended the wait of another")
		}
		b.close()
		if err := <-ended; !errors.Is(err, errStopped) {
			t.Errorf("acquire() = %v, want %v", err, errStopped)
		}
		b.release(100)
		if b.inUse() != 0 || !b.free.TryAcquire(100) {
			t.Error("one that did not wait to its end took something")
		}
	})
}
