package lettasim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
)

// Stats is a snapshot of the server's counters.
type Stats struct {
	AgentsAlive, AgentsCreated, AgentsDeleted int64
	// Sends counts received sends, Answered full answers with 200, InFlight sends in progress.
	Sends, Answered, InFlight int64
	// MaxInFlight is the highest InFlight so far.
	MaxInFlight int64
	// BytesSent counts body bytes of all answers.
	BytesSent int64
	// Refused counts requests during [Server.Refuse].
	Refused int64
	// EngineCalls counts the calls of Config.Engine, EngineErrors the failed calls.
	EngineCalls, EngineErrors int64
	// Faults counts injected faults by kind.
	Faults map[FaultKind]int64
	// Requests counts requests by method and route, such as "POST /v1/agents/{id}/messages".
	Requests map[string]int64
}

// An Answer is a send of which the client has all tokens: from a 200 answer or, if that was lost,
// from the traces of all its steps.
type Answer struct {
	Task            string
	Sample, Attempt int
	Send            int
	AgentID, RunID  string
	// Sampled is the number of tokens in the answer's assistant turns.
	Sampled int
	// Digest is the [Digest] of the sampled tokens, without a fault of the data.
	Digest string
	// Fault is the injected fault, or empty. Connection faults do not show in traces.
	Fault FaultKind
	// Traced reports that the client has the tokens from traces.
	Traced bool
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Faults = maps.Clone(s.stats.Faults)
	st.Requests = maps.Clone(s.stats.Requests)
	return st
}

// Answers returns the answers in order. It needs Config.KeepAnswers.
func (s *Server) Answers() []Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Answer(nil), s.answers...)
}

// A Digest identifies sampled tokens and their log-probabilities, without turn boundaries. To
// compare, append the sampled tokens of a sample's rows, in order.
type Digest struct{ h hash.Hash }

// Append adds sampled ids and their log-probabilities; a missing one counts as NaN.
func (d *Digest) Append(ids []int32, logprobs []float32) {
	if d.h == nil {
		d.h = sha256.New()
	}
	buf := make([]byte, 0, 8*len(ids))
	for i, id := range ids {
		lp := float32(math.NaN())
		if i < len(logprobs) {
			lp = logprobs[i]
		}
		bits := math.Float32bits(lp)
		if lp != lp {
			bits = 0x7fc00000 // the same NaN for all
		}
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		buf = binary.LittleEndian.AppendUint32(buf, bits)
	}
	_, _ = d.h.Write(buf)
}

// String returns the digest so far, as 32 hexadecimal digits.
func (d *Digest) String() string {
	if d.h == nil {
		d.h = sha256.New()
	}
	return hex.EncodeToString(d.h.Sum(nil)[:16])
}
