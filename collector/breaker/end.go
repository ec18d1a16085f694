package breaker

import (
	"fmt"
	"time"
)

// An End describes how an attempt ended.
type End struct {
	Key   string // sample key
	Stage Stage
	Kind  Kind
	// Replied is the time of the server's last answer or, if it is unknown, the end of the rollout. It
	// is zero if the attempt ended before its rollout. The server was up at that time, but might be
	// down by now.
	Replied time.Time
	// Probe is true if the sample was a probe of a server that is down.
	Probe bool
	// InHand is the number of samples in flight at the server. Limit is the current bound on that
	// number.
	InHand, Limit int
}

// answered returns the time of the server's last answer. An attempt that ended before its rollout
// ended with an answer.
func (e *End) answered(now time.Time) time.Time {
	if e.Replied.IsZero() {
		return now
	}
	return e.Replied
}

// A Stage is the part of an attempt in which the attempt ended.
type Stage uint8

// The stages.
const (
	Opening Stage = iota // the agent was being made or found
	Rolling              // the agent existed
)

// A Kind is the meaning of an attempt's end: see the table in the package comment.
type Kind uint8

// The complete list of kinds.
const (
	Done Kind = iota
	Policy
	Final
	Gone
	LostAnswer
	Busy
	Own
	Moved
	Fault
	Cut
	Cancelled
	Fatal
)

var kindNames = [...]string{
	"done", "policy", "final", "gone", "lost_answer", "busy", "own", "moved", "fault", "cut", "cancelled", "fatal",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Verdict is the decision about the sample.
type Verdict uint8

// The verdicts.
const (
	Over   Verdict = iota // the sink has the sample
	Retry                 // make another attempt
	Fail                  // the sample fails for good
	PassOn                // make another attempt at another server, because the run no longer uses this server
	Stop                  // the run ends, and the sample stays unfinished
)

var verdictNames = [...]string{"over", "retry", "fail", "pass on", "stop"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// A Step is the caller's next step before a verdict is final.
type Step uint8

// The steps.
const (
	Nothing Step = iota // the verdict is final
	Check               // check the server, then call Checked
	Wait                // wait until the server is down, for at most a second, then call Waited
)

// A Decision is the Breaker's reaction to the end of an attempt.
type Decision struct {
	Next    Step
	Verdict Verdict
	// Charged is true if the attempt is charged. An end of kind Policy is charged to DataRetries,
	// and any other end to Retries.
	Charged bool
	Backoff bool
	// CheckPassed is true if the server refused the sample but passed a check. The server's
	// capacity is then not the cause of the refusal.
	CheckPassed bool
	// Change is the change in the server's state that the last method call caused.
	Change Change

	end     End
	at      time.Time // time of the end
	last    bool      // the sample fails if the server answers the check
	series  *series
	tripped bool // the end of this attempt tripped the breaker
}

// String returns the verdict and, for a retry, whether it is charged.
func (d Decision) String() string {
	switch {
	case d.Verdict != Retry:
		return d.Verdict.String()
	case d.Charged:
		return "retry charged"
	}
	return "retry free"
}

// A Change is a change in a server's state. The zero Change means no change.
type Change struct {
	// Tripped means that the caller must admit only probes from now on. Reset means that the caller
	// must admit all samples again.
	Tripped, Reset bool
	// Down is true if the server is now known to be down. Up is true if the server is back after a
	// Down. If the first check after the trip resets the breaker, neither is set.
	Down, Up bool
	// Lost is true if the server has been given up for good.
	Lost bool
}
