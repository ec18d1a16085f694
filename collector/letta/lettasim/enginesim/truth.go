package enginesim

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// A Call is the truth of one request for a generation.
type Call struct {
	N     int // in the order of arrival at this engine, from 1
	Began time.Time
	Ended time.Time // just before the answer left
	Path  string
	// Status is the HTTP status of the answer, or 0 where the connection was dropped.
	Status int
	// InputIDs is the whole prompt, as it came or as the chat template gave it.
	InputIDs []int32
	// OutputIDs and Logprobs are what was sampled, of equal length, the stop id included;
	// nil where nothing was.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
	Finish    Finish
	// Sampling is sampling_params as they came, or the body of a chat completion without
	// its messages and tools.
	Sampling json.RawMessage
	Version  string

	Script string // the script that answered, as its marker names it
	Seed   string
	Step   int
	Agent  string // AGENT_ID and CONVERSATION_ID of the system message
}

// A Finish is an engine's word for the end of an output.
type Finish struct {
	Type    string `json:"type,omitempty"`
	Matched *int32 `json:"matched,omitempty"` // the stop id
	Length  int64  `json:"length,omitempty"`  // the limit that was met
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

// keep keeps the call. Nothing of it may change afterwards.
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
