package collector

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// An EarlyFailureError ends a run if no sample has a row yet, and many samples failed for a reason
// that will make the next samples fail too. Examples are a missing or wrong tokenizer, a server
// that returns no token data, and a rejected request. Failures of the policy (a malformed call, an
// exceeded context) do not count. The error wraps ErrUnusable.
type EarlyFailureError struct {
	Samples int // number of samples that failed, some of them with retries left
	Class   Class
	Reason  tokenize.Reason // ReasonNone if the class is precise enough
	Err     error           // error of the last failed sample
}

func (e *EarlyFailureError) Error() string {
	what := e.Class.String()
	if e.Reason != tokenize.ReasonNone {
		what = e.Reason.String()
	}
	return fmt.Sprintf("%d samples failed with %s, and no sample produced a row: %s", e.Samples, what, strings.TrimPrefix(line(e.Err), what+": ")) // do not repeat the reason
}

// Unwrap returns ErrUnusable.
func (e *EarlyFailureError) Unwrap() error { return ErrUnusable }

// A run ends early when enough samples have failed for the same reason. One bad task can make its
// whole group fail, so samples of several groups must have failed. A rejection is immediate, but a
// good rollout takes minutes. So the number of failed samples must be at least the number of
// samples in flight. Once manyFailures samples have failed, neither of these two conditions
// applies.
const (
	minFailures     = 16
	minFailedGroups = 3
	manyFailures    = 256
)

// earlyFailures counts the failed samples of a run until the first sample has a row.
type earlyFailures struct {
	mu     sync.Mutex
	over   bool // a sample of this or an earlier process has a row, or failed has returned its error
	causes map[cause]*causeCount
}

type cause struct {
	class  Class
	reason tokenize.Reason
}

type causeCount struct {
	samples map[string]bool // keys of samples, at most manyFailures entries
	groups  map[string]bool // at most minFailedGroups entries
}

// systemic reports whether a failure of this class is likely to affect every sample.
func (c Class) systemic() bool {
	switch c {
	case ClassBadRequest, ClassToolError, ClassNoCalls, ClassForeign, ClassDecode, ClassNoTurns, ClassNoPrompt, ClassTokenMismatch, ClassInternal:
		return true
	default:
		return false
	}
}

func (b *earlyFailures) gaveRow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over, b.causes = true, nil
}

// failed counts a sample, by its key, after a failed attempt, even if the sample is retried. A
// sample that fails repeatedly counts once. Failures that another attempt can avoid do not count:
// see Class.systemic. inFlight is the number of samples in flight, including this one. failed
// returns an *EarlyFailureError when the run must end, but only once.
func (b *earlyFailures) failed(key, group string, class Class, inFlight int, err error) error {
	if !class.systemic() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil
	}
	why := cause{class, ReasonOf(err)}
	n := b.causes[why]
	if n == nil {
		if b.causes == nil {
			b.causes = map[cause]*causeCount{}
		}
		n = &causeCount{samples: map[string]bool{}, groups: map[string]bool{}}
		b.causes[why] = n
	}
	n.samples[key] = true
	if len(n.groups) < minFailedGroups {
		n.groups[group] = true
	}
	if len(n.samples) < manyFailures && (len(n.samples) < max(minFailures, inFlight) || len(n.groups) < minFailedGroups) {
		return nil
	}
	b.over = true
	return &EarlyFailureError{Samples: len(n.samples), Class: class, Reason: why.reason, Err: err}
}
