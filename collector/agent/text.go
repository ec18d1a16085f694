package agent

import (
	"bytes"
	"encoding/json"
)

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// A classed error wraps a sentinel and a cause, and shows only the text of the cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
