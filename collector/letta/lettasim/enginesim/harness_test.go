package enginesim_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// TestHarnessScripts runs the script with each option over each list of tools, streamed and not.
func TestHarnessScripts(t *testing.T) {
	t.Parallel()
	for toolsName, tools := range map[string]string{"opencode": opencodeTools, "qwen": qwenTools, "mini": miniTools} {
		for _, tt := range []struct {
			options string
			answers int // of the main conversation
		}{
			{"", 3},
			{"parallel", 2},
			{"think", 3},
			{"long", 3},
			{"unicode", 3},
			{"compact", 3},
			{"numbers", 3},
			{"calls=5", 6},
			{"subagent", 4},
			{"subagent parallel think unicode", 3},
		} {
			t.Run(toolsName+" "+tt.options, func(t *testing.T) {
				t.Parallel()
				s := small(t, enginesim.Config{Reasoning: true})
				h := newHarness(t, s, tools, enginesim.Marker(7, strings.Fields(tt.options)...), tt.options != "long")
				h.run(t)
				last := h.answers[len(h.answers)-1].content
				if len(h.answers) != tt.answers || !strings.Contains(last, "The answer is 42.") {
					t.Errorf("%d answers, the last is %q", len(h.answers), last)
				}
				if has := strings.Contains(tt.options, "subagent") && tools != miniTools; has != (len(h.subs) == 1) {
					t.Errorf("%d subagents", len(h.subs))
				}
				if strings.Contains(tt.options, "think") != (h.answers[0].reasoning != "") {
					t.Errorf("reasoning %q", h.answers[0].reasoning)
				}
				if n := len(h.answers[0].calls); strings.Contains(tt.options, "parallel") && !strings.Contains(tt.options, "subagent") && n != 2 {
					t.Errorf("%d parallel calls", n)
				}
				number := slices.ContainsFunc(s.Calls(), func(c enginesim.Call) bool { return strings.Contains(c.Text, `"timeout": 60000.0`) })
				if number != (tt.options == "numbers" && tools != miniTools) {
					t.Errorf("a call has the number: %v", number)
				}
				s.inOrder(t, tt.options)
			})
		}
	}
}

// TestHarnessModels runs the script with a real tokenizer and template, and without any.
func TestHarnessModels(t *testing.T) {
	t.Parallel()
	qwen3 := serve(t, enginesim.Config{Reasoning: true})
	bare := &served{}
	bare.start(t, enginesim.Config{Reasoning: true, MaxModelLen: 1 << 20})
	for name, s := range map[string]*served{"qwen3": qwen3, "bytes": bare} {
		h := newHarness(t, s, opencodeTools, enginesim.Marker(4, "think", "subagent"), true)
		h.run(t)
		if len(h.answers) != 4 || len(h.subs) != 1 {
			t.Errorf("%s: %+v", name, h.answers)
		}
	}
	qwen3.inOrder(t, "")
}

// TestConversationsAtOnce: the answers of many conversations are not mixed up.
func TestConversationsAtOnce(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	var wg sync.WaitGroup
	for seed := range 16 {
		h := newHarness(t, s, opencodeTools, enginesim.Marker(seed, "subagent", "err=2"), seed%2 == 0)
		wg.Go(func() {
			h.run(t)
			for _, a := range h.answers {
				if word := fmt.Sprintf("note-%d-", seed); !strings.Contains(fmt.Sprint(a.content, a.calls), word) {
					t.Errorf("an answer to seed %d: %+v", seed, a)
				}
			}
			if !slices.Equal(h.statuses, []int{200, 500, 200, 200, 200}) {
				t.Errorf("seed %d: %v", seed, h.statuses)
			}
		})
	}
	wg.Wait()
}

// inOrder checks that every prompt of a conversation begins with the tokens of the call before,
// which is what makes one row of a conversation.
func (s *served) inOrder(t *testing.T, options string) {
	t.Helper()
	last := map[string][]int32{}
	for _, c := range s.Calls() {
		if before := last[c.Marker]; before != nil && (len(c.InputIDs) < len(before) || !slices.Equal(c.InputIDs[:len(before)], before)) != strings.Contains(options, "compact") {
			t.Errorf("call %d (%s): does its prompt begin with the call before?", c.N, c.Marker)
		}
		last[c.Marker] = slices.Concat(c.InputIDs, c.OutputIDs)
		if c.Script != "harness" || c.Fault != "" || !c.Complete || len(c.OutputIDs) != len(c.Logprobs) {
			t.Errorf("%+v", c)
		}
	}
}

