package lettasim_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestScriptedReplyAddsUp proves that the server's counts agree with each other, for many samples.
func TestScriptedReplyAddsUp(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{InputIDs: true, Script: lettasim.Script{Drift: 0.5, Length: 0.2, Calls: lettasim.Range{Min: 1, Max: 6}}})
	for sample := range 40 {
		id, _ := s.create("sums", sample, 1)
		for range 2 {
			a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", sendBody))
			turns := a.assistant()
			run := a.Messages[0].RunID
			steps := s.steps(run)
			if len(turns) != a.Usage.Steps || len(steps) != a.Usage.Steps || len(a.Turns) != 2*len(turns)-1 {
				t.Fatalf("sample %d: %d turns, %d assistant, %d steps, step_count %d", sample, len(a.Turns), len(turns), len(steps), a.Usage.Steps)
			}
			prompt, completion := 0, 0
			for k, turn := range turns {
				step := decode[struct {
					Prompt     int `json:"prompt_tokens"`
					Completion int `json:"completion_tokens"`
					Status     string
				}](t, steps[k])
				if step.Prompt != len(turn.InputIDs) || step.Completion != len(turn.Output) || step.Status != "success" {
					t.Errorf("sample %d step %d: %+v of %d and %d ids", sample, k, step, len(turn.InputIDs), len(turn.Output))
				}
				prompt, completion = prompt+step.Prompt, completion+step.Completion
				if len(turn.Output) != len(turn.Logprobs) {
					t.Fatalf("%d ids, %d logprobs", len(turn.Output), len(turn.Logprobs))
				}
				for i, triple := range turn.Logprobs {
					if lp := *triple[0]; int64(*triple[1]) != turn.Output[i] || triple[2] != nil || lp > 0 || lp < -12 || float64(float32(lp)) != lp {
						t.Fatalf("sample %d turn %d token %d: triple %v %v", sample, k, i, lp, *triple[1])
					}
				}
				trace := decode[trace](t, s.trace(steps[k]))
				if !slices.Equal(trace.Response.OutputIDs, turn.Output) || trace.Response.Meta.Prompt != step.Prompt || len(trace.Request.Tools) != 3 || trace.Request.Messages[0].Role != "system" {
					t.Errorf("sample %d step %d: the trace is of another call", sample, k)
				}
				for i, triple := range trace.Response.Meta.Logprobs {
					if *triple[0] != *turn.Logprobs[i][0] {
						t.Fatalf("trace logprob %v, turn %v", *triple[0], *turn.Logprobs[i][0])
					}
				}
			}
			last := turns[len(turns)-1]
			if a.Usage.Prompt != prompt || a.Usage.Completion != completion || a.Usage.Context != len(last.InputIDs)+len(last.Output) {
				t.Errorf("sample %d: usage %+v, but the steps have %d and %d", sample, a.Usage, prompt, completion)
			}
			if len(a.Logprobs.Content) != len(last.Output) || a.Logprobs.Content[0].Token != strconv.FormatInt(last.Output[0], 10) {
				t.Errorf("sample %d: logprobs differ from the last call's", sample)
			}
			const end = 151645
			if stop := a.StopReason.StopReason; (stop == "end_turn") != (last.Output[len(last.Output)-1] == end) || stop != "end_turn" && stop != "max_tokens_exceeded" {
				t.Errorf("sample %d: stop reason %s, last id %d", sample, stop, last.Output[len(last.Output)-1])
			}
			if stop := a.StopReason.StopReason; stop == "end_turn" && !strings.HasSuffix(*last.Content, "The answer is 5.") {
				t.Errorf("sample %d: answer %q", sample, *last.Content)
			}
		}
	}
}

// TestDriftShare proves that the next prompt continues the tokens before it: always without drift,
// never with it, and always for an agent that keeps its reasoning.
func TestDriftShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		drift  float64
		keep   bool
		extend bool
	}{
		{"none", 0, false, true},
		{"full", 1, false, false},
		{"full, reasoning kept", 1, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, lettasim.Config{InputIDs: true, Script: lettasim.Script{Drift: tt.drift, Calls: lettasim.Range{Min: 4, Max: 4}}})
			id, _ := s.create("drift", 0, 1)
			if tt.keep {
				s.do(200, "PATCH", "/v1/agents/"+id, `{"llm_config":{"return_token_ids":true,"enable_reasoner":true}}`)
			}
			var turns []turn
			for range 2 {
				turns = append(turns, parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", sendBody)).assistant()...)
			}
			for k := 1; k < len(turns); k++ {
				before := slices.Clone(turns[k-1].InputIDs)
				for _, id := range turns[k-1].Output {
					before = append(before, int32(id))
				}
				next := turns[k].InputIDs
				extends := len(next) > len(before) && slices.Equal(next[:len(before)], before)
				if want := tt.extend || k == 4; extends != want { // call 4 follows an answer, not a tool
					t.Errorf("prompt %d continues the tokens before it: %t, want %t", k, extends, want)
				}
			}
		})
	}
}

