package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestDeepMetadata proves that an end whose metadata cannot be read again is refused, and that the
// session stays open.
func TestDeepMetadata(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	_, x := begin(t, s)
	end := func(depth int) error {
		text := json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		_, err := x.End(t.Context(), session.End{Reward: new(1.0), Metadata: text}, false)
		return err
	}
	for _, depth := range []int{10_000, 10_001} {
		if err := end(depth); err == nil || !strings.Contains(err.Error(), "max depth") {
			t.Errorf("%d: %v", depth, err)
		}
	}
	if err := end(9_999); err != nil {
		t.Error(err)
	}
}
