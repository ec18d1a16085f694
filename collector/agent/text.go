package agent

import (
	"bytes"
	"encoding/json"
)

// isNull reports whether the text is absent or the word null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// A classed error wraps a sentinel, which says what it means, and its cause. It reads as the
// cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
