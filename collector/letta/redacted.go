package letta

import (
	"net/http"
	"strconv"

	"github.com/rollout-rl/rollout/collector"
)

// Redacted says what was tried and what came of it, without the server's text.
func (e *APIError) Redacted() string {
	if e.Status != 0 {
		text := http.StatusText(e.Status)
		if text != "" {
			text = " " + text
		}
		return e.Op + ": " + strconv.Itoa(e.Status) + text
	}
	if why := collector.Redacted(e.Err); why != "" {
		return e.Op + ": " + why
	}
	return e.Op + ": failed"
}
