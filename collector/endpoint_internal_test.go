package collector

import (
	"context"
	"testing"
	"time"
)

// The gate is open if the worker that saw the server go down acts after the worker that saw it come
// back. Otherwise only probes would be admitted from then on.
func TestGateFollowsTheBreaker(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		backLast bool
	}{{"in order", true}, {"the other way round", false}} {
		t.Run(test.name, func(t *testing.T) {
			c, err := New(Config{Endpoints: []Endpoint{{Name: "one", Backend: struct{ Backend }{}}}, Sink: struct{ Sink }{}})
			if err != nil {
				t.Fatal(err)
			}
			ep, now := c.endpoints[0], time.Now()
			first := ep.lock().Silent(now)
			ep.unlock()
			second := ep.lock().Answered(now.Add(time.Second))
			ep.unlock()
			if !test.backLast {
				first, second = second, first
			}
			if err := ep.applyChange(first, ErrConnection); err != nil {
				t.Fatal(err)
			}
			if err := ep.applyChange(second, nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ep.gate.enter(ctx, false) == nil {
				t.Error("the server is up, and its gate lets nothing in")
			}
		})
	}
}
