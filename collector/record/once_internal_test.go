package record

import (
	"context"
	"testing"
	"time"
)

// After a fetch panics, the next caller can fetch the value.
func TestOncePanics(t *testing.T) {
	t.Parallel()
	var o once[int]
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of the fetch is lost")
			}
		}()
		_, _ = o.get(t.Context(), func(context.Context) (int, error) { panic("no value") })
	}()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := make(chan int, 1)
	go func() {
		v, _ := o.get(ctx, func(context.Context) (int, error) { return 7, nil })
		got <- v
	}()
	select {
	case v := <-got:
		if v != 7 {
			t.Errorf("the value is %d, want 7", v)
		}
	case <-time.After(time.Minute):
		t.Fatal("get does not return after a fetch that panicked")
	}
}
