package enginesim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"sync"
	"time"
)

// A logLine is the JSON of a call. The package documentation describes it.
type logLine struct {
	N        int        `json:"n"`
	Path     string     `json:"path"`
	Began    time.Time  `json:"began"`
	Ended    time.Time  `json:"ended"`
	Status   int        `json:"status"`
	Stream   bool       `json:"stream"`
	Prompt   []int32    `json:"prompt_ids"`
	Output   []int32    `json:"output_ids"`
	Logprobs []*float32 `json:"logprobs"`
	Text     string     `json:"text"`
	Finish   string     `json:"finish"`
	Reason   string     `json:"finish_reason"`
	Complete bool       `json:"complete"`
	Listed   int        `json:"listed"`
	Fault    string     `json:"fault"`
	Marker   string     `json:"marker"`
	Script   string     `json:"script"`
	Seed     string     `json:"seed"`
	Step     int        `json:"step"`
	Messages int        `json:"messages"`
	Digest   string     `json:"messages_sha256"`
	Tools    []string   `json:"tools"`
	Version  string     `json:"version"`
}

// AppendJSON appends the call to dst as a line of the log.
func (c *Call) AppendJSON(dst []byte) []byte {
	line := logLine{
		N: c.N, Path: c.Path, Began: c.Began.UTC(), Ended: c.Ended.UTC(), Status: c.Status, Stream: c.Stream,
		Prompt: c.InputIDs, Output: c.OutputIDs, Text: c.Text, Finish: c.Finish.Type, Reason: c.FinishReason,
		Complete: c.Complete, Listed: c.Listed, Fault: c.Fault, Marker: c.Marker, Script: c.Script, Seed: c.Seed, Step: c.Step,
		Messages: c.Messages, Digest: c.Digest, Tools: c.Tools, Version: c.Version,
	}
	for i := range c.Logprobs {
		var lp *float32
		if x := float64(c.Logprobs[i]); !math.IsNaN(x) && !math.IsInf(x, 0) {
			lp = &c.Logprobs[i]
		}
		line.Logprobs = append(line.Logprobs, lp)
	}
	b, _ := json.Marshal(line) // cannot fail, because no number is infinite
	return append(append(dst, b...), '\n')
}

// describe records the messages and tools of the request.
func (c *Call) describe(body *chatRequest) {
	text, _ := json.Marshal(body.Messages) // cannot fail, because all messages were decoded from JSON
	sum := sha256.Sum256(text)
	c.Messages, c.Digest = len(body.Messages), hex.EncodeToString(sum[:])
	for _, t := range parseTools(body.Tools) {
		c.Tools = append(c.Tools, t.Name)
	}
}

// A callLog writes calls to Config.Log.
type callLog struct {
	mu  sync.Mutex
	err error // the first error
}

// log writes a call that has ended.
func (e *Engine) log(c *Call) {
	if e.cfg.Log == nil {
		return
	}
	line := c.AppendJSON(nil)
	e.logged.mu.Lock()
	defer e.logged.mu.Unlock()
	if _, err := e.cfg.Log.Write(line); err != nil && e.logged.err == nil {
		e.logged.err = err
	}
}

// LogError returns the first error of Config.Log.
func (e *Engine) LogError() error {
	e.logged.mu.Lock()
	defer e.logged.mu.Unlock()
	return e.logged.err
}

// listCalls returns the calls whose answer was sampled or refused, as lines of the log.
func (e *Engine) listCalls(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	var b []byte
	for _, c := range e.Calls() {
		b = c.AppendJSON(b)
	}
	_, _ = w.Write(b) // an error means that the client disconnected
}
