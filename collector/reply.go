package collector

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Reply contains all answers of an agent in one attempt.
type Reply struct {
	AgentID, Model string
	// ServerVersion is the version that the server reports. It is empty if unknown.
	ServerVersion string

	// Sends has one entry per request that was answered with status 200, in order.
	Sends []Send

	// Started is the time at which the rollout started, by the server's clock. It is set only if
	// another program drove the rollout. The duration of such a rollout is the sum of the durations
	// of its sends.
	Started time.Time

	// FirstAnswer is the time between the first send and the answer to the first send. It is 0 if
	// unknown.
	FirstAnswer time.Duration
	// LastAnswer is the time at which the server's last answer ended, by this machine's clock. The
	// zero time stands for the end of Agent.Run. A server that answered then can be down by the end.
	LastAnswer time.Time

	// Missing lists the calls whose tokens are lost, in order. Each such call becomes a failure of
	// the sample. Sends does not include these calls.
	Missing []MissingCall

	// Unshown counts calls that a tap recorded but that are in no answer. Agent.Prompts sets it.
	Unshown tokenize.Unshown

	// Output is the text that a Scorer scores. An Agent sets it to the text of the last assistant
	// message. Before the Scorer runs, Output is copied to Text. Config.Splitter then splits Text
	// into Output and Reasoning.
	Output, Text, Reasoning string
	// Reward, if not nil, is the reward that the program that drove the rollout gave it. It must be
	// finite. The Scorer is then not used.
	Reward *float64
	// ExitCode is the exit code of the agent's command, or -1 if a signal ended the command. It is
	// nil if the agent is not a command of this process.
	ExitCode *int
	// Workdir is the working folder of the command, or empty. It exists until Agent.Close.
	Workdir string
	// Trial is true if the reply only serves to test the Scorer and was not written by a model.
	Trial bool
	// Redact, if not nil, removes secrets from a text or from JSON. The Scorer gets the texts of the
	// reply unchanged. Redact is called before Messages, the Scorer's details or its error are stored
	// or reported.
	Redact func(text string) string
	// Messages is the conversation as a JSON array, or nil if it is unknown. If the agent has several
	// conversations, it is the main one. The samples contain it only with Config.Messages.
	Messages json.RawMessage
}

// A Send is the answer to one request.
type Send struct {
	Turns      []tokenize.Turn
	RunID      string
	StopReason string
	Usage      Usage
	// ClientTools is true if the request contained the result of a client-side tool. The prompts of
	// this send and of all later sends include that result.
	ClientTools bool
	// FromRecord is true if the answer was lost and the turns come from the server's record.
	FromRecord bool
	// Lost is the reason why the answer of a FromRecord send was lost, or nil if an earlier process
	// made the send.
	Lost error
	// Duration is the time that the server took, or 0 if unknown. For a FromRecord send it is
	// measured by the server's clock.
	Duration time.Duration
}

// A MissingCall is a call whose tokens the server no longer has.
type MissingCall struct {
	// Before is the number of calls in Sends that come before this call.
	Before int
	Reason tokenize.Reason
	Note   string
}

// number returns the index of call k among all calls, including the missing calls.
func (r *Reply) number(k int32) int32 {
	n := k
	for i := range r.Missing {
		if r.Missing[i].Before <= int(k) {
			n++
		}
	}
	return n
}

// Usage contains the server's counts for one send, summed over all steps of the send.
type Usage struct {
	PromptTokens, CompletionTokens int64
	Steps                          int32
}

// redacted returns a text without secrets.
func (r *Reply) redacted(text []byte) string {
	if r.Redact == nil {
		return string(text)
	}
	return r.Redact(string(text))
}

func (r *Reply) counts() tokenize.Counts {
	var sum tokenize.Counts
	for i := range r.Sends {
		u := &r.Sends[i].Usage
		sum.PromptTokens += u.PromptTokens
		sum.CompletionTokens += u.CompletionTokens
		sum.Steps += u.Steps
	}
	return sum
}

