package journal

import (
	"slices"

	"github.com/rollout-rl/rollout/collector"
)

// A state is the result of a sequence of entries: the charges of each sample and, separately, the
// few open attempts. A sample takes about 50 bytes.
type state struct {
	samples map[id]sample
	open    map[id]*collector.OpenAttempt
}

type sample struct {
	attempts             uint32
	charged, dataCharged uint16 // up to maxCharged
}

// maxCharged is the highest stored count. It exceeds every realistic budget.
const maxCharged = 1<<16 - 1

func newState() *state {
	return &state{samples: make(map[id]sample), open: make(map[id]*collector.OpenAttempt)}
}

// add adds the next entry. If the entry is late and belongs to an attempt before the last one, only
// its charge counts. If the begin entry of an attempt was lost in a power cut, the number of the
// attempt still counts as used, because an agent can have that number.
func (s *state) add(e *Entry, k id) {
	sm := s.samples[k]
	open := s.open[k]
	if open != nil && open.N != e.Attempt {
		open = nil
	}
	unseen := uint32(e.Attempt) > sm.attempts
	if unseen {
		sm.attempts = uint32(e.Attempt)
		delete(s.open, k) // the previous attempt was over
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

// entries calls yield with entries that reproduce this state.
func (s *state) entries(yield func(Entry, id) error) error {
	for k, sm := range s.samples {
		open := s.open[k]
		sums := Entry{Op: OpSums, Attempt: int(sm.attempts), sums: counts{int(sm.charged), int(sm.dataCharged)}}
		if open != nil {
			sums.Attempt-- // the begin entry below adds the last number
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