// TestHarnessFaults lets each fault happen to the second answer, streamed and not. It happens once,
// and the conversation ends as without it.
func TestHarnessFaults(t *testing.T) {
	t.Parallel()
	for _, dialect := range []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLang} {
		for _, stream := range []bool{true, false} {
			for fault, status := range map[string]int{"cut": 200, "drop": 0, "err": 500, "busy": 429, "length": 200, "ctx": 400, "slow": 200} {
				t.Run(fmt.Sprint(dialect, stream, fault), func(t *testing.T) {
					t.Parallel()
					s := small(t, enginesim.Config{Dialect: dialect, Reasoning: true})
					h := newHarness(t, s, opencodeTools, enginesim.Marker(3, fault+"=2", "ms=150"), stream)
					began := time.Now()
					h.run(t)
					if h.statuses[1] != status || !strings.Contains(h.answers[len(h.answers)-1].content, "The answer is 42.") {
						t.Errorf("statuses %v, answers %+v", h.statuses, h.answers)
					}
					var faults []enginesim.Call
					for _, c := range s.Calls() {
						if c.Fault != "" {
							faults = append(faults, c)
						}
					}
					if len(faults) != 1 || faults[0].Fault != fault || faults[0].Status != status || faults[0].Step != 1 {
						t.Fatalf("faults %+v", faults)
					}
					c := faults[0]
					switch fault {
					case "cut":
						if c.Complete || c.Listed >= len(c.OutputIDs) || len(c.OutputIDs) == 0 {
							t.Errorf("complete %t, %d of %d", c.Complete, c.Listed, len(c.OutputIDs))
						}
					case "length":
						if c.FinishReason != "length" || !c.Complete || h.answers[1].finish != "length" {
							t.Errorf("finish %q", c.FinishReason)
						}
					case "slow":
						if d := time.Since(began); d < 150*time.Millisecond || !c.Complete {
							t.Errorf("took %v", d)
						}
					default:
						if c.Sampled() || c.Complete {
							t.Errorf("sampled %+v", c)
						}
					}
				})
			}
		}
	}
}

// TestAuxiliaryRequests: a request without tools gets a title or a summary, has no fault, and does
// not move the conversation.
func TestAuxiliaryRequests(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, miniTools, enginesim.Marker(5, "err=1"), false)
	for system, want := range map[string]string{"Generate a title.": "Notes about ", "Summarize the conversation.": "Summary: "} {
		title := &harness{s: s}
		title.say(map[string]any{"role": "system", "content": system})
		title.messages = append(title.messages, h.messages[1])
		if status, raw := s.ask(t, title.body("")); status != http.StatusOK || !strings.Contains(string(raw), want) {
			t.Errorf("%d %s", status, raw)
		}
	}
	h.run(t)
	if !slices.Equal(h.statuses, []int{500, 200, 200, 200}) {
		t.Errorf("statuses %v", h.statuses)
	}
}

// TestSubagentMarkerRepeated: a harness that repeats a subagent's task in a user message does not
// continue the subagent's conversation.
func TestSubagentMarkerRepeated(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, opencodeTools, enginesim.Marker(6, "subagent"), false)
	h.say(map[string]any{"role": "user", "content": "The agent for \"Write. [script:harness calls=1 of=6 seed=6s]\" has ended."})
	h.run(t)
	for _, c := range s.Calls() {
		if c.Seed != "6" && c.Messages > 4 {
			t.Errorf("call %d with %d messages has the marker %s", c.N, c.Messages, c.Marker)
		}
	}
	if len(h.answers) != 4 {
		t.Errorf("%+v", h.answers)
	}
}

// TestCutBeforeDone: a stream that lacks only its end is not complete, although it has all ids.
func TestCutBeforeDone(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, miniTools, enginesim.Marker(2, "cut=1", "after=1000"), true)
	status, raw := s.ask(t, strings.TrimSuffix(h.body(h.tools), "}")+`,"return_token_ids":true}`)
	s.Close()
	c := s.Calls()[0]
	if status != http.StatusOK || bytes.Contains(raw, []byte("[DONE]")) || c.Complete || c.Listed != len(c.OutputIDs) {
		t.Errorf("%d, complete %t, %d of %d: %s", status, c.Complete, c.Listed, len(c.OutputIDs), raw)
	}
}

