package enginesim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Config configures an Engine. The zero value configures a byte engine: ids 0 to 255 are bytes, 256
// is the stop id, and there is no chat template.
type Config struct {
	// Tokenizer and Template belong to the simulated model. An engine with a Tokenizer but without
	// a Template refuses requests to /v1/chat/completions.
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
	// Stop is the text of the token that ends an output. Default "<|im_end|>".
	Stop string
	// Model is the id of the model. Default /models/qwen3. MaxModelLen is the model's context
	// length in tokens. Default 32768.
	Model       string
	MaxModelLen int
	// ByMarker makes the sampled tokens and their log-probabilities depend only on the marker and
	// the number of the call. Then two agents that receive the same messages also receive the same
	// answers from the engine.
	ByMarker bool
	// Version is the initial weight version. Default "default".
	Version string
	// Dialect is the dialect of /v1/chat/completions. Default DialectVLLM.
	Dialect Dialect
	// Reasoning turns on the reasoning parser of /v1/chat/completions: a think block becomes the
	// message's reasoning. Otherwise it remains in the content.
	Reasoning bool
	// StrictModel makes /v1/chat/completions refuse every model but Model with status 404, as vLLM
	// does.
	StrictModel bool
	// Experts is the shape of the routed experts that the engine returns: vLLM in every chat
	// completion, SGLang if the request has return_routed_experts. SamplingMask lets SGLang's
	// dialects return sampling masks (return_sampling_mask). With VersionSpans, meta_info has
	// weight_versions, with two versions per output. The functions [Experts], [Mask] and [Spans]
	// return the values.
	Experts      tokenize.ExpertShape
	SamplingMask bool
	VersionSpans bool
	// Log, if not nil, receives one JSON line per call (see the package documentation) when the
	// call has ended. The engine never writes two lines at once. Engine.LogError returns an error.
	Log io.Writer
}

const (
	byteStop = 256
	maxBody  = 256 << 20 // bytes
)

// An Engine is an http.Handler. It does not start goroutines and need not be closed.
type Engine struct {
	cfg     Config
	stop    int32
	result  string // occurs once in every tool result; the number of occurrences is the step
	scripts map[string]script
	mux     *http.ServeMux
	truth   truth
	memory  memory
	faults  faultLog
	logged  callLog
	version atomic.Pointer[string]
}

// New returns an engine. If the tokenizer lacks the stop token, New returns an error.
func New(cfg Config) (*Engine, error) {
	cfg.Stop = cmp.Or(cfg.Stop, "<|im_end|>")
	cfg.Model = cmp.Or(cfg.Model, "/models/qwen3")
	cfg.Version = cmp.Or(cfg.Version, "default")
	cfg.MaxModelLen = cmp.Or(cfg.MaxModelLen, 32768)
	e := &Engine{
		cfg: cfg, stop: byteStop, result: `"status"`, scripts: builtin(), mux: http.NewServeMux(),
		memory: memory{last: map[string]conversation{}}, faults: faultLog{done: map[string]int{}},
	}
	e.version.Store(&cfg.Version)
	if cfg.Tokenizer != nil {
		id, ok := cfg.Tokenizer.ID(cfg.Stop)
		if !ok {
			return nil, fmt.Errorf("enginesim: the tokenizer has no token %s", cfg.Stop)
		}
		e.stop, e.result = id, "<tool_response>"
	}
	e.mux.HandleFunc("GET /v1/models", e.models)
	for _, path := range []string{"/health", "/health_generate"} {
		e.mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) {})
	}
	for _, path := range []string{"/model_info", "/get_model_info"} {
		e.mux.HandleFunc("GET "+path, e.info)
	}
	e.mux.HandleFunc("GET /calls", e.listCalls)
	e.mux.HandleFunc("POST /generate", e.generate)
	e.mux.HandleFunc("POST /v1/completions", e.completions)
	e.mux.HandleFunc("POST /v1/chat/completions", e.chat)
	return e, nil
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// Calls returns the calls that have ended, in the order of arrival. The caller must not modify the
// slices in them.
func (e *Engine) Calls() []Call { return e.truth.all() }

// SetVersion sets the weight version. A call is recorded with the version that is set when the call
// ends.
func (e *Engine) SetVersion(version string) { e.version.Store(&version) }

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": e.cfg.Model, "object": "model", "created": 1700000000, "owned_by": e.cfg.Dialect.owner(), "root": e.cfg.Model, "max_model_len": e.cfg.MaxModelLen,
	}}})
}

func (e *Engine) info(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"model_path": e.cfg.Model, "is_generation": true, "weight_version": *e.version.Load()})
}

// readJSON decodes a body of limited size into v. It rejects data after the JSON value.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the body is not a request for %s: %w", r.URL.Path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON body")
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer is not JSON"}}`)
	}
	send(w, status, body)
}

func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client disconnected
}

// refuse answers with an error in SGLang's format.
func refuse(w http.ResponseWriter, status int, message string) {
	kind := strings.ReplaceAll(http.StatusText(status), " ", "")
	answer(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": status}})
}
