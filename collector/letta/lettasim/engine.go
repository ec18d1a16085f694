package lettasim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// With Config.Engine, the calls of scripted agents are sent to an engine that the user provides.
// The format is the format of SGLang's native endpoint. Each call is one request:
//
//	POST {Engine}/generate
//	{"input_ids":[51,32,10],"sampling_params":{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true}
//
// The body is the same as in requests from server 0.16.7. The answer must contain output_ids and,
// in meta_info, output_token_logprobs with one [log-probability, id, anything] for each output id:
//
//	{"output_ids":[51,0],"meta_info":{"output_token_logprobs":[[-0.7,51,null],[-0.1,0,null]],
//	 "finish_reason":{"type":"stop","matched":0},"prompt_tokens":3,"completion_tokens":2,"weight_version":"3"}}
//
// Both lists are copied unchanged into the turns. The whole answer, including weight_version (a
// string), is copied into the provider trace, as on a real server.
//
// The prompt of a call contains everything so far, in order: the UTF-8 bytes of each user message
// and a newline (10), the sampled ids, and the UTF-8 bytes of each tool result and a newline. No
// template is used, so a vocabulary with the ids up to 255 is enough.
//
// The member text of the answer is the agent's message, which a reward function receives. If the
// answer has no text, the message consists of the output ids as decimal numbers, separated by
// spaces. If finish_reason.matched is the last id, that id is omitted, as SGLang omits the stop
// token from text.

// The limits of one engine call.
const (
	engineTimeout   = 10 * time.Minute
	maxEngineAnswer = 256 << 20 // bytes
)

// An engineAnswer contains the members of an engine's answer that the simulator uses.
type engineAnswer struct {
	Text      *string         `json:"text"`
	OutputIDs json.RawMessage `json:"output_ids"`
	Meta      struct {
		Logprobs json.RawMessage `json:"output_token_logprobs"`
		Finish   struct {
			Type    string          `json:"type"`
			Matched json.RawMessage `json:"matched"`
		} `json:"finish_reason"`
	} `json:"meta_info"`

	raw      []byte // the whole answer
	ids      []int32
	logprobs []float32 // NaN if the engine did not return a value
}

// An engineError means that the engine cannot be reached, refused the request, or did not answer in
// SGLang's format. The server stores the fields kind and text in the step and the run.
type engineError struct{ kind, text string }

func (e *engineError) Error() string { return e.kind + ": " + e.text }

func checkEngine(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("lettasim: engine: invalid URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("lettasim: engine: %s: want http://HOST:PORT (the base URL of /generate)", u.Redacted())
	}
	return nil
}

func (s *Server) generate(ctx context.Context, prompt []int32, temperature float64) (*engineAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	address, _ := url.Parse(s.cfg.Engine) // Validate has checked the URL
	address = address.JoinPath("generate")
	shown := address.Redacted()
	body := append(tokenize.AppendIDs([]byte(`{"input_ids":`), prompt), `,"sampling_params":{"temperature":`...)
	body = strconv.AppendFloat(body, temperature, 'f', -1, 64)
	body = fmt.Appendf(body, `,"max_new_tokens":%d,"top_p":0.9},"return_logprob":true}`, maxNewTokens)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &engineError{"UnsupportedProtocol", shown + ": not a URL"}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.engine.Do(request)
	if err != nil {
		return nil, connectError(shown, err)
	}
	defer response.Body.Close() //nolint:errcheck // the body was read to its end, or the connection is abandoned
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxEngineAnswer+1))
	switch {
	case err != nil:
		return nil, connectError(shown, err)
	case response.StatusCode >= 300:
		kind := "Client"
		if response.StatusCode >= 500 {
			kind = "Server"
		}
		return nil, &engineError{"HTTPStatusError", fmt.Sprintf("%s error '%d %s' for url '%s': %s", kind, response.StatusCode, http.StatusText(response.StatusCode), shown, excerpt(raw))}
	case len(raw) > maxEngineAnswer:
		return nil, &engineError{"ValueError", fmt.Sprintf("%s: the answer is longer than %d bytes", shown, maxEngineAnswer)}
	}
	a, err := readEngineAnswer(raw)
	if err != nil {
		return nil, &engineError{"ValueError", fmt.Sprintf("%s: %v; the engine answered %s", shown, err, excerpt(raw))}
	}
	return a, nil
}

// connectError returns the error for an engine that cannot be reached. The wording is the same as in
// the real server's HTTP client.
func connectError(shown string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL, because it can contain a password
	}
	kind := "ConnectError"
	if errors.Is(err, context.DeadlineExceeded) {
		kind = "ReadTimeout"
	}
	return &engineError{kind, fmt.Sprintf("All connection attempts failed for url '%s': %v", shown, err)}
}

