package session

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A Record is everything that is known about a session.
type Record struct {
	ID   string
	Head Head
	// Texts contains each different message and each different list of tools that the session's
	// requests contained, as the JSON text in the request. Calls refer to them by index.
	Texts []json.RawMessage
	// Calls is sorted by Call.Number.
	Calls []Call
	// End is nil if the session is open.
	End *End
}

// A Head describes a session when it begins.
type Head struct {
	Began time.Time `json:"began"`
	// Model is the engine's name for its own model, or empty if unknown.
	Model string `json:"model,omitempty"`
	// Task is nil if the program that began the session did not name a task.
	Task *Task `json:"task,omitempty"`
}

// A Task is the task that a program states when it begins a session. All fields are optional.
type Task struct {
	ID string `json:"id,omitempty"`
	// Prompt is the text with which the agent begins. The main chain is the chain that contains it.
	Prompt   string          `json:"prompt,omitempty"`
	Answer   *string         `json:"answer,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// An End seals a session.
type End struct {
	At time.Time `json:"at"`
	// Reward is nil if the program did not score the session.
	Reward   *float64        `json:"reward,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// FinalText is the agent's final answer, or nil if the program did not state it.
	FinalText *string `json:"final_text,omitempty"`
	// Calls is the number of calls in the session, and Digest is the SHA-256 of their records, in
	// hexadecimal. A session whose calls do not match them is damaged.
	Calls  int    `json:"calls"`
	Digest string `json:"digest"`
}

// A Call is one request of the session to a model, and its answer.
type Call struct {
	// Call contains the tokens, the engine's counts and the sampling parameters. Unlike in a spool,
	// Output and Logprobs of a cut call contain the tokens that arrived before the cut.
	tap.Call
	// Number is the position of the request among the session's requests, from 1, in the order in
	// which the requests arrived. The number of a request that was not recorded is missing.
	Number int
	// Messages contains the indexes of the request's messages in Record.Texts. Tools is the index of
	// its list of tools, or -1.
	Messages []int
	Tools    int
	// Answer is the assistant message in the answer, as JSON: role, content, reasoning_content and
	// tool_calls as the client received them. It is nil if the answer contained no message. If the
	// answer is incomplete, Answer contains the part that arrived.
	Answer json.RawMessage
	// Delivered is true if the whole answer was written to the connection without an error, and the
	// client was still connected when the last part was written.
	Delivered bool
	// Retry is the number of earlier tries that the client states for this request
	// (x-stainless-retry-count), or -1.
	Retry int
	// Spliced is true if the engine received answers of the session in its own form, although the
	// client had sent them in another form (proxy.Config.Continuity). Messages contains what the
	// client sent.
	Spliced bool
	// Agent identifies the agent that sent the request, and ParentAgent the agent that started it.
	// They are hashes of the names in the client's headers, or "" if the headers do not name an
	// agent.
	Agent, ParentAgent string
	// Model is the engine's name for the model that answered, such as a LoRA adapter, or "" for
	// Head.Model.
	Model string
	// Unread is the reason why the ids of the answer are not usable, such as no_ids, or "". The
	// package comment of collector/tap/proxy lists the reasons. A refused call has no answer. Its
	// reason is UnreadOverflow or "".
	Unread string
}

// UnreadOverflow means that the engine refused a call, because the conversation exceeds the context
// length.
const UnreadOverflow = "context_overflow"

// UnreadExperts means that the routed experts in an answer do not have the configured shape, or do
// not belong to the call's tokens. UnreadMask means that the sampling masks do not belong to them.
const (
	UnreadExperts = "routed_experts"
	UnreadMask    = "sampling_mask"
)