// TestRecall checks that an agent without calls answers with the number that another agent wrote to
// the memory. If the messages contain no number, the answer must not contain one.
func TestRecall(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, opencodeTools, enginesim.Marker(1, "remember", "answer=57"), false)
	h.env = []string{"MEMORY_DIR=" + h.dir}
	if err := os.WriteFile(filepath.Join(h.dir, "git"), []byte("#!/bin/sh\necho git $1\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	h.env = append(h.env, "PATH="+h.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	h.run(t)
	note, err := os.ReadFile(filepath.Join(h.dir, "notes.md"))
	if history := fmt.Sprintf("%s", h.messages); err != nil || !strings.Contains(history, `git add\ngit commit\n`) {
		t.Errorf("%v: the note was not committed: %s", err, history)
	}
	for text, want := range map[string]string{string(note): "57", "": "unknown"} {
		h := newHarness(t, s, opencodeTools, text+enginesim.Marker(2, "calls=0", "recall"), true)
		h.run(t)
		if len(h.answers) != 1 || !strings.HasSuffix(h.answers[0].content, "The answer is "+want+".") {
			t.Errorf("with the memory %q, the answers are %+v, want %s", text, h.answers, want)
		}
	}
}

// TestUnknownOption: a misspelled option is an error and not a run without it.
func TestUnknownOption(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, miniTools, enginesim.Marker(1, "sideways"), false)
	if status, raw := s.ask(t, h.body(h.tools)); status != http.StatusBadRequest || !strings.Contains(string(raw), `unknown option \"sideways\"`) {
		t.Errorf("%d %s", status, raw)
	}
}

// TestFinishTools: a run ends with the harness's own tool or command.
func TestFinishTools(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	finish := strings.TrimSuffix(miniTools, "]") + `,{"type":"function","function":{"name":"finish","parameters":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}}}]`
	for task, want := range map[string]string{"": `finish {"message": "The notes are written`, "Then echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT. ": `bash {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && `} {
		h := newHarness(t, s, finish, task+enginesim.Marker(9, "step=2"), false)
		_, raw := s.ask(t, h.body(h.tools))
		var o outcome
		o.add(t, decode[completion](t, raw))
		if len(o.calls) != 1 || !strings.Contains(o.calls[0], want) {
			t.Errorf("%+v", o)
		}
	}
}

// TestLog compares the lines of the log with the calls, and the page with the log.
func TestLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := small(t, enginesim.Config{Log: &log, Version: "6"})
	newHarness(t, s, miniTools, enginesim.Marker(5, "err=1", "cut=2"), true).run(t)
	newHarness(t, s, miniTools, "[script:single]", false).run(t)
	_, page := s.get(t, "/calls")
	s.Close() // every line is written when the requests have ended
	lines := bytes.SplitAfter(bytes.TrimSpace(log.Bytes()), []byte("\n"))
	calls := s.Calls()
	if s.LogError() != nil || len(lines) != len(calls) || bytes.Count(page, []byte("\n")) < len(calls)-1 {
		t.Fatalf("%d lines, %d calls, page %s", len(lines), len(calls), page)
	}
	for i, line := range lines {
		c := calls[i]
		got := decode[struct {
			N           int
			Status      int
			Stream      bool
			Prompt      []int32    `json:"prompt_ids"`
			Output      []int32    `json:"output_ids"`
			Logprobs    []*float32 `json:"logprobs"`
			Finish      string     `json:"finish_reason"`
			Complete    bool
			Fault, Seed string
			Step        int
			Messages    int
			Digest      string `json:"messages_sha256"`
			Tools       []string
			Version     string
		}](t, line)
		if got.N != c.N || got.Status != c.Status || !slices.Equal(got.Prompt, c.InputIDs) || !slices.Equal(got.Output, c.OutputIDs) ||
			got.Fault != c.Fault || got.Complete != c.Complete || got.Finish != c.FinishReason || got.Step != c.Step || got.Stream != c.Stream ||
			!slices.Equal(got.Tools, []string{"bash"}) || len(got.Digest) != 64 || got.Messages != c.Messages || got.Messages < 2 {
			t.Errorf("line %s, call %+v", line, c)
		}
		for k, lp := range got.Logprobs {
			if *lp != c.Logprobs[k] {
				t.Errorf("line %d, logprob %d: %v, want %v", i, k, *lp, c.Logprobs[k])
			}
		}
	}
	none := enginesim.Call{Logprobs: []float32{-1, float32(math.NaN())}}
	if line := none.AppendJSON(nil); !bytes.Contains(line, []byte(`"logprobs":[-1,null]`)) {
		t.Errorf("%s", line)
	}
	// The retry of the dropped answer has the same messages.
	if calls[0].Digest != calls[1].Digest || calls[0].Fault != "err" || calls[2].Fault != "cut" || calls[2].Digest == calls[1].Digest {
		t.Errorf("%+v", calls[:3])
	}
}

func (s *served) get(t *testing.T, path string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.Bytes()
}
