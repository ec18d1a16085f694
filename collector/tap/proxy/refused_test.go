package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A picky is an engine that refuses bodies containing a text.
type picky struct {
	answers
	refuses string
	status  int
}

const refusal = `{"object":"error","message":"The input is longer than the model's context length","code":400}`

func (e *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !strings.Contains(string(body), e.refuses) {
		e.answers.ServeHTTP(w, r)
		return
	}
	e.mu.Lock()
	e.bodies = append(e.bodies, string(body))
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = io.WriteString(w, refusal)
}

// TestRefusedSplice proves that a spliced prompt that the engine refuses is replaced by the
// server's own, byte for byte and once. The call is kept with the prompt that was used.
func TestRefusedSplice(t *testing.T) {
	t.Parallel()
	const settings = `,"sampling_params":{"top_p": 0.9}}`
	for _, c := range []struct {
		name, ask, own string // own: the last body that the engine gets
		status         int
		set            []string
		streamed       bool
	}{
		{name: "too long", ask: `{"input_ids": [ 1,2 ]` + settings, own: `{"input_ids": [ 1,2 ]` + settings, status: 400},
		{name: "packed", ask: `{"input_ids":[1, 2]` + settings, own: `{"input_ids":[1, 2]` + settings, status: 422},
		{name: "too large", ask: `{"input_ids":[1,2]` + settings, own: `{"input_ids":[1,2]` + settings, status: 413},
		{
			name: "with settings", ask: `{"input_ids":[1,2]` + settings, own: `{"input_ids":[1,2],"sampling_params":{"top_p": 1.0}}`, status: 400,
			set: []string{"top_p=1.0"},
		},
		{name: "a stream", ask: `{"stream":true,"input_ids":[1,2]` + settings, own: `{"stream":true,"input_ids":[1,2]` + settings, status: 400, streamed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			engine := &picky{answers: answers{text: answered(2, []int32{7})}, refuses: "[9,8,7,6]", status: c.status}
			if c.streamed {
				engine.text, engine.kind = "data: "+engine.text+"\n\ndata: [DONE]\n\n", "text/event-stream"
			}
			set, err := proxy.ParseSet(c.set)
			if err != nil {
				t.Fatal(err)
			}
			told := &continuer{sent: []int32{9, 8, 7, 6}}
			var log bytes.Buffer
			r := newRig(t, proxy.Config{Continuer: told, Set: set, Log: slog.New(slog.NewTextHandler(&log, nil))}, engine)
			if status, got := r.post(t, "/generate", c.ask); status != http.StatusOK || got != withMark(engine.text, 0) {
				t.Errorf("the client got %d %s", status, got)
			}
			spliced := strings.Replace(c.own, c.own[strings.Index(c.own, "["):strings.Index(c.own, "]")+1], "[9,8,7,6]", 1)
			if got := engine.got(); !slices.Equal(got, []string{spliced, c.own}) {
				t.Errorf("the engine got %s", got)
			}
			call := r.kept.one(t)
			if !slices.Equal(call.Prompt, []int32{1, 2}) || call.Asked != nil || !slices.Equal(call.Output, []int32{7}) || call.Status != http.StatusOK {
				t.Errorf("kept %+v", call)
			}
			if len(told.calls) != 1 || !slices.Equal(told.calls[0].Prompt, []int32{1, 2}) || told.calls[0].Asked != nil {
				t.Errorf("the continuer received %+v", told.calls)
			}
			wait(t, func() bool { return r.proxy.Open() == 0 })
			s := r.proxy.Stats()
			if s.SplicesRefused[c.status] != 1 || s.Continued != 1 || s.Answers[2] != 1 || s.Answers[4] != 0 || s.BodyBytes != 0 || s.Engines[0].Busy != 0 {
				t.Errorf("%+v", s)
			}
			if text := log.String(); !strings.Contains(text, fmt.Sprintf("kind=splice_refused error=\"an engine answered %d", c.status)) || strings.Contains(text, "input_ids") || strings.Contains(text, "context length") {
				t.Errorf("the log is %s", text)
			}
		})
	}
}

