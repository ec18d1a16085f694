package prompt_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// plans lists shapes of samples, with the requests that the proof of each makes.
var plans = []struct {
	plan
	requests string
	known    string // requests once a sample of the server was read; empty: the same
}{
	{plan{name: "one call, no tool", sends: []int{1}}, "traces:1", ""},
	{plan{name: "one call", sends: []int{1}, tools: 1}, "traces:1", ""},
	{plan{name: "two calls", sends: []int{2}, tools: 1}, "traces:1", ""},
	{plan{name: "two calls, text kept", sends: []int{2}, tools: 1, keep: true}, "traces:1", ""},
	{plan{name: "three calls", sends: []int{3}, tools: 1}, "steps:1 traces:1", ""},
	{plan{name: "seven calls, three tools", sends: []int{7}, tools: 3}, "steps:1 traces:1", ""},
	{plan{name: "two sends", sends: []int{2, 1}, tools: 1}, "traces:2", ""},
	{plan{name: "two sends, two tools", sends: []int{2, 2}, tools: 2}, "traces:2", ""},
	{plan{name: "three sends", sends: []int{2, 1, 2}, tools: 1}, "agents:1 traces:1", ""},
	{plan{name: "three sends without tools", sends: []int{1, 1, 1}}, "agents:1 traces:1", ""},
	{plan{name: "six sends, text kept", sends: []int{2, 1, 1, 2, 1, 2}, tools: 1, keep: true}, "agents:1 traces:1", ""},
	{plan{name: "three sends, one cut", sends: []int{2, 1, 2}, tools: 1, cut: 2}, "agents:1 traces:3", ""},
	{plan{name: "three sends, the last cut", sends: []int{1, 1, 1}, tools: 1, cut: 3}, "agents:1 traces:3", "agents:1 traces:1"},
	{plan{name: "three sends, numbered policy", sends: []int{2, 1, 2}, tools: 1, version: "7"}, "agents:1 traces:1", ""},
	{plan{name: "three sends, a conversation", sends: []int{1, 2, 1}, tools: 1, talk: true}, "traces:3", ""},
	{plan{name: "three sends, a block", sends: []int{2, 1, 2}, tools: 1, block: true}, "traces:3", ""},
	{plan{name: "three sends, another model", sends: []int{2, 1, 2}, tools: 1, override: true}, "traces:3", ""},
	{plan{name: "three sends, three tools", sends: []int{2, 2, 1}, tools: 3}, "traces:3", ""},
	{plan{name: "three sends, one of three calls", sends: []int{1, 3, 1}, tools: 1}, "agents:1 steps:1 traces:1", ""},
	{plan{name: "three sends of three calls, two tools", sends: []int{3, 3, 3}, tools: 2}, "steps:3 traces:3", ""},
}

func asked(r record.Requests) string {
	return strings.Trim(strings.TrimPrefix(fmt.Sprint(r.BySource()), "map"), "[]") // keys are printed in order
}

// A road is the result of one way of finding prompts.
type road struct {
	calls []tokenize.Call
	err   error
	asked record.Requests
}

// take finds the prompts of the reply, with or without its answers.
func take(tb testing.TB, cfg prompt.Config, answers bool, reply *prompt.Answered, rollout *record.Rollout) road {
	tb.Helper()
	p := newPrompter(tb, cfg)
	if !answers {
		p.WithoutAnswers()
	}
	r := reply.Reply
	calls, err := p.Prompts(tb.Context(), &r, rollout)
	return road{calls, err, rollout.Requests()}
}

// sameRoads returns an error if two ways differ in calls, or in the rows made of them. A send that
// needs no trace when answers are used has no version.
func sameRoads(records, answers road) error {
	if (records.err == nil) != (answers.err == nil) || records.err != nil && records.err.Error() != answers.err.Error() {
		return fmt.Errorf("errors %w and %w", records.err, answers.err)
	}
	records.calls = slices.Clone(records.calls)
	for k := range records.calls {
		if answers.calls[k].Version < 0 && k+1 < len(records.calls) && answers.asked.Traces < records.asked.Traces {
			records.calls[k].Version = answers.calls[k].Version
		}
		if a, b := &records.calls[k], &answers.calls[k]; !reflect.DeepEqual(a, b) {
			return fmt.Errorf("call %d: %s and %s", k, short(a), short(b))
		}
	}
	a, _, errA := tokenize.NewAligner(tokenize.AlignConfig{}).Align(records.calls)
	b, _, errB := tokenize.NewAligner(tokenize.AlignConfig{}).Align(answers.calls)
	if !reflect.DeepEqual(a, b) || (errA == nil) != (errB == nil) {
		return errors.New("other rows")
	}
	return nil
}

func short(c *tokenize.Call) string {
	return fmt.Sprintf("%v %v %v with %d ids, step %q, ended %q, version %d, note %q", c.Grade, c.Source, c.Reason, len(c.PromptIDs), c.StepID, c.FinishReason, c.Version, c.Note)
}

