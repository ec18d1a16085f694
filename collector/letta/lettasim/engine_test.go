package lettasim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// An engine serves /generate with fixed answers, and records the requests.
type engine struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	answer func(n int) (int, string)
}

func startEngine(t *testing.T, answer func(n int) (int, string)) *engine {
	t.Helper()
	e := &engine{answer: answer}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		n := len(e.asked)
		e.asked = append(e.asked, r.Method+" "+r.URL.Path+" "+string(body))
		e.mu.Unlock()
		status, text := e.answer(n)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(e.Close)
	return e
}

const engineAnswer = `{"output_ids":[51, 7,0],"meta_info":{"id":"x","finish_reason":{"type":"stop","matched":0},"prompt_tokens":3,` +
	`"weight_version":"12","output_token_logprobs":[[-0.69314718246, 51,"3"],[-1e-07,7,null], [null,0,null]],"completion_tokens":3}}`

type turnsAnswer struct {
	Messages []struct {
		Type    string `json:"message_type"`
		Content string
	}
	Turns []struct {
		Role     string
		IDs      json.RawMessage `json:"output_ids"`
		Logprobs json.RawMessage `json:"output_token_logprobs"`
		Prompt   []int           `json:"input_ids"`
		Content  *string
	}
	StopReason struct {
		Reason string `json:"stop_reason"`
	} `json:"stop_reason"`
	Usage struct {
		Completion int `json:"completion_tokens"`
		Prompt     int `json:"prompt_tokens"`
	}
}

func sendTo(s *sim, id, text string) turnsAnswer {
	s.t.Helper()
	body, _ := json.Marshal(map[string]any{
		"messages": []any{map[string]string{"role": "user", "content": text}}, "return_token_ids": true, "return_logprobs": true,
	})
	return decode[turnsAnswer](s.t, s.do(200, "POST", "/v1/agents/"+id+"/messages", string(body)))
}

// TestEngine proves that the engine's tokens go unchanged into the turns and its whole answer into
// the trace, that the next prompt contains everything so far, and that the engine gets the agent's
// temperature.
func TestEngine(t *testing.T) {
	e := startEngine(t, func(int) (int, string) { return 200, engineAnswer })
	s := start(t, lettasim.Config{InputIDs: true, Engine: e.URL + "/", KeepAnswers: true})
	id, _ := s.create("echo", 0, 1)
	a := sendTo(s, id, "ab")
	if want := `POST /generate {"input_ids":[97,98,10],"sampling_params":{"temperature":1,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true}`; e.asked[0] != want {
		t.Errorf("the engine received %s, want %s", e.asked[0], want)
	}
	turn := a.Turns[0]
	if string(turn.IDs) != "[51, 7,0]" || string(turn.Logprobs) != `[[-0.69314718246, 51,"3"],[-1e-07,7,null], [null,0,null]]` {
		t.Errorf("turn: ids %s, log-probabilities %s: not what the engine answered", turn.IDs, turn.Logprobs)
	}
	if len(turn.Prompt) != 3 || turn.Content == nil || *turn.Content != "51 7" || a.Usage.Completion != 3 || a.Usage.Prompt != 3 || a.StopReason.Reason != "end_turn" {
		t.Errorf("answer = %+v", a)
	}
	runs := list(t, s.do(200, "GET", "/v1/runs/?agent_id="+id, ""))
	steps := s.steps(field(t, runs[0], "id"))
	if len(runs) != 1 || len(steps) != 1 {
		t.Fatalf("runs %s, steps %s", runs, steps)
	}
	if trace := s.trace(steps[0]); !bytes.Contains(trace, []byte(`"response_json":`+engineAnswer+`,`)) {
		t.Errorf("trace %s: does not hold the engine's answer", trace)
	}
	if strings.Contains(string(s.do(200, "GET", "/v1/steps/"+field(t, steps[0], "id"), "")), "weight_version") {
		t.Error("the step holds a weight version: the real server's does not")
	}
	if a := sendTo(s, id, "c"); len(a.Turns[0].Prompt) != 3+3+2 {
		t.Errorf("second prompt %v, want the first, its answer and c with its newline", a.Turns[0].Prompt)
	}
	if got := s.Answers(); len(got) != 2 || got[0].Sampled != 3 || s.Stats().EngineCalls != 2 {
		t.Errorf("answers %+v, stats %+v", got, s.Stats())
	}
	warm := s.do(200, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3","model_settings":{"provider_type":"sglang","temperature":0.6}}`)
	sendTo(s, field(t, warm, "id"), "ab")
	if want := `"sampling_params":{"temperature":0.6,`; !strings.Contains(e.asked[2], want) {
		t.Errorf("the engine received %s, want %s", e.asked[2], want)
	}
}

// TestEngineText proves that an answer's text becomes the message, and that an answer that ends for
// its length ends the send.
func TestEngineText(t *testing.T) {
	e := startEngine(t, func(n int) (int, string) {
		finish := [2]string{`{"type":"stop"}`, `{"type":"length","length":4096}`}[n]
		return 200, `{"text":"hé","output_ids":[1],"meta_info":{"output_token_logprobs":[[-1,1,null]],"finish_reason":` + finish + `}}`
	})
	s := start(t, lettasim.Config{InputIDs: true, Engine: e.URL, Script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 2}}})
	id, _ := s.create("text", 0, 1)
	a := sendTo(s, id, "x")
	if len(a.Turns) != 3 || *a.Turns[0].Content != "hé" || a.StopReason.Reason != "max_tokens_exceeded" {
		t.Errorf("want a call, a tool and a call that ends for its length: %+v", a)
	}
}