// TestRefusedOtherwise proves that refusals unrelated to a splice pass and are not retried.
func TestRefusedOtherwise(t *testing.T) {
	t.Parallel()
	ask := asked([]int32{1, 2})
	for _, c := range []struct {
		name    string
		sent    []int32
		refuses string
		status  int
		times   int
	}{
		{name: "an own prompt", refuses: "[1,2]", status: 400, times: 1},
		{name: "both", sent: []int32{9}, refuses: "input_ids", status: 400, times: 2},
		{name: "busy", sent: []int32{9}, refuses: "[9]", status: 429, times: 1},
		{name: "no entry", sent: []int32{9}, refuses: "[9]", status: 401, times: 1},
		{name: "a fault", sent: []int32{9}, refuses: "[9]", status: 500, times: 1},
	} {
		engine := &picky{answers: answers{text: answered(2, []int32{7})}, refuses: c.refuses, status: c.status}
		r := newRig(t, proxy.Config{Continuer: &continuer{sent: c.sent}}, engine)
		if status, got := r.post(t, "/generate", ask); status != c.status || got != refusal {
			t.Errorf("%s: the client got %d %s", c.name, status, got)
		}
		if got := engine.got(); len(got) != c.times {
			t.Errorf("%s: the engine got %s", c.name, got)
		}
		call := r.kept.one(t)
		if call.Output != nil || call.Status != c.status || c.times == 1 && c.sent != nil && !slices.Equal(call.Prompt, c.sent) {
			t.Errorf("%s: kept %+v", c.name, call)
		}
	}
}

// TestRefusedByContext proves that the server's prompt replaces a splice that exceeds the context.
func TestRefusedByContext(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{MaxModelLen: 300})
	if err != nil {
		t.Fatal(err)
	}
	own := make([]int32, 0, 300)
	for _, b := range []byte("Go. [script:think]\n") {
		own = append(own, int32(b))
	}
	r := newRig(t, proxy.Config{Continuer: &continuer{sent: append(slices.Clone(own), make([]int32, 300)...)}}, engine)
	status, got := r.post(t, "/generate", asked(own))
	var answer struct {
		Output []int32 `json:"output_ids"`
	}
	if err := json.Unmarshal([]byte(got), &answer); err != nil || status != http.StatusOK || len(answer.Output) == 0 {
		t.Fatalf("%d %s", status, got)
	}
	if call := r.kept.one(t); !slices.Equal(call.Prompt, own) || call.Asked != nil || !slices.Equal(call.Output, answer.Output) {
		t.Errorf("kept %+v", call)
	}
	calls := engine.Calls()
	if len(calls) == 0 || !slices.Equal(calls[len(calls)-1].InputIDs, own) || r.proxy.Stats().SplicesRefused[400] != 1 {
		t.Errorf("the engine's truth is %+v", calls)
	}
}

// TestRefusedSettings proves that a request is never sent without --set. The engine's refusal
// passes, and the log names the settings once.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	set, err := proxy.ParseSet([]string{"top_p=0.5", "min_p=0.1"})
	if err != nil {
		t.Fatal(err)
	}
	engine := &picky{answers: answers{text: answered(2, []int32{7})}, refuses: `"top_p":0.5`, status: 400}
	var mu sync.Mutex
	var log bytes.Buffer
	r := newRig(t, proxy.Config{Set: set, Log: slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))}, engine)
	for range 2 {
		if status, got := r.post(t, "/generate", asked([]int32{1, 2})); status != 400 || got != refusal {
			t.Errorf("the client got %d %s", status, got)
		}
	}
	if got := engine.got(); len(got) != 2 || !strings.Contains(got[1], `"top_p":0.5`) {
		t.Errorf("the engine got %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	text := log.String()
	if strings.Count(text, "kind=set_refused") != 1 || !strings.Contains(text, "answered with status 400") || !strings.Contains(text, "top_p, min_p") {
		t.Errorf("the log is %s", text)
	}
	if strings.Contains(text, "context length") || strings.Contains(text, "input_ids") {
		t.Errorf("the log has a body: %s", text)
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