// TestAnswersMetamorphic: the records prove whatever answers prove, to the last bit. If answers
// prove nothing, the result is the same as without them.
func TestAnswersMetamorphic(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	servers := map[string]lettasim.Config{
		"as recorded":                           {},
		"no traces":                             {NoTraces: true},
		"tools turned for requests":             {Face: faceAt(lettasim.LookSend, -1, turned)},
		"tools turned for the second request":   {Face: faceAt(lettasim.LookSend, 1, turned)},
		"tools turned after the create":         {Face: faceAt(lettasim.LookCreate, -1, turned)},
		"another system message":                {Face: faceAt(lettasim.LookSend, -1, restamped)},
		"another system message for the second": {Face: faceAt(lettasim.LookSend, 1, restamped)},
		"another tool":                          {Face: faceAt(lettasim.LookSend, -1, described)},
		"another tool for the second":           {Face: faceAt(lettasim.LookSend, 1, described)},
	}
	seeds, most := uint64(4), int32(400)
	if testing.Short() || raceEnabled {
		maps.DeleteFunc(servers, func(_ string, c lettasim.Config) bool { return c.Face != nil })
		seeds, most = 1, 60
	}
	var fromAnswers atomic.Int32
	t.Run("servers", func(t *testing.T) {
		for name, server := range servers {
			for _, rec := range recordings(t) {
				t.Run(name+"/"+rec.name, func(t *testing.T) {
					t.Parallel()
					server := server
					if server.Face != nil {
						server.Prompt = func(ids []int32, _ lettasim.Face) []int32 { return ids }
					}
					reply := liveOn(t, simulate(t, server, rec.name), &rec)
					configs := []prompt.Config{{Model: model}, {Model: model, Unverified: true}, {Model: model, Force: tokenize.SourceStored}}
					if server.NoTraces {
						configs = configs[:1] // each waits for traces
					}
					for _, cfg := range configs {
						records := take(t, cfg, false, reply, fresh(reply.Client, reply.Evidence))
						answers := take(t, cfg, true, reply, fresh(reply.Client, reply.Evidence))
						if err := sameRoads(records, answers); err != nil {
							t.Errorf("source %v: records and answers: %v", cfg.Force, err)
						}
						if answers.asked.Total() < records.asked.Total() {
							fromAnswers.Add(1)
						}
						if answers.asked.Total() > records.asked.Total() {
							t.Errorf("source %v: %v are requested, and %v without answers", cfg.Force, asked(answers.asked), asked(records.asked))
						}
					}
				})
			}
		}
	})
	for seed := range seeds {
		for _, p := range plans {
			known := madeUp(t, model, seed, p.plan)
			for _, off := range []bool{false, true} {
				if off {
					clear(known.memory.traces)
				}
				records, answers := known.roads(t, model)
				if err := sameRoads(records, answers); err != nil {
					t.Errorf("%s, no traces %v: records and answers: %v", p.name, off, err)
				}
				if answers.asked.Total() < records.asked.Total() {
					fromAnswers.Add(1)
				}
			}
		}
	}
	t.Logf("%d samples needed less than their records", fromAnswers.Load())
	if fromAnswers.Load() < most {
		t.Error("few samples needed less than their records, want most")
	}
}

func (known *knownLife) roads(tb testing.TB, model *prompt.Model) (records, answers road) {
	tb.Helper()
	records = take(tb, prompt.Config{Model: model}, false, known.reply, known.rollout())
	answers = take(tb, prompt.Config{Model: model}, true, known.reply, known.rollout())
	return records, answers
}

// TestRequestsOfRecordings pins the requests of the whole collector, including prefetches.
func TestRequestsOfRecordings(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	const all = "messages:2 steps:2 traces:2" // with two sends
	want := map[string]string{
		"single": "traces:1", "length": "traces:1", "newlines": "traces:1", "large": "traces:1",
		"tool": "traces:1", "tool-list": "traces:1", "tool-fail": "traces:1", "tool-text": "traces:1", "tool-split": "traces:1",
		"tool-unicode": "traces:1", "tool-malformed": "traces:1", "tool-parallel": "traces:1", "tool-parallel-dropped": "traces:1",
		"tool-args-compact": "traces:1", "tool-args-numbers": "traces:1",
		"tool-two": "steps:1 traces:1", "tool-think-two": "steps:1 traces:1", "max-steps": "steps:1 traces:1",
		"reasoner-on": "steps:1 traces:1", "override-model": "steps:1 traces:1", "sixteen": "steps:1 traces:1",
		"multi": "traces:3", "conversation": "traces:2",
		"approval": all, "client-tool-return": all, // a call waits for the client
	}
	p := newPrompter(t, prompt.Config{Model: model}) // shared: once a server is seen to keep traces, they are prefetched
	var before record.Requests
	for range 2 {
		for _, rec := range recordings(t) {
			if want[rec.name] == "" {
				continue
			}
			s := rec.sample(t, lettasim.Config{}, p)
			if len(s.Failures) > 0 || len(s.Rows) == 0 {
				t.Errorf("%s: %d rows, %d failures", rec.name, len(s.Rows), len(s.Failures))
			}
			now := p.Stats().Requests
			if got := asked(minus(now, before)); got != want[rec.name] {
				t.Errorf("%s: %q, want %q", rec.name, got, want[rec.name])
			}
			before = now
		}
	}
}

func minus(a, b record.Requests) record.Requests {
	return record.Requests{
		Steps: a.Steps - b.Steps, Messages: a.Messages - b.Messages, Traces: a.Traces - b.Traces,
		Agents: a.Agents - b.Agents, Conversations: a.Conversations - b.Conversations,
	}
}

// keptIDs collects one sample, without times, from a server that keeps the recorded ids.
func (r *recording) keptIDs(t *testing.T, p *prompt.Prompter) *tokenize.Sample {
	t.Helper()
	s := r.sample(t, lettasim.Config{KeepIDs: true}, p)
	s.StartedAt, s.Duration, s.Working = time.Time{}, 0, 0
	for i := range s.Failures {
		for k, v := range s.Failures[i].Logprobs {
			if v != v { // NaN is not equal to itself
				s.Failures[i].Logprobs[k] = 1
			}
		}
	}
	return s
}
