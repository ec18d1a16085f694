package policy

import (
	"fmt"
	"math"
)

// Unclaimed is the [Config.Version] for a Source that gets versions only through
// [Source.SetVersion].
const Unclaimed int32 = math.MinInt32

// SetVersion claims that the engines sample with this version from now on, until SetVersion is
// called again. If the claim changes during a send, the version of the send is unknown, and the
// traces of the send are read.
//
// A trainer calls SetVersion once the engine samples with the new weights, and before the trainer
// uses any sample from these weights. A send that starts and ends between the change of the weights
// and this call wrongly gets the old version. So if a trainer changes the weights while samples are
// in progress, it should pause the run for the change. Alternatively, it can set each version in
// the engine (see the package comment).
//
// A version that is lower than the previous version means that the trainer has returned to a
// checkpoint. If the Source has a page, SetVersion has no effect.
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
		s.notice("set", "policy version: the claimed version %d is ignored, because versions come from %s", version, s.cfg.Name)
	}
	return nil
}

// claimed returns the version that was claimed during the whole send, or Unknown.
func (sp *Span) claimed() int32 {
	select {
	case <-sp.done: // the field after is final
		return sp.after
	default: // End was not called
		return Unknown
	}
}

func outOfRange(version int32) error {
	return fmt.Errorf("policy version: %d: must be between 0 and %d", version, math.MaxInt32)
}
