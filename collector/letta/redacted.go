package letta

import (
	"errors"
	"net/http"
	"strconv"
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
	if errors.Is(e.Err, ErrConnection) || errors.Is(e.Err, ErrIdle) || errors.Is(e.Err, ErrTimeout) {
		return e.Op + ": " + e.Err.Error() // without an answer there is nothing that it could quote
	}
	return e.Op + ": failed"
}
