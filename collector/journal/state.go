package journal

import (
	"slices"

	"github.com/rollout-rl/rollout/collector"
)

// A state summarizes a sequence of entries. It contains the counts of each sample and, separately,
// the few open attempts. Each sample takes about 50 bytes of memory.
type state struct {
	samples map[id]sample
	open    map[id]*collector.OpenAttempt
}

type sample struct {
	attempts             uint32
	charged, dataCharged uint16 // at most maxCharged
}

// maxCharged is the highest count that is stored. It is far above any realistic retry budget.
const maxCharged = 1<<16 - 1

func newState() *state {
	return &state{samples: make(map[id]sample), open: make(map[id]*collector.OpenAttempt)}
}

// add updates the state with the next entry. If the entry belongs to an attempt before the last
// attempt, only its charge counts. An attempt's number counts as used even if a power failure lost
// the begin entry, because the agent might exist.
func (s *state) add(e *Entry, k id) {
	sm := s.samples[k]
	open := s.open[k]
	if open != nil && open.N != e.Attempt {
		open = nil
	}
	unseen := uint32(e.Attempt) > sm.attempts
	if unseen {
		sm.attempts = uint32(e.Attempt)
		delete(s.open, k) // a new attempt begins only after the previous attempt has ended
		open = nil
	}
	switch e.Op {
	case OpBegin:
		if !unseen {
			return
		}
		s.open[k] = &collector.OpenAttempt{N: e.Attempt, Endpoint: e.Endpoint}
	case OpAgent:
		if open != nil {
			open.AgentID = e.ID
		}
	case OpRun:
		if open != nil && !slices.Contains(open.ServerRuns, e.ID) {
			open.ServerRuns = append(open.ServerRuns, e.ID)
		}
	case OpEnd:
		if open != nil {
			delete(s.open, k)
		}
		if !e.Charged {
			break
		}
		count := &sm.charged
		if class, _ := collector.ParseClass(e.Class); class.DataRetryable() {
			count = &sm.dataCharged
		}
		if *count < maxCharged {
			*count++
		}
	case OpSums:
		delete(s.open, k)
		sm = sample{attempts: uint32(e.Attempt), charged: uint16(e.sums.charged), dataCharged: uint16(e.sums.dataCharged)}
	}
	s.samples[k] = sm
}

func (s *state) left(k id) collector.SampleState {
	sm := s.samples[k]
	return collector.SampleState{
		Attempts: int(sm.attempts), Charged: int(sm.charged), DataCharged: int(sm.dataCharged),
		Open: s.open[k],
	}
}

// The method entries calls yield with entries that reproduce this state.
func (s *state) entries(yield func(Entry, id) error) error {
	for k, sm := range s.samples {
		open := s.open[k]
		sums := Entry{Op: OpSums, Attempt: int(sm.attempts), sums: counts{int(sm.charged), int(sm.dataCharged)}}
		if open != nil {
			sums.Attempt-- // the begin entry below counts the open attempt
		}
		if err := yield(sums, k); err != nil {
			return err
		}
		if open == nil {
			continue
		}
		all := []Entry{{Op: OpBegin, Endpoint: open.Endpoint}}
		if open.AgentID != "" {
			all = append(all, Entry{Op: OpAgent, ID: open.AgentID})
		}
		for _, run := range open.ServerRuns {
			all = append(all, Entry{Op: OpRun, ID: run})
		}
		for _, e := range all {
			e.Attempt = open.N
			if err := yield(e, k); err != nil {
				return err
			}
		}
	}
	return nil
}
