package enginesim

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// A Call records one request for a generation.
type Call struct {
	N     int // number in the order of arrival at this engine, from 1
	Began time.Time
	Ended time.Time // just before the answer was sent
	Path  string
	// Status is the HTTP status of the answer, or 0 if the connection was dropped.
	Status int
	// InputIDs is the whole prompt, from the request or from the chat template.
	InputIDs []int32
	// OutputIDs has the sampled ids, including the stop id. Logprobs has the same length. Both are
	// nil if nothing was sampled.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
	Finish    Finish
	// Sampling is the request's sampling_params, or the body of a chat completion without its
	// messages and tools.
	Sampling json.RawMessage
	Version  string

	Script string // the name of the script in the marker
	Seed   string
	Step   int
	Agent  string // AGENT_ID and CONVERSATION_ID of the system message
}

// A Finish is an engine's finish reason.
type Finish struct {
	Type    string `json:"type,omitempty"`
	Matched *int32 `json:"matched,omitempty"` // the stop id
	Length  int64  `json:"length,omitempty"`  // the limit that was reached
}

// Sampled reports whether the call has sampled tokens, delivered or not.
func (c *Call) Sampled() bool { return len(c.OutputIDs) > 0 }

// A truth keeps calls in memory.
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

// keep stores the call, which must not change afterwards.
func (t *truth) keep(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

func (t *truth) all() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(slices.Values(t.calls), func(a, b Call) int { return a.N - b.N })
}