func excerpt(b []byte) string {
	const most = 200
	if len(b) > most {
		return strings.ToValidUTF8(string(b[:most]), "?") + "…"
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(b)), "?")
}

// readEngineAnswer parses an answer and validates the members that rows require.
func readEngineAnswer(raw []byte) (*engineAnswer, error) {
	a := &engineAnswer{raw: bytes.TrimSpace(raw)}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("not an answer from SGLang's /generate: %w", err)
	}
	if len(a.raw) == 0 || a.raw[0] != '{' {
		return nil, errors.New("want one JSON object")
	}
	if a.OutputIDs == nil || json.Unmarshal(a.OutputIDs, &a.ids) != nil || a.ids == nil {
		return nil, errors.New("output_ids: want a list of 32-bit integers")
	}
	var triples [][]json.RawMessage
	if a.Meta.Logprobs == nil || json.Unmarshal(a.Meta.Logprobs, &triples) != nil || triples == nil {
		return nil, errors.New("meta_info.output_token_logprobs: want a list of [log-probability, id, text or null]")
	}
	if len(triples) != len(a.ids) {
		return nil, fmt.Errorf("meta_info.output_token_logprobs has %d entries, but output_ids has %d", len(triples), len(a.ids))
	}
	a.logprobs = make([]float32, len(a.ids))
	for i, t := range triples {
		var lp *float64
		var id int32
		if len(t) < 2 || json.Unmarshal(t[0], &lp) != nil || json.Unmarshal(t[1], &id) != nil || id != a.ids[i] {
			return nil, fmt.Errorf("meta_info.output_token_logprobs[%d]: want [log-probability, %d, text or null], to match output_ids", i, a.ids[i])
		}
		a.logprobs[i] = float32(math.NaN())
		if lp != nil {
			a.logprobs[i] = float32(*lp)
		}
	}
	return a, nil
}

// said returns the text of the agent's message.
func (a *engineAnswer) said() string {
	if a.Text != nil {
		return *a.Text
	}
	ids := a.ids
	var matched int32
	if n := len(ids); n > 0 && json.Unmarshal(a.Meta.Finish.Matched, &matched) == nil && string(a.Meta.Finish.Matched) != "null" && matched == ids[n-1] {
		ids = ids[:n-1]
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.Itoa(int(id))
	}
	return strings.Join(out, " ")
}

// planEngine plans a scripted send with the engine. It registers the run first, and then makes all
// calls, even if the client disconnects. It returns false if the engine failed.
func (s *Server) planEngine(q *request, p *reply, in *scriptPlan, r *scriptedRun, w *author, ids *rng, enter enterRun) bool {
	r.script = &script{user: in.body.texts(), stop: "end_turn"}
	p.due = in.began.Add(1000 * 24 * time.Hour) // the end is not yet known
	enter(r.id, r, nil)

	settings := struct{ Temperature float64 }{1}
	_ = json.Unmarshal(in.state.values["llm_config"], &settings)
	w.generate = func(prompt []int32) (*engineAnswer, error) {
		return s.generate(context.WithoutCancel(q.Context()), prompt, settings.Temperature)
	}
	sc, err := w.write(&in.agent.history, in.body.texts())
	if err != nil && s.cfg.EngineFailed != nil {
		s.cfg.EngineFailed(err)
	}

	p.due = in.due
	if now := s.cfg.Now(); p.due.Before(now) {
		p.due = now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.EngineCalls += int64(len(sc.calls))
	if s.finished(p.run) { // the run was canceled in the meantime
		return true
	}
	p.run.due, r.ended = p.due, p.due
	if err != nil {
		s.stats.EngineErrors++
		failed := r.fail(err, "step-"+ids.uuid())
		p.run.source, p.status = failed, http.StatusInternalServerError
		s.addSteps(p.run, []string{failed.stepID})
		body := detail(p.status, unknownError).body
		p.parts = func() [][]byte { return [][]byte{body} }
		return false
	}
	r.script = sc
	for range sc.calls {
		r.stepIDs = append(r.stepIDs, "step-"+ids.uuid())
	}
	s.addSteps(p.run, r.stepIDs)
	return true
}

func (r *scriptedRun) fail(err error, stepID string) *failedRun {
	kind, text := "ValueError", err.Error()
	if e, ok := errors.AsType[*engineError](err); ok {
		kind, text = e.kind, e.text
	}
	return &failedRun{runHead: r.runHead, stepID: stepID, stop: "error", errorType: kind, problem: text}
}
