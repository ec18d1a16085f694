package enginesim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Config is what an engine is made of. The zero value is an engine of bytes: ids 0 to 255
// are bytes, 256 is the stop id, and there is no chat template.
type Config struct {
	// Tokenizer and Template are the model's; Template may be nil, which refuses
	// /v1/chat/completions with token ids.
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
	// Stop is the text of the token that ends an output; <|im_end|>.
	Stop string
	// Result is what every result of a tool begins with in a prompt; <tool_response>, and
	// "status" for bytes. The step of a conversation is counted by it.
	Result string
	// Model is the id of the model; /models/qwen3. MaxModelLen is its context in tokens;
	// 32768.
	Model       string
	MaxModelLen int
	// Scripts are the scripts by name; Builtin().
	Scripts map[string]Script
	// Summary is the answer to a chat completion that asks for a summary.
	Summary string
	// ByMarker makes what is sampled a function of the marker and of the number of the call
	// alone, with its log-probabilities: two agents that receive the same answer the same.
	ByMarker bool
	// Version is the weight version at the start; default.
	Version string
	// Log gets each call as one line of JSON before its answer leaves; nil is none. Its
	// errors make calls fail with 500, so that no call is missing in silence.
	Log io.Writer
}

const (
	byteStop    = 256
	maxBody     = 256 << 20 // bytes
	maxPrefixes = 1 << 22   // tokens whose prefixes are remembered; about 150 MB
)

// An Engine is an http.Handler. It owns no goroutine and needs no Close.
type Engine struct {
	cfg     Config
	stop    int32
	mux     *http.ServeMux
	truth   truth
	memory  memory
	version atomic.Pointer[string]

	mu       sync.Mutex
	prefixes map[uint64]struct{} // hashes of all prefixes that were prompts or outputs
}

// New makes an engine. It fails where the stop token is none of the tokenizer's.
func New(cfg Config) (*Engine, error) {
	cfg.Stop = cmp.Or(cfg.Stop, "<|im_end|>")
	cfg.Model = cmp.Or(cfg.Model, "/models/qwen3")
	cfg.Version = cmp.Or(cfg.Version, "default")
	cfg.Summary = cmp.Or(cfg.Summary, "Summary: the user and the assistant talked; nothing is left to do.")
	if cfg.Tokenizer == nil {
		cfg.Result = cmp.Or(cfg.Result, `"status"`)
	}
	cfg.Result = cmp.Or(cfg.Result, "<tool_response>")
	cfg.MaxModelLen = cmp.Or(cfg.MaxModelLen, 32768)
	if cfg.Scripts == nil {
		cfg.Scripts = Builtin()
	}
	e := &Engine{
		cfg: cfg, stop: byteStop, mux: http.NewServeMux(), prefixes: map[uint64]struct{}{},
		memory: memory{last: map[string]Conversation{}, faults: map[string]int{}},
	}
	e.truth.log = cfg.Log
	e.version.Store(&cfg.Version)
	if cfg.Tokenizer != nil {
		id, ok := cfg.Tokenizer.ID(cfg.Stop)
		if !ok {
			return nil, fmt.Errorf("enginesim: stop %q: not a token of the tokenizer", cfg.Stop)
		}
		e.stop = id
	}
	e.mux.HandleFunc("GET /v1/models", e.models)
	for _, path := range []string{"/health", "/health_generate"} {
		e.mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) {})
	}
	for _, path := range []string{"/model_info", "/get_model_info"} {
		e.mux.HandleFunc("GET "+path, e.info)
	}
	e.mux.HandleFunc("POST /update_weight_version", e.update)
	e.mux.HandleFunc("POST /generate", e.generate)
	e.mux.HandleFunc("POST /v1/chat/completions", e.chat)
	e.mux.HandleFunc("GET /truth", e.served)
	return e, nil
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// Calls are the calls so far, in the order of their arrival. Those under way are not there.
// The caller must not change the slices inside.
func (e *Engine) Calls() []Call { return e.truth.all() }

// SetVersion sets the weight version. A call says the one that holds when it ends.
func (e *Engine) SetVersion(version string) { e.version.Store(&version) }

// Scripts are the names of the scripts.
func (e *Engine) Scripts() []string { return slices.Sorted(maps.Keys(e.cfg.Scripts)) }

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": e.cfg.Model, "object": "model", "created": 1700000000, "owned_by": "sglang", "root": e.cfg.Model, "max_model_len": e.cfg.MaxModelLen,
	}}})
}

func (e *Engine) info(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"model_path": e.cfg.Model, "is_generation": true, "weight_version": *e.version.Load()})
}

func (e *Engine) update(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Version string `json:"new_version"`
	}
	if err := readJSON(w, r, &body); err != nil || body.Version == "" {
		refuse(w, http.StatusBadRequest, `want {"new_version": "8"}`)
		return
	}
	e.SetVersion(body.Version)
	answer(w, http.StatusOK, map[string]any{"success": true, "new_version": body.Version})
}

func (e *Engine) served(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for _, c := range e.Calls() {
		if lines.Encode(c) != nil {
			return
		}
	}
}

// readJSON reads a body of bounded size, and what it holds besides the fields of v.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the body is not a request of %s: %w", r.URL.Path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON of the body")
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer is not JSON"}}`)
	}
	reply(w, status, body)
}

func reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone: nothing to do
}

// refuse answers an error as SGLang words it.
func refuse(w http.ResponseWriter, status int, message string) {
	kind := strings.ReplaceAll(http.StatusText(status), " ", "")
	answer(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": status}})
}

// cached counts how long a prefix of the prompt is known, and makes the whole known. The
// last token of a prompt is always computed.
func (e *Engine) cached(prompt []int32) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, h := 0, uint64(0)
	for i, id := range prompt {
		h = sglang.Mix(h ^ uint64(uint32(id)))
		if _, ok := e.prefixes[h]; ok && n == i && i < len(prompt)-1 {
			n++
		}
		e.prefixes[h] = struct{}{}
	}
	return n
}

// learn makes the prefixes of what was sampled known.
func (e *Engine) learn(prompt, output []int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.prefixes) > maxPrefixes {
		clear(e.prefixes) // counted as a cache that was flushed
	}
	h := uint64(0)
	for _, id := range prompt {
		h = sglang.Mix(h ^ uint64(uint32(id)))
	}
	for _, id := range output {
		h = sglang.Mix(h ^ uint64(uint32(id)))
		e.prefixes[h] = struct{}{}
	}
}