func (r *Reply) eachCall(calls []tokenize.Call, do func(s *Send, c *tokenize.Call)) {
	k := 0
	for i := range r.Sends {
		s := &r.Sends[i]
		for j := range s.Turns {
			if s.Turns[j].Role != tokenize.RoleAssistant {
				continue
			}
			if k < len(calls) {
				do(s, &calls[k])
			}
			k++
		}
	}
}

// flagCalls flags the calls whose context includes the result of a client-side tool, and the calls
// from the server's record. Each flag applies to the first send that causes it and to all later
// sends.
func (r *Reply) flagCalls(calls []tokenize.Call) {
	k, flags := 0, tokenize.Flags(0)
	for i := range r.Sends {
		if r.Sends[i].ClientTools {
			flags |= tokenize.FlagClientToolContext
		}
		if r.Sends[i].FromRecord {
			flags |= tokenize.FlagReattached
		}
		for j := range r.Sends[i].Turns {
			if r.Sends[i].Turns[j].Role != tokenize.RoleAssistant {
				continue
			}
			if k < len(calls) {
				calls[k].Flags |= flags
			}
			k++
		}
	}
}

func (r *Reply) fromRecord() bool {
	return slices.ContainsFunc(r.Sends, func(s Send) bool { return s.FromRecord })
}

// took returns the sum of the known durations of the sends. The receiver can be nil.
func (r *Reply) took() (d time.Duration) {
	if r == nil {
		return 0
	}
	for i := range r.Sends {
		d += r.Sends[i].Duration
	}
	return d
}

// Values of the column status.
const (
	StatusCompleted = "completed"
	StatusMaxSteps  = "max_steps"
	StatusTruncated = "truncated"
	StatusCancelled = "cancelled" // failures only
	StatusError     = "error"     // failures only
)

// StatusOf returns the status for the stop reason of the last send. Rollouts with status completed,
// max_steps or truncated are data. All other rollouts are failures.
//
//	end_turn, tool_rule     completed
//	max_steps               max_steps
//	max_tokens_exceeded     truncated: the last call reached its length limit
//	cancelled               cancelled
//	error, invalid_tool_call, an open requires_approval, all others   error
func StatusOf(stopReason string) string {
	switch stopReason {
	case "end_turn", "tool_rule":
		return StatusCompleted
	case "max_steps":
		return StatusMaxSteps
	case "max_tokens_exceeded":
		return StatusTruncated
	case "cancelled":
		return StatusCancelled
	}
	return StatusError
}

// checkEnd returns an error if the stop reason is a failure or if any send has no turns. Without
// turns, the tokens of that send would be missing from the rollout.
func checkEnd(s *tokenize.Sample, r *Reply) error {
	if len(r.Sends) == 0 {
		return fmt.Errorf("%w: no send was answered", ErrNoTurns)
	}
	if s.Status == StatusCancelled || s.Status == StatusError {
		return fmt.Errorf("%w: stop reason %q", ErrAgent, s.StopReason)
	}
	for i := range r.Sends {
		if r.Sends[i].Turns == nil {
			return fmt.Errorf("%w: send %d of %d", ErrNoTurns, i+1, len(r.Sends))
		}
	}
	return nil
}

// checkEnds returns an error if the engine aborted a call, because the server treats the partial
// output as a complete turn. This does not apply to a call whose answer the agent did not read.
//
// If the rollout is truncated, the last call of the main conversation reached its length limit. If
// its finish reason is unknown, checkEnds sets it to length. In the calls of a session, calls of other
// conversations and left-out calls follow that call.
func checkEnds(s *tokenize.Sample, calls []tokenize.Call) error {
	for k := range calls {
		if calls[k].FinishReason == tokenize.FinishAbort && reasonClass(calls[k].Reason) != ClassUntrained {
			return fmt.Errorf("%w: call %d of %d, after %d tokens", ErrAborted, k+1, len(calls), len(calls[k].OutputIDs))
		}
	}
	k := len(calls) - 1
	for k >= 0 && (calls[k].Chain != 0 || reasonClass(calls[k].Reason) == ClassUntrained) {
		k--
	}
	if k >= 0 && s.Status == StatusTruncated && calls[k].FinishReason == "" && calls[k].Grade < tokenize.Quarantined {
		calls[k].FinishReason = tokenize.FinishLength
	}
	return nil
}
