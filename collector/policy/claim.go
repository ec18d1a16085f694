package policy

import (
	"fmt"
	"math"
)

// Unclaimed is the [Config.Version] of a Source that only [Source.SetVersion] tells versions.
const Unclaimed int32 = math.MinInt32

// SetVersion is the user's claim that version samples from now on, until SetVersion says
// another one. A send is taken to be of version N if it began and ended while N was claimed. A
// send that a change falls into has no version here, and its traces are asked.
//
// A trainer calls it when the engine samples with the new weights and before it wants
// anything of them. What is sent between the change of the weights and the call is claimed for
// the old version: a trainer whose samples are in progress then pauses the run for the change,
// or gives the engine its versions (see the package comment).
//
// A lower number than before is that of a trainer that went back to a checkpoint. Where the
// Source has a page, the page tells the versions of sends, and a claim changes nothing.
func (s *Source) SetVersion(version int32) error {
	if version < 0 {
		return outOfRange(version)
	}
	s.mu.Lock()
	if version != s.claim {
		s.claim = version
		s.claims++
	}
	s.mu.Unlock()
	if s.cfg.URL != "" {
		s.notice("set", "policy version: you said %d, but %s tells the versions of this process: yours is not written to the data", version, s.cfg.Name)
	}
	return nil
}

// claimed is the version that was claimed for all of the send, or Unknown.
func (sp *Span) claimed() int32 {
	select {
	case <-sp.done: // after is written no more
		return sp.after
	default: // End was not called
		return Unknown
	}
}

func outOfRange(version int32) error {
	return fmt.Errorf("policy version: %d: must be ≥ 0 and ≤ %d", version, math.MaxInt32)
}
