package breaker

import (
	"fmt"
	"time"
)

// An End is how an attempt ended.
type End struct {
	Key   string // of the sample
	Stage Stage
	Kind  Kind
	// Replied is when the rollout came to its end. Done and LostAnswer have it: the server
	// lived then, and may be down by now.
	Replied time.Time
	// Probe reports that the sample was let in to see whether the server is back.
	Probe bool
	// InHand is the number of samples in hand at the server, and Limit how many may be.
	InHand, Limit int
}

// A Stage is the part of an attempt in which it ended.
type Stage uint8

// The stages.
const (
	Opening Stage = iota // the agent was being made or found
	Rolling              // there was an agent
)

// A Kind is what the end of an attempt says about its server and its sample. The package
// comment has the table.
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

// A Verdict is what becomes of the sample.
type Verdict uint8

// The verdicts.
const (
	Over   Verdict = iota // nothing is left to do
	Retry                 // another attempt is made
	Fail                  // the sample fails for good
	PassOn                // another attempt is made at another server: this one is given up
	Stop                  // the run ends, and the sample remains to be done
)

var verdictNames = [...]string{"over", "retry", "fail", "pass on", "stop"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// A Step is what the caller must do before a verdict holds.
type Step uint8

// The steps.
const (
	Nothing Step = iota // the verdict holds
	Check               // check the server, then call Checked
	Wait                // wait until the server is down, for a second at most, then call Waited
)

// A Decision is what follows from the end of an attempt.
type Decision struct {
	// Next is what must be done before the Verdict holds.
	Next    Step
	Verdict Verdict
	// Charged reports that the attempt is held against the budget: of Retries, or, for
	// Policy, of DataRetries.
	Charged bool
	// Backoff reports that the next attempt waits for a moment that grows with each try.
	Backoff bool
	// HadRoom reports that the server, which turned the sample away, had room for a check:
	// the refusal says nothing about how much the server can take.
	HadRoom bool
	// Change is what became of the server by the last call.
	Change Change

	end     End
	at      time.Time // of the end
	last    bool      // the sample fails if the server answers the check
	series  *series
	tripped bool // by this end
}

// String is the verdict and, of a retry, who pays for it.
func (d Decision) String() string {
	switch {
	case d.Verdict != Retry:
		return d.Verdict.String()
	case d.Charged:
		return "retry charged"
	}
	return "retry free"
}

// A Change is what became of a server. The zero Change is none.
type Change struct {
	// Tripped reports that the breaker tripped: the caller lets nothing in but a probe now and
	// then. Reset reports that it was reset: the caller lets every sample in again.
	Tripped, Reset bool
	// Down reports that the server is known to be down, Up that it is back after that. A
	// breaker that is reset by the first check after it tripped reports neither.
	Down, Up bool
	// Lost reports that the server is given up for good.
	Lost bool
}
