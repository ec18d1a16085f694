package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/tokenize"
)

func output(t *testing.T, text string) harness.Output {
	t.Helper()
	o, err := harness.ParseOutput(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		prompt, output string
		answer         string
		class          collector.Class
		errText        string
		exit           int
		calls          int
		status         string
	}{
		{prompt: "calls=1", answer: "answer 1", calls: 1},
		{prompt: "calls=3", answer: "answer 5", calls: 3},
		{prompt: "calls=2 exit=3", answer: "answer 3", calls: 2, exit: 3}, // an exit code is not a failure
		{prompt: "calls=2 write=out.txt", output: "file:out.txt", answer: "written answer 3", calls: 2},
		{prompt: "calls=1 write=../home/x/o", output: "file:{home}/x/o", answer: "written answer 1", calls: 1},
		{prompt: "calls=1 json=1", output: "json:.result.texts[1]", answer: "answer 1", calls: 1},
		{prompt: "calls=1 json=1", output: "json:.result.texts.-1", answer: "answer 1", calls: 1},
		{prompt: "calls=1 quiet=1", output: "session", answer: "answer 1", calls: 1},
		{prompt: "calls=2 finish=length", answer: "answer 3", calls: 2, status: collector.StatusTruncated},
		{prompt: "calls=2 finish=length quiet=1", answer: "", calls: 2, status: collector.StatusTruncated},

		{prompt: "calls=3 noids=1", answer: "answer 5", calls: 3}, // two calls are quarantined, one is a row

		{prompt: "calls=1 quiet=1", class: collector.ClassEmptyAnswer, errText: "output stdout; exit code 0", calls: 1},
		{prompt: "calls=1", output: "file:out.txt", class: collector.ClassEmptyAnswer, errText: "out.txt", calls: 1},
		{prompt: "calls=1 link=out.txt", output: "file:out.txt", class: collector.ClassEmptyAnswer, errText: "out.txt", calls: 1},
		{prompt: "calls=1 fifo=out.txt", output: "file:out.txt", class: collector.ClassEmptyAnswer, errText: "not a regular file", calls: 1},
		{prompt: "calls=1 json=1", output: "json:.answer", class: collector.ClassEmptyAnswer, errText: "no JSON value at .answer", calls: 1},
		{prompt: "calls=2 empty=1 env=1", class: collector.ClassNone, answer: "*", calls: 2},
		{prompt: "calls=2 empty=1 say=reasoning", class: collector.ClassEmptyAnswer, answer: "reasoning", calls: 2},
		{prompt: "calls=2 empty=1", class: collector.ClassEmptyAnswer, calls: 2},
		{prompt: "calls=0", class: collector.ClassNoCalls, errText: "exit code 0"},
		{prompt: "calls=0 exit=5", class: collector.ClassNoCalls, errText: "exit code 5", exit: 5},
		{prompt: "calls=1 foreign=1", class: collector.ClassForeign, answer: "answer 1", calls: 1},
		{prompt: "calls=2 signal=9", class: collector.ClassAgentError, errText: "signal: killed", answer: "answer 3", exit: -1, calls: 2},
		{prompt: "calls=2 signal=15", class: collector.ClassAgentError, errText: "signal: terminated", answer: "answer 3", exit: -1, calls: 2},

		{prompt: "calls=2 status=500 exit=1", class: collector.ClassServerError, errText: "status 500; exit code 1; its last line: call failed: 500", exit: 1, calls: 1},
		{prompt: "calls=2 broken=1 exit=1", class: collector.ClassConnection, errText: "the last call (2) was cut off; exit code 1", answer: "*", exit: 1, calls: 2},
		{prompt: "calls=2 broken=all exit=1", class: collector.ClassConnection, errText: "the last call (2) was cut off; exit code 1", answer: "*", exit: 1, calls: 1},
		{prompt: "calls=1 broken=1", class: collector.ClassConnection, errText: "the last call (1) was cut off", answer: "ans", calls: 1},
		{prompt: "calls=2 broken=1", answer: "ans", calls: 2}, // the command ended with an answer
		{prompt: "calls=2 status=503", class: collector.ClassUnavailable, calls: 1},
		{prompt: "calls=2 status=429", class: collector.ClassRateLimited, calls: 1},
		{prompt: "calls=2 status=400 overflow=1", class: collector.ClassContextOverflow, calls: 1},
		{prompt: "calls=1 status=413 overflow=1", class: collector.ClassBadRequest, errText: "exceeds the context length; check its prompt and its max_tokens"},
		{prompt: "calls=1 status=404", class: collector.ClassBadRequest, errText: "status 404"},
		{prompt: "calls=2 status=400", class: collector.ClassBadRequest, calls: 1},
		{prompt: "calls=1 status=422", class: collector.ClassBadRequest},
		{prompt: "calls=1 status=502", class: collector.ClassUnavailable},
	} {
		t.Run(tt.prompt+" "+tt.output, func(t *testing.T) {
			t.Parallel()
			cfg := r.config(t)
			cfg.Output = output(t, tt.output)
			run(t, cfg, tt.prompt, func(r *collector.Reply, err error) {
				if got := collector.Classify(err); got != tt.class || err != nil && !strings.Contains(err.Error(), tt.errText) {
					t.Fatalf("error %v (%v), want class %v and text %q", err, got, tt.class, tt.errText)
				}
				if tt.answer != "*" && r.Output != tt.answer {
					t.Errorf("output %q, want %q", r.Output, tt.answer)
				}
				if r.ExitCode == nil || *r.ExitCode != tt.exit {
					t.Errorf("exit code %v, want %d", *r.ExitCode, tt.exit)
				}
				turns := 0
				for _, s := range r.Sends {
					turns += len(s.Turns)
					if tt.class == collector.ClassNone && tt.status == "" && collector.StatusOf(s.StopReason) != collector.StatusCompleted {
						t.Errorf("stop reason %q", s.StopReason)
					}
					if tt.status != "" && collector.StatusOf(s.StopReason) != tt.status {
						t.Errorf("stop reason %q, want status %q", s.StopReason, tt.status)
					}
				}
				if turns != tt.calls {
					t.Errorf("%d calls, want %d", turns, tt.calls)
				}
			})
		})
	}
}

