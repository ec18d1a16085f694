package limit

import "fmt"

// A Reason is the reason for a change in the limit. The name of a Reason is a metric label and
// appears in the log.
type Reason uint8

// The reasons.
const (
	None        Reason = iota
	SlowStart          // up: doubled after a clean round
	Growth             // up: 5 % after a clean round
	NoGain             // down: the last growth showed no gain
	RateLimited        // cut: 429
	Unavailable        // cut: 502, 503 or a dead engine
	Connection         // cut: a connection was refused, or several samples lost their connections
	Overload           // cut: several samples hit a server error
	KVHigh             // cut: the engine's KV cache usage is above 0.8
	KVFull             // cut: the engine's KV cache usage is above 0.9
	Preemption         // cut: the engine put running requests back into its queue

	numReasons
)

var reasonNames = [numReasons]string{
	"none", "slow_start", "growth", "no_gain", "rate_limited", "unavailable", "connection", "overload",
	"kv_high", "kv_full", "preemption",
}

func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Reasons returns every Reason except None.
func Reasons() []Reason {
	all := make([]Reason, 0, numReasons-1)
	for r := None + 1; r < numReasons; r++ {
		all = append(all, r)
	}
	return all
}

// A Change is a change in the limit. The zero Change means no change.
type Change struct {
	From, To int
	Reason   Reason
}

// Made reports whether the limit changed.
func (c Change) Made() bool { return c.From != c.To }
