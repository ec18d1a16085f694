package agent

import (
	"bytes"
	"encoding/json"
)

// isNull reports whether the text is absent or the word null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// classed is a cause under a sentinel that says what it means. It reads as the
// cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
