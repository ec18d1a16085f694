package session

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/tokenize"
)

// The errors of Build. Use errors.Is to recognize them.
var (
	// ErrNoCalls: no call of the session has an answer.
	ErrNoCalls = errors.New("session: no call was answered")
	// ErrForeign: no conversation of the session contains the task's prompt.
	ErrForeign = errors.New("session: no conversation contains the task's prompt")
	// ErrDamaged: the record contradicts itself.
	ErrDamaged = errors.New("session: damaged record")
)

// Config configures Build.
type Config struct {
	// If TrainAuxiliary is true, the calls of auxiliary chains are rows like all others, unless
	// another model answered them. Otherwise they are left out.
	TrainAuxiliary bool
}

// A Rollout is a session as the calls of one sample.
type Rollout struct {
	// Calls contains every answered call once. The trained calls come first: chain 0, then chain 1,
	// and so on, each in the order of its requests. The calls that are left out come last, in the
	// order of their requests. They have grade Quarantined and a Reason. The calls share memory with
	// the Record.
	Calls []tokenize.Call
	// Number contains, for each element of Calls, the Call.Number in the Record.
	Number []int
	// Chains contains the chains by their number. If there is no main chain, the first element has
	// no calls.
	Chains []Chain
	// Main describes the main chain.
	Main Main
	// Failed is the number of requests without an answer. They have no tokens and are not in Calls.
	Failed int
	Tally  Tally
}

// A Chain is one conversation of a session.
type Chain struct {
	Kind tokenize.ChainKind
	// Calls contains the indexes of the chain's calls in Rollout.Calls, in the order of their
	// requests, including the calls that are left out.
	Calls []int
	// If the chain forked from another chain, From is the index in Rollout.Calls of the last call
	// that both have in common. Otherwise From is -1.
	From int
	// Parent is the index in Rollout.Calls of the call that started the subagent. It is -1 if the
	// call is not proven, if the chain forked, or if the chain does not belong to a subagent.
	Parent int
}

// Main is the end of the main chain.
type Main struct {
	// Call is the index in Rollout.Calls of the last answer, or -1 if there is no main chain. An
	// answer that the harness dropped is the last answer only if there is no other.
	Call int
	// Text is the text of that answer without its reasoning, and Finish is its finish reason.
	Text, Finish string
	// Model is the name of the model of the main chain, or empty if unknown.
	Model string
	// Messages is a JSON array: the messages of the last request and the answer.
	Messages json.RawMessage
}

// A Tally counts the sampled tokens of a session. Each token is counted in exactly one of the terms
// on the right:
//
//	Sampled == Trained + Auxiliary + Superseded + Cut + Quarantined
//
// Tokens in Trained can still be unscored, trimmed or cut at the row limit: see
// [tokenize.Alignment].
type Tally struct {
	Sampled     int
	Trained     int // in calls without a Reason
	Auxiliary   int // ReasonAuxiliary
	Superseded  int // ReasonSuperseded
	Cut         int // ReasonCutAnswer
	Quarantined int // any other reason
}

// Build finds the chains of a session and decides which calls are trained. The package comment
// contains the rules. The result depends only on the arguments, and the order of r.Calls does not
// matter. Build does not change r.
//
// The error wraps ErrNoCalls, ErrForeign or ErrDamaged. With ErrForeign, the Rollout is not nil. It
// shows which calls the session contains, but none of them must be trained.
func Build(r *Record, cfg Config) (*Rollout, error) {
	b, err := newBuilder(r, cfg)
	if err != nil {
		return nil, err
	}
	if len(b.calls) == 0 {
		return nil, fmt.Errorf("%w: session %s has %d requests", ErrNoCalls, r.ID, len(r.Calls))
	}
	b.findParents()
	b.findQuotes()
	b.findRepeats()
	b.decideFates()
	b.findChains()
	b.chooseKinds()
	b.findStarts()
	out := b.rollout()
	if out.Main.Call < 0 {
		return out, fmt.Errorf("%w: session %s has %d conversations", ErrForeign, r.ID, len(b.chains))
	}
	return out, nil
}
