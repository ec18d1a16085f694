package prompt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A told is a reply with its calls, or with the error.
type told struct {
	server   *lettasim.Server
	prompter *prompt.Prompter
	reply    *collector.Reply
	evidence *record.Rollout
	calls    []tokenize.Call
	err      error
}

// Prompts finds the prompts of a reply with turns. It keeps the records of every reply.
func (o *told) Prompts(ctx context.Context, r *collector.Reply, e *record.Rollout) ([]tokenize.Call, error) {
	o.evidence = e
	if r.Sends[0].Turns == nil {
		return nil, nil
	}
	return o.prompter.Prompts(ctx, r, e)
}

func (o *told) Prefetch(ctx context.Context, rollout *record.Rollout, of record.Send, turns []tokenize.Turn) {
	o.prompter.Prefetch(ctx, rollout, of, turns)
}

// rollOut plays a recording. If cutAt is not 0, the agent works at that send, counted from 1, but
// the answer is lost together with the process that waits for it, and another process takes over.
func rollOut(t *testing.T, rec *recording, model *prompt.Model, config lettasim.Config, cutAt int64, change ...func(*agent.Config)) *told {
	t.Helper()
	sim := simulate(t, config, rec.name)
	var sends atomic.Int64
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isSend(r) && sends.Add(1) == cutAt {
			sim.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		sim.ServeHTTP(w, r)
	})
	task, cfg := rec.asTask(t)
	cfg.NoRecover = true // the process that waits for the answer dies
	for _, f := range change {
		f(&cfg)
	}
	out := &told{server: sim, prompter: newPrompter(t, prompt.Config{Model: model})}
	cfg.Prompter = out
	a := collector.Attempt{Task: task, Key: "key-" + rec.name, GroupSize: 1, N: 1, RunID: "run"}
	open := func() *agent.Backend { return newBackend(t, dial(t, server, letta.ClientConfig{ReadRetries: -1}), cfg) }
	agent, err := open().Open(t.Context(), a)
	if err != nil {
		return &told{err: err}
	}
	reply, err := agent.Run(t.Context())
	if cutAt > 0 {
		if !errors.Is(err, collector.ErrConnection) {
			t.Fatalf("%s: cut at send %d: %v", rec.name, cutAt, err)
		}
		left := collector.OpenAttempt{N: 1}
		if cutAt%2 == 0 {
			left.AgentID = agent.ID() // otherwise it is found by its tags
		}
		agent, err = open().Reattach(t.Context(), a, left)
		if err != nil {
			return &told{err: err}
		}
		reply, err = agent.Run(t.Context())
	}
	if out.reply, out.err = reply, err; err == nil {
		if out.calls, err = agent.Prompts(t.Context(), reply); err != nil {
			t.Fatalf("%s: prompts: %v", rec.name, err)
		}
	}
	t.Cleanup(func() {
		if err := agent.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if alive := sim.Stats().AgentsAlive; alive != 0 {
			t.Errorf("%s: %d agents left", rec.name, alive)
		}
	})
	return out
}

// TestReattachRecorded kills the client of every recorded life after the server accepted a send,
// for each send. The process that takes over gets the same tokens and prompts as in the lost
// answer, or fails with a reason.
func TestReattachRecorded(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	for _, inputIDs := range []bool{false, true} {
		t.Run(fmt.Sprintf("input_ids=%v", inputIDs), func(t *testing.T) {
			t.Parallel()
			equal, failed, given := 0, 0, map[string]string{}
			for _, rec := range recordings(t) {
				if rec.name == "bad-body" || rec.name == "unknown-agent" {
					continue // refused before there is anything to take over
				}
				whole := rollOut(t, &rec, model, lettasim.Config{InputIDs: inputIDs}, 0)
				sends := 1
				if whole.err == nil {
					sends = len(whole.reply.Sends)
				}
				for n := 1; n <= sends; n++ {
					again := rollOut(t, &rec, model, lettasim.Config{InputIDs: inputIDs}, int64(n))
					if errors.Is(again.err, collector.ErrGone) {
						given[fmt.Sprintf("%s %d", rec.name, n)] = again.err.Error()
						continue
					}
					if class := collector.Classify(again.err); class.DataRetryable() && class == collector.Classify(whole.err) {
						failed++ // not excused by the end of the process
						continue
					}
					if diff := differ(whole, again, n); diff != "" {
						t.Errorf("%s, cut at send %d: %s", rec.name, n, diff)
						continue
					}
					equal++
				}
			}
			t.Logf("%d sends taken over and equal, %d given up: %v", equal, len(given), given)
			if failed != 1 { // tool-null-args
				t.Errorf("%d rollouts failed as they do undisturbed, want 1", failed)
			}
			if equal != 32 || len(given) != len(notRemembered) {
				t.Errorf("%d sends taken over and equal, want 32; %d given up, want %d", equal, len(given), len(notRemembered))
			}
			for name, why := range notRemembered {
				if !strings.Contains(given[name], why) {
					t.Errorf("%s: %q, want %q", name, given[name], why)
				}
			}
		})
	}
}

