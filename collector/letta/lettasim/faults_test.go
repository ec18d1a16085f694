package lettasim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestFaultsOnTheWire aims every fault at one attempt and checks it through a real client. The next
// sample must not meet it, nor the next attempt if the fault is recoverable.
func TestFaultsOnTheWire(t *testing.T) {
	t.Parallel()
	type seen struct {
		resp *http.Response
		body []byte
		took time.Duration
		err  error
		s    *sim
		id   string
	}
	status := func(want int, detail string) func(*testing.T, seen) {
		return func(t *testing.T, got seen) {
			t.Helper()
			if got.err != nil || got.resp.StatusCode != want || !strings.Contains(string(got.body), detail) {
				t.Errorf("got %v %v %.200s, want %d with %q", got.err, got.resp, got.body, want, detail)
			}
		}
	}
	reply := func(check func(*testing.T, *answer)) func(*testing.T, seen) {
		return func(t *testing.T, got seen) {
			t.Helper()
			status(200, "")(t, got)
			check(t, parse(t, got.body))
		}
	}
	runs := func(t *testing.T, got seen) [][]byte {
		t.Helper()
		var out [][]byte
		for _, r := range list(t, got.s.do(200, "GET", "/v1/runs/?agent_id="+got.id, "")) {
			out = append(out, r)
		}
		return out
	}
	count := func(a *answer) (ids, lps, nulls, nan, off, wide int) {
		for _, turn := range a.assistant() {
			ids += len(turn.Output)
			lps += len(turn.Logprobs)
			if turn.Logprobs == nil {
				nulls++
			}
			for i, triple := range turn.Logprobs {
				if triple[0] == nil {
					nan++
				}
				if i < len(turn.Output) && int64(*triple[1]) != turn.Output[i] {
					off++
				}
			}
			for _, id := range turn.Output {
				if id > 1<<31 {
					wide++
				}
			}
		}
		return
	}
	// endsOf returns the finish reasons of the calls of the only run, from their traces.
	endsOf := func(t *testing.T, got seen) []string {
		t.Helper()
		var ends []string
		for _, st := range list(t, got.s.do(200, "GET", "/v1/runs/"+field(t, runs(t, got)[0], "id")+"/steps?order=asc", "")) {
			var trace struct {
				Response struct {
					Meta struct {
						Finish struct{ Type string } `json:"finish_reason"`
					} `json:"meta_info"`
				} `json:"response_json"`
			}
			if err := json.Unmarshal(got.s.do(200, "GET", "/v1/steps/"+field(t, st, "id")+"/trace", ""), &trace); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, trace.Response.Meta.Finish.Type)
		}
		return ends
	}
	checks := map[lettasim.FaultKind]func(*testing.T, seen){
		lettasim.EngineDown: func(t *testing.T, got seen) {
			t.Helper()
			status(500, `{"detail":"An unknown error occurred"}`)(t, got)
			all := runs(t, got)
			if len(all) != 1 || field(t, all[0], "status") != "failed" || !strings.Contains(field(t, all[0], "metadata"), "/generate") {
				t.Fatalf("runs = %s", all)
			}
			steps := list(t, got.s.do(200, "GET", "/v1/runs/"+field(t, all[0], "id")+"/steps", ""))
			if len(steps) != 1 || field(t, steps[0], "error_type") != "HTTPStatusError" || field(t, steps[0], "completion_tokens") != "0" {
				t.Errorf("steps = %s", steps)
			}
			if trace := got.s.do(200, "GET", "/v1/steps/"+field(t, steps[0], "id")+"/trace", ""); string(trace) != "null" {
				t.Errorf("trace = %s", trace)
			}
		},
		lettasim.DatabaseFull: func(t *testing.T, got seen) {
			t.Helper()
			status(500, `{"detail":"An unknown error occurred"}`)(t, got)
			if all := runs(t, got); len(all) != 0 {
				t.Errorf("runs = %s, want none", all)
			}
		},
		lettasim.Unavailable: status(503, `{"detail":`),
		lettasim.TooMany: func(t *testing.T, got seen) {
			t.Helper()
			status(429, `"llm_rate_limit"`)(t, got)
			if after := got.resp.Header.Get("Retry-After"); after != "1" {
				t.Errorf("Retry-After = %q", after)
			}
		},
		lettasim.Conflict: status(409, "CONFLICT"),
		lettasim.Reset: func(t *testing.T, got seen) {
			t.Helper()
			if !errors.Is(got.err, syscall.ECONNRESET) || got.resp != nil {
				t.Errorf("err = %v, want a reset connection", got.err)
			}
			if all := runs(t, got); len(all) != 1 || field(t, all[0], "status") != "completed" {
				t.Errorf("runs = %s, want one that completed", all)
			}
		},
		lettasim.Lost: func(t *testing.T, got seen) {
			t.Helper()
			if all := runs(t, got); got.err == nil || got.resp != nil || len(all) != 0 {
				t.Errorf("err = %v, runs = %s, want a lost connection and no run", got.err, all)
			}
		},
		lettasim.Drop: func(t *testing.T, got seen) {
			t.Helper()
			if !errors.Is(got.err, io.ErrUnexpectedEOF) || got.resp == nil || int64(len(got.body)) >= got.resp.ContentLength || len(got.body) == 0 {
				t.Errorf("err = %v after %d bytes, want an unexpected end", got.err, len(got.body))
			}
		},
		lettasim.Truncated: func(t *testing.T, got seen) {
			t.Helper()
			status(200, "")(t, got)
			if got.resp.ContentLength != int64(len(got.body)) || strings.HasSuffix(string(got.body), "]}") {
				t.Errorf("%d bytes of %d, ends in %q", len(got.body), got.resp.ContentLength, got.body[len(got.body)-20:])
			}
		},
		lettasim.Stalled: func(t *testing.T, got seen) {
			t.Helper()
			if !errors.Is(got.err, context.DeadlineExceeded) || len(got.body) == 0 {
				t.Errorf("err = %v after %d bytes, want a deadline in mid-body", got.err, len(got.body))
			}
		},
		lettasim.Slow: func(t *testing.T, got seen) {
			t.Helper()
			status(200, "")(t, got)
			parse(t, got.body)
			if least := time.Duration(len(got.body)) * time.Second / (1 << 20); got.took < least*9/10 {
				t.Errorf("%d bytes in %v, want at least %v", len(got.body), got.took, least)
			}
		},
		lettasim.CreateFails: nil, // tested below
		lettasim.DeleteFails: nil,
		lettasim.PlainAgent: func(t *testing.T, got seen) {
			t.Helper()
			reply(func(t *testing.T, a *answer) {
				t.Helper()
				if a.Turns != nil {
					t.Error("there are turns")
				}
			})(t, got)
			if c := field(t, got.s.do(200, "GET", "/v1/agents/"+got.id, ""), "llm_config"); !strings.Contains(c, `"return_token_ids":false`) {
				t.Errorf("llm_config = %s", c)
			}
		},
		lettasim.Huge: func(t *testing.T, got seen) {
			t.Helper()
			status(200, "")(t, got)
			if len(got.body) != 1<<20 {
				t.Errorf("%d bytes", len(got.body))
			}
			parse(t, got.body)
		},
		lettasim.NullCall: func(t *testing.T, got seen) {
			t.Helper()
			status(400, "validation error for FunctionCall")(t, got)
			steps := list(t, got.s.do(200, "GET", "/v1/runs/"+field(t, runs(t, got)[0], "id")+"/steps", ""))
			if field(t, steps[0], "stop_reason") != "invalid_llm_response" {
				t.Errorf("steps = %s", steps)
			}
		},
		lettasim.NoTurns: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if a.Turns != nil || a.Usage.Completion == 0 {
				t.Errorf("turns %v, usage %+v", a.Turns, a.Usage)
			}
		}),
		lettasim.Abort: func(t *testing.T, got seen) {
			t.Helper()
			reply(wantStop("end_turn"))(t, got)
			if ends := endsOf(t, got); ends[len(ends)-1] != "abort" || slices.Contains(ends[:len(ends)-1], "abort") {
				t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.AbortEarly: func(t *testing.T, got seen) {
			t.Helper()
			reply(func(t *testing.T, a *answer) {
				t.Helper()
				wantStop("end_turn")(t, a)
				if len(a.assistant()) != 2 || a.Usage.Steps != 3 {
					t.Errorf("%d assistant turns, %d steps", len(a.assistant()), a.Usage.Steps)
				}
			})(t, got)
			if ends := endsOf(t, got); ends[2] != "abort" {
				t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.LengthCall: func(t *testing.T, got seen) {
			t.Helper()
			reply(func(t *testing.T, a *answer) {
				t.Helper()
				if n := len(a.assistant()[0].Output); n != 4096 || a.Turns[1].Role != "tool" {
					t.Errorf("the first call has %d tokens, then comes %s", n, a.Turns[1].Role)
				}
			})(t, got)
			if ends := endsOf(t, got); ends[0] != "length" || slices.Contains(ends[1:], "length") {
				t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.EmptyTurn: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if ids, _, _, _, _, _ := count(a); len(a.assistant()) != a.Usage.Steps-1 || ids >= a.Usage.Completion {
				t.Errorf("%d assistant turns, %d ids, usage %+v", len(a.assistant()), ids, a.Usage)
			}
		}),
		lettasim.MissingTool: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if len(a.Turns) != 2*a.Usage.Steps-2 || len(a.assistant()) != a.Usage.Steps {
				t.Errorf("%d turns, %d assistant, %d steps", len(a.Turns), len(a.assistant()), a.Usage.Steps)
			}
		}),
		lettasim.NullLogprobs: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if _, _, nulls, _, _, _ := count(a); nulls != 1 {
				t.Errorf("%d null lists", nulls)
			}
		}),
		lettasim.NaNLogprob: func(t *testing.T, got seen) {
			t.Helper()
			reply(func(t *testing.T, a *answer) {
				t.Helper()
				if _, _, _, nan, _, _ := count(a); nan != 1 {
					t.Errorf("%d null logprobs", nan)
				}
			})(t, got)
			without := 0
			for _, st := range list(t, got.s.do(200, "GET", "/v1/runs/"+field(t, runs(t, got)[0], "id")+"/steps", "")) {
				if string(got.s.do(200, "GET", "/v1/steps/"+field(t, st, "id")+"/trace", "")) == "null" {
					without++
				}
			}
			if without != 1 {
				t.Errorf("%d steps without a trace, want 1", without)
			}
		},
		lettasim.ShortLogprobs: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if ids, lps, _, _, _, _ := count(a); lps != ids-1 {
				t.Errorf("%d ids, %d logprobs", ids, lps)
			}
		}),
		lettasim.SurplusLogprobs: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if ids, lps, _, _, off, _ := count(a); lps != ids+2 || off != 0 {
				t.Errorf("%d ids, %d logprobs, %d differ", ids, lps, off)
			}
		}),
		lettasim.IDMismatch: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if ids, lps, _, _, off, _ := count(a); lps != ids || off != 1 {
				t.Errorf("%d ids, %d logprobs, %d differ", ids, lps, off)
			}
		}),
		lettasim.WideID: reply(func(t *testing.T, a *answer) {
			t.Helper()
			if _, _, _, _, off, wide := count(a); wide != 1 || off != 0 {
				t.Errorf("%d wide ids, %d differ", wide, off)
			}
		}),
		lettasim.StopError:     reply(wantStop("error")),
		lettasim.StopCancelled: reply(wantStop("cancelled")),
		lettasim.StopUnknown:   reply(wantStop("lost_interest")),
	}
	for _, kind := range lettasim.FaultKinds() {
		check, known := checks[kind]
		if !known {
			t.Errorf("fault %s is not tested", kind)
		}
		if check == nil {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := lettasim.Fault{Kind: kind, Aim: []lettasim.Aim{{Task: "hit", Sample: 1}}}
			if kind == lettasim.Huge || kind == lettasim.Slow {
				f.Bytes = 1 << 20
			}
			s := start(t, lettasim.Config{Faults: lettasim.Faults{f}, InputIDs: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}})
			send := func(task string, sample, attempt int) seen {
				id, _ := s.create(task, sample, attempt)
				got := seen{s: s, id: id}
				ctx := t.Context()
				if kind == lettasim.Stalled && task == "hit" && sample == 1 && attempt == 1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
				}
				req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/agents/"+id+"/messages", strings.NewReader(sendBody))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = s.header.Clone()
				began := time.Now()
				if got.resp, got.err = s.client.Do(req); got.err == nil {
					got.body, got.err = io.ReadAll(got.resp.Body)
					_ = got.resp.Body.Close()
				}
				got.took = time.Since(began)
				return got
			}
			clean := func(what string, got seen) {
				t.Helper()
				status(200, "")(t, got)
				if a := parse(t, got.body); len(a.assistant()) != 3 || len(a.Turns) != 5 || a.StopReason.StopReason != "end_turn" {
					t.Errorf("%s meets the fault too", what)
				}
			}
			check(t, send("hit", 1, 1))
			if n := s.Stats().Faults[kind]; n != 1 {
				t.Errorf("%d faults counted, want 1", n)
			}
			clean("another sample", send("hit", 0, 1))
			clean("another task", send("other", 1, 1))
			if again := send("hit", 1, 2); kind.Recoverable() {
				clean("the second attempt", again)
			} else {
				check(t, again)
			}
		})
	}
}

