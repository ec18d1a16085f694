package enginesim

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// A Call records one request for a generation.
type Call struct {
	N     int // number of the call in the order of arrival, from 1
	Began time.Time
	Ended time.Time // time just before the answer was sent
	Path  string
	// Status is the HTTP status of the answer, or 0 if the connection was dropped.
	Status int
	// InputIDs is the whole prompt, either from the request or rendered with the chat template.
	InputIDs []int32
	// OutputIDs contains the sampled ids, including the stop id. Logprobs has the same length as
	// OutputIDs. If nothing was sampled, OutputIDs and Logprobs are nil.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
	Finish    Finish
	// FinishReason is the finish_reason of a chat completion, such as tool_calls.
	FinishReason string
	Stream       bool // the request asked for a stream
	// Complete reports whether the whole answer was written while the client was connected. It
	// is set after the answer was sent. Listed is the number of sampled ids in what was written.
	Complete bool
	Listed   int
	// Sampling is the request's sampling_params or, for a chat completion, the body without
	// messages and tools.
	Sampling json.RawMessage
	Version  string

	// Messages is the number of messages of a chat completion, and Digest the SHA-256 of their JSON
	// text, in hexadecimal. Tools contains the names of the tools.
	Messages int
	Digest   string
	Tools    []string
	// Fault is the scripted fault of this call, such as cut, and Marker the marker of the script
	// harness, without the parameter step.
	Fault  string
	Marker string

	Script string // the name of the script in the marker
	Seed   string
	Step   int
	Agent  string // AGENT_ID and CONVERSATION_ID from the system message
}

// A Finish is an engine's finish reason.
type Finish struct {
	Type    string `json:"type,omitempty"`
	Matched *int32 `json:"matched,omitempty"` // the stop id
	Length  int64  `json:"length,omitempty"`  // the token limit that the output reached
}

// Sampled reports whether tokens were sampled, even if the client did not receive them.
func (c *Call) Sampled() bool { return len(c.OutputIDs) > 0 }

// A truth stores the calls in memory.
type truth struct {
	mu    sync.Mutex
	n     int
	calls []Call
}

func (t *truth) begin() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.n
}

// keep stores the call. The call must not be modified afterwards.
func (t *truth) keep(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

// update replaces the stored call that has the same number.
func (t *truth) update(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.calls) - 1; i >= 0; i-- {
		if t.calls[i].N == c.N {
			t.calls[i] = c
			return
		}
	}
}

func (t *truth) all() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(slices.Values(t.calls), func(a, b Call) int { return a.N - b.N })
}
