package collector

import (
	"errors"
	"fmt"
	"testing"
)

// The redacted error explains why an attempt was not taken over, without text of a server or a
// model.
func TestLostAnswerRedacted(t *testing.T) {
	t.Parallel()
	const prose = "canary prose"
	for _, tt := range []struct {
		cause error
		want  string
	}{
		{fmt.Errorf("%w: %s", ErrGone, prose), "the answer was lost, and what the server keeps of it gives less than an answer: hole"},
		{fmt.Errorf("%w: reset", ErrConnection), "the answer was lost, and what the server keeps of it gives less than an answer: hole; lost to: collector: connection failed: reset"},
	} {
		err := fmt.Errorf("reattach: %w", &lostAnswerError{cause: tt.cause, why: errors.New(prose), word: "hole"})
		if got := Redacted(err); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