// TestEngineFails proves that an engine error is in the run and the step, as on the real server,
// and reaches EngineFailed.
func TestEngineFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		answer string
		want   string
	}{
		{"status", 500, "CUDA out of memory", "Server error '500 Internal Server Error' for url 'http"},
		{"refused", 400, "too long", "Client error '400 Bad Request' for url 'http"},
		{"no JSON", 200, "<html>", "not an answer from SGLang's /generate"},
		{"a list", 200, `[]`, "not an answer from SGLang's /generate"},
		{"no ids", 200, `{"meta_info":{"output_token_logprobs":[]}}`, "output_ids: want a list of 32-bit integers"},
		{"wide id", 200, `{"output_ids":[4294967296],"meta_info":{"output_token_logprobs":[[-1,4294967296,null]]}}`, "output_ids: want"},
		{"no logprobs", 200, `{"output_ids":[1],"meta_info":{}}`, "output_token_logprobs: want a list"},
		{"too few", 200, `{"output_ids":[1,2],"meta_info":{"output_token_logprobs":[[-1,1,null]]}}`, "has 1 entries, but output_ids has 2"},
		{"other id", 200, `{"output_ids":[1],"meta_info":{"output_token_logprobs":[[-1,2,null]]}}`, "output_token_logprobs[0]: want [log-probability, 1,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := startEngine(t, func(int) (int, string) { return c.status, c.answer })
			var told error
			s := start(t, lettasim.Config{InputIDs: true, Engine: e.URL, EngineFailed: func(err error) { told = err }})
			id, _ := s.create("fails", 0, 1)
			s.do(500, "POST", "/v1/agents/"+id+"/messages", `{"messages":[{"role":"user","content":"x"}],"return_token_ids":true,"return_logprobs":true}`)
			runs := s.do(200, "GET", "/v1/runs/?agent_id="+id, "")
			var text []struct{ Metadata struct{ Error string } }
			if err := json.Unmarshal(runs, &text); err != nil || len(text) != 1 || !strings.Contains(text[0].Metadata.Error, c.want) {
				t.Errorf("run %s: want %q in its error", runs, c.want)
			}
			if told == nil || !strings.Contains(told.Error(), c.want) || s.Stats().EngineErrors != 1 {
				t.Errorf("reported %v, stats %+v", told, s.Stats())
			}
		})
	}
}

// TestEngineRunIsThere proves that the run exists, unfinished, while the engine works, and that a
// cancel ends it.
func TestEngineRunIsThere(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	e := startEngine(t, func(int) (int, string) {
		close(asked)
		<-release
		return 200, engineAnswer
	})
	s := start(t, lettasim.Config{InputIDs: true, Engine: e.URL})
	id, _ := s.create("slow", 0, 1)
	answered := make(chan turnsAnswer)
	go func() { answered <- sendTo(s, id, "x") }()
	<-asked
	if runs := s.do(200, "GET", "/v1/runs/?agent_id="+id, ""); !bytes.Contains(runs, []byte(`"status":"created"`)) {
		t.Errorf("runs %s while the engine works: want one that is created", runs)
	}
	s.do(200, "POST", "/v1/agents/"+id+"/messages/cancel", "")
	close(release)
	if a := <-answered; a.StopReason.Reason != "cancelled" || len(a.Turns) != 0 {
		t.Errorf("answer to a cancelled send: %+v", a)
	}
}

func TestEngineConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		cfg  lettasim.Config
		want string
	}{
		{lettasim.Config{Engine: "127.0.0.1:30000", InputIDs: true}, "engine: "},
		{lettasim.Config{Engine: "http://127.0.0.1:30000"}, "--input-ids"},
		{lettasim.Config{Engine: "http://h", InputIDs: true, Faults: lettasim.Faults{{Kind: lettasim.WideID, Rate: 1}}}, "fault wide-id"},
	} {
		if _, err := lettasim.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v, want %q", c.cfg, err, c.want)
		}
	}
}