func wantStop(want string) func(*testing.T, *answer) {
	return func(t *testing.T, a *answer) {
		t.Helper()
		if a.StopReason.StopReason != want || len(a.assistant()) == 0 {
			t.Errorf("stop reason %q with %d turns, want %q", a.StopReason.StopReason, len(a.assistant()), want)
		}
	}
}

func TestCreateAndDeleteFail(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Faults: lettasim.Faults{
		{Kind: lettasim.CreateFails, Aim: []lettasim.Aim{{Task: "c", Sample: -1}}},
		{Kind: lettasim.DeleteFails, Rate: 1},
	}})
	s.do(500, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":"c","attempt":1}}}`)
	id, _ := s.create("c", 0, 2)
	s.do(200, "DELETE", "/v1/agents/"+id, "") // the second attempt is spared
	id, _ = s.create("d", 0, 1)
	s.do(500, "DELETE", "/v1/agents/"+id, "")
	s.do(200, "GET", "/v1/agents/"+id, "")
	s.do(200, "DELETE", "/v1/agents/"+id, "")
	if st := s.Stats(); st.AgentsAlive != 0 || st.AgentsCreated != 2 || st.AgentsDeleted != 2 || st.Faults[lettasim.CreateFails] != 1 || st.Faults[lettasim.DeleteFails] != 1 {
		t.Errorf("stats = %+v", st)
	}
}

