package collector

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A BarrenError ends a run whose first samples all failed for a reason for which the next
// ones would fail too: a tokenizer that is missing or belongs to another model, a server that
// gives no token data, a request that is refused. What the policy did (a malformed call, a
// context that it outgrew) is not such a reason. It wraps ErrUnusable.
type BarrenError struct {
	Samples int // how many failed
	Class   Class
	Reason  tokenize.Reason // ReasonNone if the class says it all
	Err     error           // why the last one failed
}

func (e *BarrenError) Error() string {
	what := e.Class.String()
	if e.Reason != tokenize.ReasonNone {
		what = e.Reason.String()
	}
	return fmt.Sprintf("%d samples failed with %s and none gave a row: %s", e.Samples, what, strings.TrimPrefix(line(e.Err), "("+what+"): ")) // said already
}

// Unwrap returns ErrUnusable.
func (e *BarrenError) Unwrap() error { return ErrUnusable }

// A run is barren when enough samples failed. One task may be bad, and all samples of its
// group are worked on at the same time: so several groups must have failed, or very many
// samples. A refusal comes at once, and a good rollout takes minutes: so at least as many must
// have failed as are still in hand, or very many.
const (
	barrenSamples = 16
	barrenGroups  = 3
	barrenMost    = 256
)

// A barren counts how the first samples of a run failed, until one gives a row.
type barren struct {
	mu     sync.Mutex
	over   bool // a sample gave a row, in this process or an earlier one
	causes map[cause]*causeCount
}

type cause struct {
	class  Class
	reason tokenize.Reason
}

type causeCount struct {
	samples int
	groups  map[string]bool // at most barrenGroups
}

// systemic reports whether a failure of this class is likely to hit every sample.
func (c Class) systemic() bool {
	switch c {
	case ClassBadRequest, ClassToolError, ClassDecode, ClassNoTurns, ClassNoPrompt, ClassTokenMismatch, ClassInternal:
		return true
	default:
		return false
	}
}

// gaveRow notes that a sample gave a row: the run is not barren.
func (b *barren) gaveRow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over, b.causes = true, nil
}

// failed counts a sample of the group that failed for good with err, while so many samples
// are in hand, it included. It returns a *BarrenError, once, when the run should not go on.
func (b *barren) failed(group string, class Class, hands int, err error) error {
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
		n = &causeCount{groups: map[string]bool{}}
		b.causes[why] = n
	}
	n.samples++
	if len(n.groups) < barrenGroups {
		n.groups[group] = true
	}
	if n.samples < barrenMost && (n.samples < max(barrenSamples, hands) || len(n.groups) < barrenGroups) {
		return nil
	}
	b.over = true
	return &BarrenError{Samples: n.samples, Class: class, Reason: why.reason, Err: err}
}
