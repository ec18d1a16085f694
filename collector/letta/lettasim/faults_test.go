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
		t    *testing.T
		resp *http.Response
		body []byte
		took time.Duration
		err  error
		s    *sim
		id   string
	}
	status := func(want int, detail string) func(seen) {
		return func(got seen) {
			if got.err != nil || got.resp.StatusCode != want || !strings.Contains(string(got.body), detail) {
				got.t.Errorf("got %v %v %.200s, want %d with %q", got.err, got.resp, got.body, want, detail)
			}
		}
	}
	reply := func(check func(seen, *answer)) func(seen) {
		return func(got seen) {
			status(200, "")(got)
			check(got, parse(got.t, got.body))
		}
	}
	stop := func(want string) func(seen, *answer) {
		return func(got seen, a *answer) {
			if a.StopReason.StopReason != want || len(a.assistant()) == 0 {
				got.t.Errorf("stop reason %q with %d turns, want %q", a.StopReason.StopReason, len(a.assistant()), want)
			}
		}
	}
	runs := func(got seen) []json.RawMessage {
		return list(got.t, got.s.do(200, "GET", "/v1/runs/?agent_id="+got.id, ""))
	}
	// A tally counts the ids, the log-probabilities, what is wrong with them, and the traces without
	// a fault.
	type tally struct{ calls, ids, lps, nulls, nan, off, wide, sound int }
	tokens := func(right func(n tally, a *answer) bool) func(seen) {
		return reply(func(got seen, a *answer) {
			n := tally{calls: len(a.assistant())}
			for _, turn := range a.assistant() {
				n.ids += len(turn.Output)
				n.lps += len(turn.Logprobs)
				if turn.Logprobs == nil {
					n.nulls++
				}
				for i, triple := range turn.Logprobs {
					if triple[0] == nil {
						n.nan++
					}
					if i < len(turn.Output) && int64(*triple[1]) != turn.Output[i] {
						n.off++
					}
				}
				for _, id := range turn.Output {
					if id > 1<<31 {
						n.wide++
					}
				}
			}
			for _, step := range got.s.steps(field(got.t, runs(got)[0], "id")) {
				response := decode[trace](got.t, got.s.trace(step)).Response
				ids, lps := response.OutputIDs, response.Meta.Logprobs
				sound := len(ids) > 0 && len(lps) == len(ids)
				for i := range min(len(ids), len(lps)) {
					sound = sound && ids[i] < 1<<31 && int64(*lps[i][1]) == ids[i]
				}
				if sound {
					n.sound++
				}
			}
			if !right(n, a) {
				got.t.Errorf("%+v of %d turns, usage %+v", n, len(a.Turns), a.Usage)
			}
		})
	}
	// endsOf returns the finish reasons of the calls of the only run, from their traces.
	endsOf := func(got seen) (ends []string) {
		for _, step := range got.s.steps(field(got.t, runs(got)[0], "id")) {
			ends = append(ends, decode[trace](got.t, got.s.trace(step)).Response.Meta.Finish.Type)
		}
		return ends
	}
	checks := map[lettasim.FaultKind]func(seen){
		lettasim.EngineDown: func(got seen) {
			status(500, `{"detail":"An unknown error occurred"}`)(got)
			all := runs(got)
			if len(all) != 1 || field(got.t, all[0], "status") != "failed" || !strings.Contains(field(got.t, all[0], "metadata"), "/generate") {
				got.t.Fatalf("runs = %s", all)
			}
			steps := got.s.steps(field(got.t, all[0], "id"))
			if len(steps) != 1 || field(got.t, steps[0], "error_type") != "HTTPStatusError" || field(got.t, steps[0], "completion_tokens") != "0" {
				got.t.Errorf("steps = %s", steps)
			}
			if trace := got.s.trace(steps[0]); string(trace) != "null" {
				got.t.Errorf("trace = %s", trace)
			}
		},
		lettasim.DatabaseFull: func(got seen) {
			status(500, `{"detail":"An unknown error occurred"}`)(got)
			if all := runs(got); len(all) != 0 {
				got.t.Errorf("runs = %s, want none", all)
			}
		},
		lettasim.Unavailable: status(503, `{"detail":`),
		lettasim.TooMany: func(got seen) {
			status(429, `"llm_rate_limit"`)(got)
			if after := got.resp.Header.Get("Retry-After"); after != "1" {
				got.t.Errorf("Retry-After = %q", after)
			}
		},
		lettasim.Conflict: status(409, "CONFLICT"),
		lettasim.Reset: func(got seen) {
			if !errors.Is(got.err, syscall.ECONNRESET) || got.resp != nil {
				got.t.Errorf("err = %v, want a reset connection", got.err)
			}
			if all := runs(got); len(all) != 1 || field(got.t, all[0], "status") != "completed" {
				got.t.Errorf("runs = %s, want one that completed", all)
			}
		},
		lettasim.Lost: func(got seen) {
			if all := runs(got); got.err == nil || got.resp != nil || len(all) != 0 {
				got.t.Errorf("err = %v, runs = %s, want a lost connection and no run", got.err, all)
			}
		},
		lettasim.Drop: func(got seen) {
			if !errors.Is(got.err, io.ErrUnexpectedEOF) || got.resp == nil || int64(len(got.body)) >= got.resp.ContentLength || len(got.body) == 0 {
				got.t.Errorf("err = %v after %d bytes, want an unexpected end", got.err, len(got.body))
			}
		},
		lettasim.Truncated: func(got seen) {
			status(200, "")(got)
			if got.resp.ContentLength != int64(len(got.body)) || strings.HasSuffix(string(got.body), "]}") {
				got.t.Errorf("%d bytes of %d, ends in %q", len(got.body), got.resp.ContentLength, got.body[len(got.body)-20:])
			}
		},
		lettasim.Stalled: func(got seen) {
			if !errors.Is(got.err, context.DeadlineExceeded) || len(got.body) == 0 {
				got.t.Errorf("err = %v after %d bytes, want a deadline in mid-body", got.err, len(got.body))
			}
		},
		lettasim.Slow: func(got seen) {
			status(200, "")(got)
			parse(got.t, got.body)
			if least := time.Duration(len(got.body)) * time.Second / (1 << 20); got.took < least*9/10 {
				got.t.Errorf("%d bytes in %v, want at least %v", len(got.body), got.took, least)
			}
		},
		lettasim.CreateFails: nil, // tested below
		lettasim.DeleteFails: nil,
		lettasim.PlainAgent: func(got seen) {
			reply(func(got seen, a *answer) {
				if a.Turns != nil {
					got.t.Error("there are turns")
				}
			})(got)
			if c := field(got.t, got.s.do(200, "GET", "/v1/agents/"+got.id, ""), "llm_config"); !strings.Contains(c, `"return_token_ids":false`) {
				got.t.Errorf("llm_config = %s", c)
			}
		},
		lettasim.Huge: func(got seen) {
			status(200, "")(got)
			if len(got.body) != 1<<20 {
				got.t.Errorf("%d bytes", len(got.body))
			}
			parse(got.t, got.body)
		},
		lettasim.NullCall: func(got seen) {
			status(400, "validation error for FunctionCall")(got)
			steps := got.s.steps(field(got.t, runs(got)[0], "id"))
			if field(got.t, steps[len(steps)-1], "stop_reason") != "invalid_llm_response" {
				got.t.Errorf("steps = %s", steps)
			}
		},
		lettasim.NoTurns: tokens(func(n tally, a *answer) bool { return a.Turns == nil && a.Usage.Completion != 0 && n.sound == 0 }),
		lettasim.Abort: func(got seen) {
			reply(stop("end_turn"))(got)
			if ends := endsOf(got); ends[len(ends)-1] != "abort" || slices.Contains(ends[:len(ends)-1], "abort") {
				got.t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.AbortEarly: func(got seen) {
			reply(func(got seen, a *answer) {
				stop("end_turn")(got, a)
				if len(a.assistant()) != 2 || a.Usage.Steps != 3 {
					got.t.Errorf("%d assistant turns, %d steps", len(a.assistant()), a.Usage.Steps)
				}
			})(got)
			if ends := endsOf(got); ends[2] != "abort" {
				got.t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.LengthCall: func(got seen) {
			reply(func(got seen, a *answer) {
				if n := len(a.assistant()[0].Output); n != 4096 || a.Turns[1].Role != "tool" {
					got.t.Errorf("the first call has %d tokens, then comes %s", n, a.Turns[1].Role)
				}
			})(got)
			if ends := endsOf(got); ends[0] != "length" || slices.Contains(ends[1:], "length") {
				got.t.Errorf("calls ended with %q", ends)
			}
		},
		lettasim.EmptyTurn: tokens(func(n tally, a *answer) bool {
			return n.calls == a.Usage.Steps-1 && n.ids < a.Usage.Completion && n.sound == 2
		}),
		lettasim.MissingTool: tokens(func(n tally, a *answer) bool {
			return len(a.Turns) == 2*a.Usage.Steps-2 && n.calls == a.Usage.Steps && n.sound == 3
		}),
		lettasim.NullLogprobs: tokens(func(n tally, _ *answer) bool { return n.nulls == 1 && n.sound == 2 }),
		lettasim.NaNLogprob: func(got seen) {
			tokens(func(n tally, _ *answer) bool { return n.nan == 1 && n.sound == 2 })(got)
			without := 0
			for _, step := range got.s.steps(field(got.t, runs(got)[0], "id")) {
				if string(got.s.trace(step)) == "null" {
					without++
				}
			}
			if without != 1 {
				got.t.Errorf("%d steps without a trace, want 1", without)
			}
		},
		lettasim.ShortLogprobs:   tokens(func(n tally, _ *answer) bool { return n.lps == n.ids-1 && n.sound == 2 }),
		lettasim.SurplusLogprobs: tokens(func(n tally, _ *answer) bool { return n.lps == n.ids+2 && n.off == 0 && n.sound == 2 }),
		lettasim.IDMismatch:      tokens(func(n tally, _ *answer) bool { return n.lps == n.ids && n.off == 1 && n.sound == 2 }),
		lettasim.WideID:          tokens(func(n tally, _ *answer) bool { return n.wide == 1 && n.off == 0 && n.sound == 2 }),
		lettasim.StopError:       reply(stop("error")),
		lettasim.StopCancelled:   reply(stop("cancelled")),
		lettasim.StopUnknown:     reply(stop("lost_interest")),
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
				got := seen{t: t, s: s, id: id}
				ctx := t.Context()
				if kind == lettasim.Stalled && task == "hit" && sample == 1 && attempt == 1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
				}
				began := time.Now()
				if got.resp, got.err = s.request(ctx, "POST", "/v1/agents/"+id+"/messages", sendBody); got.err == nil {
					got.body, got.err = io.ReadAll(got.resp.Body)
					_ = got.resp.Body.Close()
				}
				got.took = time.Since(began)
				return got
			}
			clean := func(what string, got seen) {
				t.Helper()
				status(200, "")(got)
				if a := parse(t, got.body); len(a.assistant()) != 3 || len(a.Turns) != 5 || a.StopReason.StopReason != "end_turn" {
					t.Errorf("%s meets the fault too", what)
				}
			}
			check(send("hit", 1, 1))
			if n := s.Stats().Faults[kind]; n != 1 {
				t.Errorf("%d faults counted, want 1", n)
			}
			clean("another sample", send("hit", 0, 1))
			clean("another task", send("other", 1, 1))
			if again := send("hit", 1, 2); kind.Recoverable() {
				clean("the second attempt", again)
			} else {
				check(again)
			}
		})
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
	f, err := lettasim.ParseFault("too-many=0.2:after=89s,attempts=3,send=-1,bytes=7")
	want := fmt.Sprintf("%+v", lettasim.Fault{Kind: lettasim.TooMany, Rate: 0.2, After: 89 * time.Second, Attempts: 3, Send: -1, Bytes: 7})
	if err != nil || fmt.Sprintf("%+v", f) != want {
		t.Errorf("%+v, %v, want %s", f, err, want)
	}
	for _, text := range []string{"too-many=0.2:later=1s", "too-many=0.2:after=x", "too-many=0.2:send"} {
		if _, err := lettasim.ParseFault(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
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