// TestScriptedIsDeterministic sends to two servers in different order and concurrency, and as
// another attempt.
func TestScriptedIsDeterministic(t *testing.T) {
	t.Parallel()
	const n = 24
	collect := func(concurrent bool, seed uint64, attempt int) [n]string {
		s := start(t, lettasim.Config{Seed: seed, InputIDs: true, Script: lettasim.Script{Drift: 0.3}})
		var out [n]string
		one := func(i int) {
			resp, state, err := s.try("POST", "/v1/agents/", fmt.Sprintf(`{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":"d%d","sample_index":%d,"attempt":%d}}}`, i%3, i, attempt))
			if err != nil || resp.StatusCode != 200 {
				t.Errorf("create: %v", err)
				return
			}
			_, body, err := s.try("POST", "/v1/agents/"+field(t, state, "id")+"/messages", sendBody)
			if err != nil {
				t.Error(err)
			}
			out[i] = string(body)
		}
		var wg sync.WaitGroup
		for i := range n {
			if concurrent {
				wg.Go(func() { one(n - 1 - i) })
			} else {
				one(i)
			}
		}
		wg.Wait()
		return out
	}
	a := collect(false, 1, 1)
	if b := collect(true, 1, 1); a != b {
		t.Error("replies depend on order or concurrency")
	}
	if other := collect(false, 2, 1); a == other {
		t.Error("the seed changes nothing")
	}
	c := collect(false, 1, 2)
	for i := range a {
		if string(member(t, []byte(a[i]), "turns")) != string(member(t, []byte(c[i]), "turns")) {
			t.Errorf("sample %d: another attempt has other turns", i)
		}
		if a[i] == c[i] {
			t.Errorf("sample %d: two attempts have the same run", i)
		}
	}
	distinct := map[string]bool{}
	for i := range a {
		distinct[string(member(t, []byte(a[i]), "turns"))] = true
	}
	if len(distinct) != n {
		t.Errorf("%d different replies of %d", len(distinct), n)
	}
}

// TestAnswersDigest compares the server's digest with the digest of the received tokens.
func TestAnswersDigest(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t), KeepAnswers: true})
	for i, task := range []string{"free", "tool", "sixteen", "nan"} {
		id, _ := s.create(task, i, 2)
		a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", sendBody))
		var d lettasim.Digest
		n := 0
		for _, turn := range a.assistant() {
			var ids []int32
			var lps []float32
			for j, id := range turn.Output {
				ids = append(ids, int32(id))
				lp := float32(math.NaN())
				if p := turn.Logprobs[j][0]; p != nil {
					lp = float32(*p)
				}
				lps = append(lps, lp)
			}
			d.Append(ids, lps)
			n += len(ids)
		}
		got := s.Answers()[i]
		want := lettasim.Answer{Task: task, Sample: i, Attempt: 2, AgentID: id, RunID: a.Messages[0].RunID, Sampled: n, Digest: d.String()}
		if got != want {
			t.Errorf("answer = %+v, want %+v", got, want)
		}
	}
}

// TestBodyCache requests large answers of few scripts.
func TestBodyCache(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{BodyCache: 2, KeepAnswers: true, InputIDs: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 2}, Tokens: lettasim.Range{Min: 2000, Max: 2000}}})
	tails := map[string]int{}
	for sample := range 12 {
		id, _ := s.create("cached", sample, 1)
		body := s.do(200, "POST", "/v1/agents/"+id+"/messages", sendBody)
		a := parse(t, body)
		if a.Usage.Steps != 2 || len(a.assistant()[1].Output) < 2000 {
			t.Fatalf("%+v", a.Usage)
		}
		tails[string(member(t, body, "turns"))]++
		for _, st := range list(t, s.do(200, "GET", "/v1/runs/"+a.Messages[0].RunID+"/steps", "")) {
			if field(t, st, "agent_id") != id {
				t.Error("the step is of another agent")
			}
		}
	}
	if len(tails) != 2 {
		t.Errorf("%d scripts, want 2", len(tails))
	}
}

func TestWrongAnswersAndMarkers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, want string
		wrong            float64
	}{
		{"sum", "Please add 20 and 22.", "The answer is 42.", 0},
		{"product", "What is 6 times 7?", "The answer is 42.", 0},
		{"marker", "Anything. [answer:blue whale]", "The answer is blue whale.", 0},
		{"wrong", "Anything. [answer:blue whale]", "The answer is unknown.", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, lettasim.Config{Script: lettasim.Script{Wrong: tt.wrong}})
			id, _ := s.create("answers", 0, 1)
			a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", fmt.Sprintf(`{"input":%q}`, tt.text)))
			if got := a.Messages[len(a.Messages)-1].Content; !strings.HasSuffix(got, tt.want) {
				t.Errorf("answer %q, want …%q", got, tt.want)
			}
		})
	}
}
