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
	// Sends counts the sends received. Answered counts the complete answers with status 200.
	// InFlight is the number of sends in progress.
	Sends, Answered, InFlight int64
	// MaxInFlight is the highest value of InFlight so far.
	MaxInFlight int64
	// BytesSent counts the bytes in the bodies of all answers.
	BytesSent int64
	// Refused counts the requests that were refused because of [Server.Refuse].
	Refused int64
	// EngineCalls counts the successful calls to Config.Engine. EngineErrors counts the failed
	// calls.
	EngineCalls, EngineErrors int64
	// Faults counts the injected faults by kind.
	Faults map[FaultKind]int64
	// Requests counts the requests by method and route, such as "POST /v1/agents/{id}/messages".
	Requests map[string]int64
}

// An Answer is a send whose tokens the client has received, either in an answer with status 200 or,
// if that answer was lost, in the traces of all its steps.
type Answer struct {
	Task            string
	Sample, Attempt int
	Send            int
	AgentID, RunID  string
	// Sampled is the number of sampled tokens in the send's assistant turns.
	Sampled int
	// Digest is the [Digest] of the sampled tokens before a data fault changes them.
	Digest string
	// Fault is the injected fault, or empty. It is also empty if a connection fault hit the send
	// but the tokens came from traces.
	Fault FaultKind
	// Traced is true if the tokens came from traces.
	Traced bool
}

// Stats returns the current stats.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Faults = maps.Clone(s.stats.Faults)
	st.Requests = maps.Clone(s.stats.Requests)
	return st
}

// Answers returns the recorded answers in order. Config.KeepAnswers must be set.
func (s *Server) Answers() []Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Answer(nil), s.answers...)
}

// A Digest identifies a sequence of sampled tokens and their log-probabilities, without turn
// boundaries. To compare a sample with [Answer.Digest], append the sampled tokens in the sample's
// rows, in order.
type Digest struct{ h hash.Hash }

// Append adds sampled ids and their log-probabilities. A missing log-probability counts as NaN.
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
			bits = 0x7fc00000 // all NaNs have the same digest
		}
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		buf = binary.LittleEndian.AppendUint32(buf, bits)
	}
	_, _ = d.h.Write(buf)
}

// String returns the digest of everything appended so far, as 32 hexadecimal digits.
func (d *Digest) String() string {
	if d.h == nil {
		d.h = sha256.New()
	}
	return hex.EncodeToString(d.h.Sum(nil)[:16])
}
