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
		{fmt.Errorf("%w: %s", ErrGone, prose), "answer lost, and the server's record of it is incomplete: hole"},
		{fmt.Errorf("%w: reset", ErrConnection), "answer lost, and the server's record of it is incomplete: hole; cause: collector: connection failed: reset"},
	} {
		err := fmt.Errorf("reattach: %w", &lostAnswerError{cause: tt.cause, why: errors.New(prose), word: "hole"})
		if got := Redacted(err); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