// TestReply checks the tokens, the counts and the messages of a reply.
func TestReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config(t)
	b := backend(t, cfg)
	g := open(t, b, attempt("calls=2", 1))
	reply, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calls, err := g.Prompts(t.Context(), reply)
	if err != nil || len(calls) != 2 || len(reply.Sends) != 1 {
		t.Fatalf("%d calls, %d sends, %v", len(calls), len(reply.Sends), err)
	}
	first := append(tokensOf("user", "calls=2"), 1003)
	second := slices.Concat(tokensOf("user", "calls=2"), tokensOf("assistant", "answer 1"), tokensOf("user", "more 1"), []int32{1003})
	for i, want := range [][]int32{first, second} {
		if !slices.Equal(calls[i].PromptIDs, want) || calls[i].Source != tokenize.SourceTap || calls[i].Grade != tokenize.Exact {
			t.Errorf("call %d: prompt %v, source %v, grade %v", i, calls[i].PromptIDs, calls[i].Source, calls[i].Grade)
		}
	}
	send := reply.Sends[0]
	want := collector.Usage{PromptTokens: int64(len(first) + len(second)), CompletionTokens: int64(2 * len("answer 1\n")), Steps: 2}
	if send.Usage != want || send.Duration <= 0 || reply.FirstAnswer <= 0 || reply.AgentID != g.ID() || reply.Model != "policy" {
		t.Errorf("usage %+v, want %+v; duration %v, first answer %v, agent %q, model %q",
			send.Usage, want, send.Duration, reply.FirstAnswer, reply.AgentID, reply.Model)
	}
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(reply.Messages, &messages); err != nil || len(messages) != 4 || messages[3].Content != "answer 3" {
		t.Errorf("messages %s: %v", reply.Messages, err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.store.Read(g.ID()); err == nil {
		t.Error("Close kept the session")
	}
}

// TestTimeout checks that a command that ignores signals ends at the timeout, with its tokens. Unless
// no engine is up, the timeout is not a fault of the engine.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, prompt := range []string{"calls=2 sleep=1h", "calls=2 hang=1", "calls=2 hang=1 down=1"} {
		cfg := r.config(t)
		down := strings.Contains(prompt, "down")
		if down {
			cfg.Check = func(context.Context) error { return errors.New("no engine is up") }
		}
		keys := &keeper{Sessions: cfg.Sessions}
		cfg.Sessions = keys
		try := func() {
			run(t, cfg, prompt, func(r *collector.Reply, err error) {
				text := fmt.Sprintf("did not end within %v", cfg.Timeout)
				if down && collector.Classify(err) == collector.ClassUnavailable && strings.Contains(err.Error(), text+": no engine is up") {
					return
				}
				if collector.Classify(err) != collector.ClassTimeoutTotal || !errors.Is(err, collector.ErrOutOfTime) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v, want a timeout", prompt, err)
				}
				if keys.calls > 0 && (len(r.Sends) != 1 || len(r.Sends[0].Turns[0].OutputIDs) == 0) {
					t.Errorf("%s: the tokens of the first call are lost: %+v", prompt, r.Sends)
				}
			})
		}
		// On a busy machine, the command can time out before its first call. It then gets more time.
		for cfg.Timeout = time.Second; keys.calls == 0 && cfg.Timeout < 2*time.Minute; cfg.Timeout *= 2 {
			began := time.Now()
			try()
			if took := time.Since(began); took > cfg.Timeout+30*time.Second {
				t.Errorf("%s took %v", prompt, took)
			}
		}
		if keys.calls == 0 {
			t.Errorf("%s: no call was recorded", prompt)
		}
	}
}

// TestStop checks that the end of the context ends a command and returns its cause with the tokens.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := backend(t, r.config(t))
	g := open(t, b, attempt("calls=2 hang=1", 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if r.store.Stats().Calls > 0 {
				break
			}
		}
		cancel(collector.ErrCensored)
	}()
	reply, err := g.Run(ctx)
	if !errors.Is(err, collector.ErrCensored) || len(reply.Sends) != 1 || len(reply.Sends[0].Turns[0].OutputIDs) == 0 {
		t.Errorf("Run = %+v, %v", reply, err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
