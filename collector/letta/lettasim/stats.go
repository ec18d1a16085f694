package lettasim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
)

// Stats is a snapshot of what the server did.
type Stats struct {
	AgentsAlive, AgentsCreated, AgentsDeleted int64
	// Sends counts the sends that came in, Answered those answered with 200 in
	// full, InFlight those being answered.
	Sends, Answered, InFlight int64
	// MaxInFlight is the highest InFlight so far.
	MaxInFlight int64
	// BytesSent counts body bytes of all answers.
	BytesSent int64
	// Refused counts the requests that met [Server.Refuse].
	Refused int64
	// EngineCalls counts the calls that Config.Engine made, EngineErrors those that it
	// failed.
	EngineCalls, EngineErrors int64
	// Faults counts the injected faults by kind.
	Faults map[FaultKind]int64
	// Requests counts requests by method and route, such as
	// "POST /v1/agents/{id}/messages".
	Requests map[string]int64
}

// An Answer is one send whose tokens were handed out in full: answered with 200, or,
// where that answer was lost, shown by the traces of all its steps.
type Answer struct {
	Task            string
	Sample, Attempt int
	Send            int
	AgentID, RunID  string
	// Sampled is the number of tokens of the assistant turns in the answer.
	Sampled int
	// Digest is the [Digest] of what was sampled. Of an answer with a fault of the
	// data it is that of the answer without the fault.
	Digest string
	// Fault is what was injected into the answer, or empty. That of a connection does
	// not show in traces.
	Fault FaultKind
	// Traced says that the tokens were taken from traces.
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

// Answers returns the answers in the order in which they were handed out, where
// Config.KeepAnswers asks for it.
func (s *Server) Answers() []Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Answer(nil), s.answers...)
}

// A Digest identifies sampled tokens and their log-probabilities, turn borders
// left out: append the sampled tokens of a sample's rows, in order, and compare.
type Digest struct{ h hash.Hash }

// Append adds sampled ids and their log-probabilities; a missing one is NaN.
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
			bits = 0x7fc00000 // one NaN for all
		}
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		buf = binary.LittleEndian.AppendUint32(buf, bits)
	}
	_, _ = d.h.Write(buf)
}

// String is the digest so far, 32 hexadecimal digits.
func (d *Digest) String() string {
	if d.h == nil {
		d.h = sha256.New()
	}
	return hex.EncodeToString(d.h.Sum(nil)[:16])
}
