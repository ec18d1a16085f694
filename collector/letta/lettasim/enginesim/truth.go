package enginesim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// A Call is the truth of one request for a generation.
type Call struct {
	N     int       `json:"n"` // in the order of arrival at this engine, from 1
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"` // just before the answer left
	Path  string    `json:"path"`
	// Status is the HTTP status of the answer, or 0 where the connection was dropped.
	Status int `json:"status"`
	// InputIDs is the whole prompt, as it came or as the chat template gave it.
	InputIDs []int32 `json:"input_ids"`
	// OutputIDs and Logprobs are what was sampled, of equal length, the stop id included;
	// null where nothing was.
	OutputIDs []int32  `json:"output_ids"`
	Logprobs  Logprobs `json:"logprobs"`
	Text      string   `json:"text"`
	Finish    Finish   `json:"finish"`
	// Sampling is sampling_params as they came, or the body of a chat completion without
	// its messages and tools.
	Sampling json.RawMessage `json:"sampling,omitempty"`
	Version  string          `json:"version"`
	// Cached is how many tokens of the prompt an earlier call of this engine had begun
	// with: what a prefix cache of unlimited size saves.
	Cached int `json:"cached"`

	Script string `json:"script,omitempty"` // the script that answered, as its marker names it
	Seed   string `json:"seed,omitempty"`
	Step   int    `json:"step"`
	Agent  string `json:"agent,omitempty"` // AGENT_ID and CONVERSATION_ID of the system message
}

// A Finish is an engine's word for the end of an output.
type Finish struct {
	Type    string `json:"type,omitempty"`
	Matched *int32 `json:"matched,omitempty"` // the stop id
	Length  int64  `json:"length,omitempty"`  // the limit that was met
	Message string `json:"message,omitempty"` // of an abort
}

// Sampled reports whether the call has sampled tokens, delivered or not.
func (c *Call) Sampled() bool { return len(c.OutputIDs) > 0 }

// A truth keeps calls in memory and writes each as a line.
type truth struct {
	mu    sync.Mutex
	n     int
	calls []Call
	log   io.Writer // nil: memory alone
	err   error     // the first that writing met
}

func (t *truth) begin() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.n
}

// keep keeps the call. Nothing of it may change afterwards.
func (t *truth) keep(c Call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("enginesim: call log: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
	if t.log != nil && t.err == nil {
		if _, err := t.log.Write(append(line, '\n')); err != nil {
			t.err = fmt.Errorf("enginesim: call log: %w", err)
		}
	}
	return t.err
}

func (t *truth) all() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := slices.Clone(t.calls)
	slices.SortFunc(calls, func(a, b Call) int { return a.N - b.N })
	return calls
}

// ReadCalls reads a log of calls. A last line that is torn, as a kill leaves it, is left
// out: its answer never left the engine.
func ReadCalls(r io.Reader) ([]Call, error) {
	var calls []Call
	lines := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return calls, fmt.Errorf("enginesim: call log: %w", err)
		}
		var c Call
		if err := json.Unmarshal(line, &c); err != nil {
			return calls, fmt.Errorf("enginesim: call log: line %d: %w", n, err)
		}
		if len(c.OutputIDs) != len(c.Logprobs) {
			return calls, fmt.Errorf("enginesim: call log: line %d: %d output_ids, %d logprobs", n, len(c.OutputIDs), len(c.Logprobs))
		}
		calls = append(calls, c)
	}
}
