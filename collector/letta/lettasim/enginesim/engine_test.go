package enginesim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A served engine is one with the model of the recorded exchanges.
type served struct {
	*enginesim.Engine
	*httptest.Server
	model prompttest.Model
}

func serve(t *testing.T, cfg enginesim.Config) *served {
	t.Helper()
	s := &served{model: prompttest.Qwen3(t)}
	cfg.Tokenizer, cfg.Template = s.model.Tokenizer, s.model.Template
	s.start(t, cfg)
	return s
}

func (s *served) start(t *testing.T, cfg enginesim.Config) {
	t.Helper()
	var err error
	if s.Engine, err = enginesim.New(cfg); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.Engine)
	t.Cleanup(s.Close)
}

// post returns status and body; 0 where the connection was dropped.
func (s *served) post(t *testing.T, path, body string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, b
}

// prompt is a prompt of the model in which a user says text and tools gave n results.
func (s *served) prompt(t *testing.T, agent, text string, n int) []int32 {
	t.Helper()
	p := "<|im_start|>system\nAGENT_ID: " + agent + "\nCONVERSATION_ID: default\n<|im_end|>\n<|im_start|>user\n" + text + "<|im_end|>\n"
	for range n {
		p += "<|im_start|>assistant\nA call.<|im_end|>\n<|im_start|>user\n<tool_response>\n{\"status\": \"OK\"}\n</tool_response><|im_end|>\n"
	}
	ids, err := s.model.Tokenizer.AppendTokens(nil, p+"<|im_start|>assistant\n")
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func generateBody(ids []int32, more string) string {
	b, _ := json.Marshal(ids)
	return `{"input_ids":` + string(b) + `,"sampling_params":{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true` + more + `}`
}

type generated struct {
	Text      string  `json:"text"`
	OutputIDs []int32 `json:"output_ids"`
	Meta      struct {
		Finish   enginesim.Finish `json:"finish_reason"`
		Prompt   int              `json:"prompt_tokens"`
		Version  string           `json:"weight_version"`
		Logprobs [][]*float64     `json:"output_token_logprobs"`
		Output   int              `json:"completion_tokens"`
	} `json:"meta_info"`
}

func (s *served) generate(t *testing.T, ids []int32) generated {
	t.Helper()
	status, body := s.post(t, "/generate", generateBody(ids, ""))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return decode[generated](t, body)
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// TestFindsPlaceInRecordedPrompts gives the engine the prompts that a real server made, and
// looks which of a script's replies it takes.
func TestFindsPlaceInRecordedPrompts(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	n := 0
	for name, calls := range recorded(t) {
		for i, c := range calls {
			text, err := s.model.Tokenizer.AppendText(nil, c.inputIDs, bpe.DecodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			marked := strings.ReplaceAll(string(text), "[case:", "[script:")
			if !strings.Contains(marked, "[script:") {
				continue // single, newlines …: told by their text
			}
			got := enginesim.Find(marked)
			if got.Step != c.step || got.Script == "" || !strings.HasPrefix(got.Agent, "agent-") {
				t.Errorf("%s call %d: %+v, want step %d", name, i, got, c.step)
			}
			n++
		}
	}
	if n < 60 {
		t.Errorf("only %d calls were looked at", n)
	}
}

// TestAnswersAsRecorded compares the shape of an answer, and what of it is computed, with
// recorded answers that have the same ids.
func TestAnswersAsRecorded(t *testing.T) {
	t.Parallel()
	calls := recorded(t)["tool"]
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	want := decode[generated](t, calls[0].response)
	s := serve(t, enginesim.Config{})
	ids := s.prompt(t, "agent-1", "Add. [script:tool]", 0)
	_, body := s.post(t, "/generate", generateBody(ids, ""))
	got := decode[generated](t, body)
	if got.Text != want.Text || !slices.Equal(got.OutputIDs, want.OutputIDs) {
		t.Errorf("%q %v, recorded %q %v", got.Text, got.OutputIDs, want.Text, want.OutputIDs)
	}
	if a, b := memberNames(body), memberNames(calls[0].response); a != b {
		t.Errorf("members\n%s\nrecorded\n%s", a, b)
	}
	if got.Meta.Finish.Type != "stop" || *got.Meta.Finish.Matched != 151645 || got.Meta.Prompt != len(ids) || got.Meta.Output != len(got.OutputIDs) || got.Meta.Version != "default" {
		t.Errorf("%+v", got.Meta)
	}
	seed := enginesim.PromptSeed(ids)
	for i, triple := range got.Meta.Logprobs {
		if lp := enginesim.Logprob(seed, i, got.OutputIDs[i]); float32(*triple[0]) != lp || int32(*triple[1]) != got.OutputIDs[i] || triple[2] != nil {
			t.Errorf("logprob %d: %v", i, triple)
		}
	}
}

// TestByMarker: what is sampled after the same words is the same for every agent, and another
// after other words and in another place.
func TestByMarker(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{ByMarker: true})
	say := func(agent, marker string, step int) string {
		g := s.generate(t, s.prompt(t, agent, "Go. [script:"+marker+"]", step))
		return fmt.Sprint(g.OutputIDs, *g.Meta.Logprobs[0][0], *g.Meta.Logprobs[1][0])
	}
	for _, marker := range []string{"split seed=1", "random seed=1 calls=3"} {
		one, other := say("agent-1", marker, 0), say("agent-2", marker, 0)
		if one != other {
			t.Errorf("%s: %s and %s", marker, one, other)
		}
		if again := say("agent-1", strings.Replace(marker, "=1", "=2", 1), 0); again == one {
			t.Errorf("%s: another seed samples the same", marker)
		}
	}
	if a, b := say("agent-1", "equal seed=1", 2), say("agent-1", "equal seed=1", 3); a == b {
		t.Errorf("two calls after the script's end: %s twice", a)
	}
	for _, c := range s.Calls() {
		if !strings.HasPrefix(c.Agent, "agent-") {
			t.Errorf("call %d is of agent %q", c.N, c.Agent)
		}
	}
}

// TestTruth compares answers with the calls that are kept, from several goroutines.
func TestTruth(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	var wg sync.WaitGroup
	answers := make([]generated, 24)
	for i := range answers {
		wg.Go(func() {
			answers[i] = s.generate(t, s.prompt(t, fmt.Sprintf("agent-%d", i), "Go. [script:random seed=3 calls=4]", i%4))
		})
	}
	wg.Wait()
	calls := s.Calls()
	if len(calls) != len(answers) {
		t.Fatalf("%d calls of %d", len(calls), len(answers))
	}
	for _, c := range calls {
		i := slices.IndexFunc(answers, func(g generated) bool {
			return slices.Equal(g.OutputIDs, c.OutputIDs) && g.Meta.Prompt == len(c.InputIDs) && float32(*g.Meta.Logprobs[0][0]) == c.Logprobs[0]
		})
		if i < 0 || c.Step != i%4 || c.Script != "random" || c.Seed != "3" || c.Text != answers[i].Text {
			t.Errorf("call %d is answer %d: %+v", c.N, i, c)
		}
	}
}

// TestScriptsSayWhatTheyMean plays every built-in script to its end.
func TestScriptsSayWhatTheyMean(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	for _, name := range enginesim.Scripts() {
		for k := range 17 {
			ids := s.prompt(t, "agent-7", "Go. [script:"+name+" seed=1]", k)
			status, body := s.post(t, "/generate", generateBody(ids, ""))
			if status != http.StatusOK {
				t.Fatalf("%s call %d: %d %s", name, k, status, body)
			}
			g := decode[generated](t, bytes.ReplaceAll(body, []byte("[NaN"), []byte("[null")))
			if len(g.OutputIDs) != len(g.Meta.Logprobs) || len(g.OutputIDs) == 0 {
				t.Errorf("%s call %d: %d ids, %d logprobs", name, k, len(g.OutputIDs), len(g.Meta.Logprobs))
			}
			if g.Text == "Done." {
				break
			}
		}
	}
}

// TestEqualOutputs samples the same ids under two prompts.
func TestEqualOutputs(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	for _, tt := range []struct {
		script string
		equal  bool
	}{{"tool", false}, {"equal", true}} {
		a := s.generate(t, s.prompt(t, "agent-1", "Go. [script:"+tt.script+"]", 0))
		b := s.generate(t, s.prompt(t, "agent-2", "Go. [script:"+tt.script+"]", 0))
		if !slices.Equal(a.OutputIDs, b.OutputIDs) {
			t.Fatal("other ids")
		}
		same := true
		for i := range a.Meta.Logprobs {
			same = same && *a.Meta.Logprobs[i][0] == *b.Meta.Logprobs[i][0]
		}
		if same != tt.equal {
			t.Errorf("%s: equal logprobs %t, want %t", tt.script, same, tt.equal)
		}
	}
	// The same prompt is answered the same, by another engine too.
	ids := s.prompt(t, "agent-3", "Go. [script:random calls=3]", 1)
	if a, b := s.generate(t, ids), serve(t, enginesim.Config{}).generate(t, ids); !slices.Equal(a.OutputIDs, b.OutputIDs) || *a.Meta.Logprobs[0][0] != *b.Meta.Logprobs[0][0] {
		t.Error("another engine answers otherwise")
	}
}

func TestLimitsAndVersions(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{MaxModelLen: 600})
	ids := s.prompt(t, "agent-1", "Go. [script:large]", 0)
	if g := s.generate(t, ids); g.Meta.Finish.Type != "length" || len(g.OutputIDs) != 600-len(ids) {
		t.Errorf("%d ids, %+v", len(g.OutputIDs), g.Meta.Finish)
	}
	if status, body := s.post(t, "/generate", `{"input_ids":[[1,2]]}`); status != 400 {
		t.Errorf("a batch: %d %s", status, body)
	}
	if status, body := s.post(t, "/generate", generateBody(make([]int32, 600), "")); status != 400 || !strings.Contains(string(body), "longer") {
		t.Errorf("a long prompt: %d %s", status, body)
	}
	one := s.prompt(t, "agent-9", "Go. [script:single]", 0)
	s.SetVersion("12")
	if g := s.generate(t, one); g.Meta.Version != "12" {
		t.Errorf("then %+v", g.Meta)
	}
	null := s.prompt(t, "agent-1", "Go. [script:null]", 1)
	_, body := s.post(t, "/generate", generateBody(null, ""))
	if !bytes.Contains(body, []byte("[null,")) || !bytes.Contains(body, []byte("[-0.0,151645,")) {
		t.Errorf("planted: %s", body)
	}
	if c := s.Calls(); !math.IsNaN(float64(c[len(c)-1].Logprobs[1])) {
		t.Error("planted, and not in the log")
	}
}

// TestLostMarker continues a conversation whose first message is gone.
func TestLostMarker(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	s.generate(t, s.prompt(t, "agent-a", "Go. [script:sixteen]", 4))
	compacted := s.prompt(t, "agent-a", "A summary.", 1)
	for range 2 { // the same prompt again is the same call
		if g := s.generate(t, compacted); !strings.Contains(g.Text, `"a": 5,`) {
			t.Errorf("after a compaction: %q", g.Text)
		}
	}
	if g := s.generate(t, s.prompt(t, "agent-b", "No marker.", 0)); !strings.HasPrefix(g.Text, "Hello.") {
		t.Errorf("of another agent: %q", g.Text)
	}
}
