package policy

import (
	"fmt"
	"math"
)

// Unclaimed is the [Config.Version] for a Source that gets versions only through
// [Source.SetVersion].
const Unclaimed int32 = math.MinInt32

// SetVersion claims that the engines sample with this version from now on, until the next
// SetVersion. If the claim changes during a send, the version of the send is unknown, and the
// traces of the send are read.
//
// A trainer calls SetVersion once the engine samples with the new weights, and before it uses any
// of the new samples. A send between the change of the weights and this call wrongly gets the old
// version. A trainer that changes the weights while samples are in progress should therefore pause
// the run for the change, or pass its versions to the engine (see the package comment).
//
// A version that is lower than before means that the trainer went back to a checkpoint. If the
// Source has a page, SetVersion has no effect.
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
		s.notice("set", "policy version: claim %d is ignored, because the versions come from %s", version, s.cfg.Name)
	}
	return nil
}

// claimed returns the version that was claimed during the whole send, or Unknown.
func (sp *Span) claimed() int32 {
	select {
	case <-sp.done: // after is final
		return sp.after
	default: // End was not called
		return Unknown
	}
}

func outOfRange(version int32) error {
	return fmt.Errorf("policy version: %d: must be between 0 and %d", version, math.MaxInt32)
}