// TestFaultRate proves that the share is near the rate, equal on another server, and different for
// another seed.
func TestFaultRate(t *testing.T) {
	t.Parallel()
	hit := func(seed uint64) (out [300]bool, n int) {
		s := start(t, lettasim.Config{Seed: seed, Faults: lettasim.Faults{{Kind: lettasim.Unavailable, Rate: 0.2}}, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}, Tokens: lettasim.Range{Min: 1, Max: 2}}})
		for i := range out {
			id, _ := s.create("rate", i, 1)
			resp, _, err := s.try("POST", "/v1/agents/"+id+"/messages", sendBody)
			if err != nil {
				t.Fatal(err)
			}
			if out[i] = resp.StatusCode == 503; out[i] {
				n++
			}
		}
		return out, n
	}
	a, n := hit(1)
	if n < 35 || n > 90 {
		t.Errorf("%d of 300 samples were hit, want about 60", n)
	}
	if b, _ := hit(1); a != b {
		t.Error("the draw is not a function of the seed")
	}
	if c, _ := hit(2); a == c {
		t.Error("the seed changes nothing")
	}
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"engine-down=0.25", "{engine-down 0.25 [] 0 0 0s 0}"},
		{"reset@t1", "{reset 0 [{t1 -1 0}] 0 0 0s 0}"},
		{"reset@t1/2/3", "{reset 0 [{t1 2 3}] 0 0 0s 0}"},
		{"nonsense=1", `lettasim: unknown fault kind "nonsense"`},
		{"reset=2", "lettasim: fault reset: rate 2: must be between 0 and 1"},
		{"reset=NaN", "lettasim: fault reset: rate NaN: must be between 0 and 1"},
		{"reset", `lettasim: fault "reset": want KIND=RATE or KIND@TASK/SAMPLE/ATTEMPT`},
		{"reset@a/b", `lettasim: fault "reset@a/b": "b" is not a number`},
	} {
		f, err := lettasim.ParseFault(tt.in)
		got := fmt.Sprint(f)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("ParseFault(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}