// TestReattachOverridden: if the request overrode the system message, no trace shows the one that
// the model received, and an agent that is read later can have another one. A taken-over sample is
// then not proven, and TakenOver reports that a new rollout would be.
func TestReattachOverridden(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	override := func(cfg *agent.Config) { cfg.OverrideSystem = "Be brief." }
	tried := 0
	for _, rec := range recordings(t) {
		if rec.name != "single" && rec.name != "tool" && rec.name != "length" {
			continue
		}
		tried++
		whole := rollOut(t, &rec, model, lettasim.Config{}, 0, override)
		again := rollOut(t, &rec, model, lettasim.Config{}, 1, override)
		for k, c := range whole.calls {
			if c.Grade != tokenize.CountVerified || c.TakenOver {
				t.Errorf("%s: call %d is %s: %s", rec.name, k, c.Grade, c.Note)
			}
		}
		if again.err != nil || len(again.calls) != len(whole.calls) {
			t.Errorf("%s: %d calls taken over, %v", rec.name, len(again.calls), again.err)
		}
		for k, c := range again.calls {
			if c.Grade != tokenize.Quarantined || !c.TakenOver {
				t.Errorf("%s: call %d, taken over, is %s, and a new one would be better: %v; %s", rec.name, k, c.Grade, c.TakenOver, c.Note)
			}
		}
	}
	if tried != 3 {
		t.Errorf("%d recordings were tried", tried)
	}
}

// notRemembered lists the sends whose tokens the server does not keep completely, with the reason.
var notRemembered = map[string]string{
	"compaction 1":    "has no trace", // a step with two traces: the server returns none
	"nan 1":           "has no trace", // its database column cannot store NaN
	"logprobs-only 1": "has no token ids",
	"http-500 1":      "has status failed and no stop reason: Server error '500 X'",
}

// differ describes how two rollouts differ, or returns nothing.
func differ(a, b *told, cut int) string {
	if a.err != nil || b.err != nil {
		if fmt.Sprint(a.err) == fmt.Sprint(b.err) {
			return ""
		}
		return fmt.Sprintf("errors: %v and %v", a.err, b.err)
	}
	ra, rb := *a.reply, *b.reply
	ea, eb := a.evidence, b.evidence
	ra.FirstAnswer, rb.FirstAnswer = 0, 0
	ra.Sends, rb.Sends = slices.Clone(ra.Sends), slices.Clone(rb.Sends)
	reattached := 0
	if len(ra.Sends) != len(rb.Sends) {
		return fmt.Sprintf("%d and %d sends", len(ra.Sends), len(rb.Sends))
	}
	for i := range rb.Sends {
		if ra.Sends[i].FromRecord {
			return fmt.Sprintf("send %d of an undisturbed attempt is from the record", i)
		}
		if rb.Sends[i].FromRecord {
			reattached++
		}
		if rb.Sends[i].Lost != nil || ra.Sends[i].Duration <= 0 {
			return fmt.Sprintf("send %d: lost to %v, and took %v undisturbed", i, rb.Sends[i].Lost, ra.Sends[i].Duration)
		}
		rb.Sends[i].FromRecord = false
		ra.Sends[i].Duration, rb.Sends[i].Duration = 0, 0
	}
	if reattached != cut { // the process died at that send and lost all earlier answers
		return fmt.Sprintf("%d sends say that they are from the record, want %d", reattached, cut)
	}
	if !reflect.DeepEqual(ra, rb) {
		return fmt.Sprintf("replies:\n%.3000s\n%.3000s", fmt.Sprintf("%+v", ra), fmt.Sprintf("%+v", rb))
	}
	if ea.SystemText != eb.SystemText || len(ea.Sends) != len(eb.Sends) {
		return "system texts or numbers of sends"
	}
	for i := range ea.Sends {
		x, y := &ea.Sends[i], &eb.Sends[i]
		x.Response.JSON, y.Response.JSON, x.Response.Usage.JSON, y.Response.Usage.JSON = "", "", "", ""
		x.Response.Usage.ContextTokens, y.Response.Usage.ContextTokens = nil, nil
		for _, pair := range [][2]any{{x.Request, y.Request}, {x.Response, y.Response}, {x.RunID, y.RunID}} {
			p, errP := json.Marshal(pair[0])
			q, errQ := json.Marshal(pair[1])
			if errP != nil || errQ != nil || string(p) != string(q) {
				return fmt.Sprintf("evidence of send %d:\n%s\n%s", i, p, q)
			}
		}
	}
	if !reflect.DeepEqual(a.calls, b.calls) {
		return fmt.Sprintf("calls:\n%+v\n%+v", a.calls, b.calls)
	}
	return ""
}
