package collector

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Reply is everything that the agent of one attempt answered.
type Reply struct {
	// AgentID names the agent; Model is the handle that it was made with.
	AgentID, Model string
	// ServerVersion is what the server calls itself, or empty.
	ServerVersion string

	// Sends holds one entry per request that was answered with 200, in order.
	Sends []Send

	// Started is when the rollout began, by the server's clock, where another program drove
	// it. Then its duration is that of the sends. Zero: the attempt drove it.
	Started time.Time

	// FirstAnswer is how long it took until the server answered the first send; 0 if that
	// is not known.
	FirstAnswer time.Duration

	// Missing are calls of the rollout whose tokens nobody keeps, in order. Each is a failure of
	// its sample. The turns of the sends, and their counts, have none of them.
	Missing []MissingCall

	// Unshown counts the calls of the rollout that a tap saw and that no answer shows.
	// Agent.Prompts sets it.
	Unshown tokenize.Unshown

	// Output is the text that a Scorer scores. An Agent sets it to the text of the last assistant
	// message. Before the Scorer runs, that text is copied to Text, and Config.Splitter
	// sets Output to the answer and Reasoning to the text before it.
	Output, Text, Reasoning string
	// Trial reports that no model wrote the reply: it is for a trial of the Scorer.
	Trial bool
	// Messages is the conversation as JSON, or nil if it was not asked for.
	Messages json.RawMessage
}

// A Send is the answer to one request.
type Send struct {
	// Turns are as the server sent them; nil if it sent none.
	Turns []tokenize.Turn
	// RunID names the server run; empty if the answer names none.
	RunID string
	// StopReason is the server's own word.
	StopReason string
	Usage      Usage
	// ClientTools reports that the request held a tool result that the client made. Then the
	// contexts of this send and of all later ones hold it too.
	ClientTools bool
	// FromRecord reports that the answer was not received: the turns are taken from the
	// record that the server keeps of the run.
	FromRecord bool
	// Lost is why this process did not receive the answer of a send that is FromRecord; nil
	// if an earlier process sent it.
	Lost error
	// Duration is how long the server took, by its own clock if the answer was not received;
	// 0 if that is not known.
	Duration time.Duration
}

// A MissingCall is a call of which a server that was asked later has no tokens.
type MissingCall struct {
	// Before is how many calls of the reply come before it.
	Before int
	Reason tokenize.Reason
	// Note says, for people, what is missing.
	Note string
}

// number returns the place of call k among all calls of the rollout, the missing ones included.
func (r *Reply) number(k int32) int32 {
	n := k
	for i := range r.Missing {
		if r.Missing[i].Before <= int(k) {
			n++
		}
	}
	return n
}

// Usage has the counts of the server for one send, summed over its steps.
type Usage struct {
	PromptTokens, CompletionTokens int64
	Steps                          int32
}

// counts returns the counts of the server, summed over the sends.
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

// eachCall calls do with every call and the send that it belongs to.
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

// flagCalls flags the calls whose context holds a tool result that the client made, and the
// calls that were taken from the record of the server: the calls of the first such send and
// of all later ones.
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

// fromRecord reports whether a send was taken from the record of the server.
func (r *Reply) fromRecord() bool {
	return slices.ContainsFunc(r.Sends, func(s Send) bool { return s.FromRecord })
}

// took returns how long the server is known to have worked on the reply. r may be nil.
func (r *Reply) took() (d time.Duration) {
	if r == nil {
		return 0
	}
	for i := range r.Sends {
		d += r.Sends[i].Duration
	}
	return d
}

// The values of the status column.
const (
	StatusCompleted = "completed"
	StatusMaxSteps  = "max_steps"
	StatusTruncated = "truncated"
	StatusCancelled = "cancelled" // failures only
	StatusError     = "error"     // failures only
)

// StatusOf returns the status of a rollout whose last send ended with the stop reason.
// Rollouts that are completed, max_steps or truncated are data; the others are failures.
//
//	end_turn, tool_rule     completed
//	max_steps               max_steps
//	max_tokens_exceeded     truncated: length ended the last call
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

// checkEnd refuses a reply that ended badly or has no token data. One send without turns is
// enough: its tokens would be missing in the middle.
func checkEnd(s *tokenize.Sample, r *Reply) error {
	if len(r.Sends) == 0 {
		return fmt.Errorf("%w: nothing was answered", ErrNoTurns)
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

// checkEnds refuses a call that the engine gave up in the middle: the server takes what
// there is for a whole turn, although the policy did not end it. If the server says that the
// rollout was truncated, then the last call was, and checkEnds notes that.
func checkEnds(s *tokenize.Sample, calls []tokenize.Call) error {
	for k := range calls {
		if calls[k].FinishReason == tokenize.FinishAbort {
			return fmt.Errorf("%w: call %d of %d, after %d tokens", ErrAborted, k+1, len(calls), len(calls[k].OutputIDs))
		}
	}
	if n := len(calls); n > 0 && s.Status == StatusTruncated && calls[n-1].FinishReason == "" {
		calls[n-1].FinishReason = tokenize.FinishLength
	}
	return nil
}
