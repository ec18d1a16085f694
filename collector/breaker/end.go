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
	// For Done and LostAnswer, Replied is the time when the rollout ended. The server was up then,
	// but can be down by now.
	Replied time.Time
	// Probe reports that the sample was a probe of a server that is down.
	Probe bool
	// InHand is the number of samples in flight at the server, and Limit bounds it.
	InHand, Limit int
}

// A Stage is the part of an attempt in which it ended.
type Stage uint8

// The stages.
const (
	Opening Stage = iota // the agent was being made or found
	Rolling              // the agent existed
)

// A Kind is the meaning of an attempt's end: see the table of the package comment.
type Kind uint8

// The kinds. The list is closed.
const (
	Done Kind = iota
	Policy
	Final
	Gone
	LostAnswer
	Busy
	Slow
	Moved
	Fault
	Cut
	Cancelled
	Fatal
)

var kindNames = [...]string{
	"done", "policy", "final", "gone", "lost_answer", "busy", "slow", "moved", "fault", "cut", "cancelled", "fatal",
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
	PassOn                // make another attempt at another server: this one was given up
	Stop                  // the run ends, and the sample remains to be done
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

// A Decision follows the end of an attempt.
type Decision struct {
	Next    Step
	Verdict Verdict
	// Charged reports a charge to DataRetries for Policy, otherwise to Retries.
	Charged bool
	Backoff bool
	// CheckPassed reports that the server refused the sample but passed a check, so its capacity is not
	// the cause.
	CheckPassed bool
	// Change is the change of the server's state in the last call.
	Change Change

	end     End
	at      time.Time // of the end
	last    bool      // the sample fails if the server answers the check
	series  *series
	tripped bool // this end tripped the breaker
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

// A Change is a change of a server's state. The zero Change means no change.
type Change struct {
	// Tripped asks the caller to admit only probes from now on. Reset asks it to admit all samples
	// again.
	Tripped, Reset bool
	// Down reports that the server is known to be down. Up reports that it is back after a Down. If
	// the first check after the trip resets the breaker, neither is set.
	Down, Up bool
	// Lost reports that the server was given up for good.
	Lost bool
}
