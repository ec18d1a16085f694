package prompt_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// faced returns a function that changes a recorded prompt: it replaces a text, and reorders the
// lines of Qwen3's list of tools. It uses neither recipe.
func faced(tb testing.TB, model *prompt.Model) func([]int32, lettasim.Face) []int32 {
	tb.Helper()
	return func(recorded []int32, f lettasim.Face) []int32 {
		text, err := model.Tokenizer.AppendText(nil, recorded, bpe.DecodeOptions{})
		if err != nil {
			tb.Error(err)
		}
		head, rest, _ := strings.Cut(string(text), "<tools>\n")
		list, tail, _ := strings.Cut(rest, "\n</tools>")
		lines := strings.Split(list, "\n")
		k := f.Rotate % len(lines)
		lines = slices.Concat(lines[k:], lines[:k])
		out := head + "<tools>\n" + strings.Join(lines, "\n") + "\n</tools>" + tail
		if f.Old != "" {
			out = strings.ReplaceAll(out, f.Old, f.New)
		}
		ids, err := model.Tokenizer.AppendTokens(nil, out)
		if err != nil || len(ids) != len(recorded) {
			tb.Errorf("%d ids, but %d were recorded, %v: the change does not preserve the length", len(ids), len(recorded), err)
		}
		return ids
	}
}

// These changes do not change a length.
var (
	turned    = lettasim.Face{Rotate: 1}
	restamped = lettasim.Face{Old: ":21 AM UTC", New: ":22 AM UTC"}
	described = lettasim.Face{Old: "the first number", New: "the other number"}
)

// faceAt changes what the server sees at looks of a kind: at look n, or at all if n is negative.
func faceAt(kind lettasim.LookKind, n int, f lettasim.Face) func(lettasim.Look) lettasim.Face {
	return func(l lettasim.Look) lettasim.Face {
		if l.Kind == kind && (n < 0 || l.N == n) {
			return f
		}
		return lettasim.Face{}
	}
}

// TestUnsteadyAgents collects over HTTP from a server whose agents change unnoticed without
// changing a length. It compares every context with the model's input. Every graded prompt is
// right, and a prompt without proof is not graded.
func TestUnsteadyAgents(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	const samples = 12 // a run ends if its first 16 samples have no row
	for _, tt := range []struct {
		name, life string
		face       func(lettasim.Look) lettasim.Face // nil: tools flip at random
		noTraces   bool
		unverified bool
		graded     int    // samples whose rows are all count_verified and right
		reason     string // of the others
		source     tokenize.PromptSource
	}{
		{name: "as recorded", life: "tool-two", face: faceAt(lettasim.LookSend, -1, lettasim.Face{}), graded: samples, source: tokenize.SourceStored},
		{name: "tools flip at every look", life: "tool-two", graded: samples, source: tokenize.SourceStored},
		{name: "tools flip at every look, four calls in three sends", life: "multi", graded: samples, source: tokenize.SourceStored},
		{name: "tools flip at every look, a conversation", life: "conversation", graded: samples, source: tokenize.SourceStored},
		{name: "tools flip at every look, sixteen calls", life: "sixteen", graded: samples, source: tokenize.SourceStored},
		{name: "tools flip for the request only", life: "tool-two", face: faceAt(lettasim.LookSend, -1, turned), graded: samples, source: tokenize.SourceStored},
		{name: "tools flip after the create", life: "tool-two", face: faceAt(lettasim.LookCreate, -1, turned), graded: samples, source: tokenize.SourceStored},
		{name: "no traces, nothing changes", life: "tool-two", face: faceAt(lettasim.LookSend, -1, lettasim.Face{}), noTraces: true, reason: "tool_order"},
		{name: "no traces, tools flip at every look", life: "tool-two", noTraces: true, reason: "tool_order"},
		{name: "no traces, tools flip for the request only", life: "tool-two", face: faceAt(lettasim.LookSend, -1, turned), noTraces: true, reason: "tool_order"},
		{name: "no traces, tools flip after the create", life: "tool-two", face: faceAt(lettasim.LookCreate, -1, turned), noTraces: true, reason: "tool_order"},
		{name: "no traces, three sends", life: "multi", noTraces: true, reason: "tool_order"},
		{name: "no traces, unverified rows", life: "tool-two", noTraces: true, unverified: true},
		{name: "the system message of the request is another", life: "tool-two", face: faceAt(lettasim.LookSend, -1, restamped), graded: samples, source: tokenize.SourceTrace},
		{name: "the system message was another before", life: "tool-two", face: faceAt(lettasim.LookSystem, -1, restamped), graded: samples, source: tokenize.SourceTrace},
		{name: "a tool is described otherwise for the request", life: "tool-two", face: faceAt(lettasim.LookSend, -1, described), reason: "no_prompt"},
		{name: "a tool was described otherwise before", life: "tool-two", face: faceAt(lettasim.LookCreate, -1, described), reason: "no_prompt"},
		{name: "a tool is described otherwise, unverified rows", life: "tool-two", face: faceAt(lettasim.LookSend, -1, described), unverified: true, reason: "no_prompt"},
		{name: "one tool, no traces, nothing changes", life: "tool-list", face: faceAt(lettasim.LookSend, -1, lettasim.Face{}), noTraces: true, graded: samples, source: tokenize.SourceStored},
		{name: "one tool, no traces, the system message is another now", life: "tool-list", face: func(l lettasim.Look) lettasim.Face {
			if l.Kind == lettasim.LookSend || l.Kind == lettasim.LookSystem && l.N > 0 {
				return lettasim.Face{Old: " AM UTC", New: " PM UTC"}
			}
			return lettasim.Face{}
		}, noTraces: true, unverified: true, reason: "no_prompt"},
		{name: "one tool, no traces, it is described otherwise now", life: "tool-list", face: func(l lettasim.Look) lettasim.Face {
			if l.Kind != lettasim.LookCreate {
				return lettasim.Face{Old: "List", New: "Show"}
			}
			return lettasim.Face{}
		}, noTraces: true, reason: "no_prompt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.face == nil {
				r := rand.New(rand.NewPCG(9, 1))
				tt.face = func(lettasim.Look) lettasim.Face { return lettasim.Face{Rotate: r.IntN(2)} }
			}
			sim := simulate(t, lettasim.Config{Face: tt.face, Prompt: faced(t, model), NoTraces: tt.noTraces}, tt.life)
			p := newPrompter(t, prompt.Config{Model: model, Unverified: tt.unverified})
			got := recordingOf(t, tt.life).collect(t, sim, p, samples)
			given := map[string][]truth{}
			for _, g := range sim.Given() {
				given[g.AgentID] = append(given[g.AgentID], truth{prompt: g.InputIDs, output: g.Output})
			}
			graded, unverified, wrong, contexts := 0, 0, 0, 0
			for _, s := range got {
				seen := make([]bool, 16)
				for i := range s.Rows {
					row := &s.Rows[i]
					contexts++
					err := checkRow(row, given[s.AgentID], seen)
					switch {
					case err != nil && row.Grade == tokenize.CountVerified:
						wrong++
						t.Logf("row %d, %v: %v", i, row.Grade, err)
					case row.Grade == tokenize.Unverified:
						unverified++
					case row.Grade != tokenize.CountVerified || row.Source != tt.source:
						t.Errorf("row %d is %v from %v, want %v", i, row.Grade, row.Source, tt.source)
					}
				}
				if len(s.Rows) > 0 && len(s.Failures) == 0 {
					graded++
					continue
				}
				for i := range s.Failures {
					if f := &s.Failures[i]; f.Reason != tt.reason || f.Class != "no_prompt" {
						t.Errorf("failure %s/%s, want no_prompt/%s: %s", f.Class, f.Reason, tt.reason, f.Error)
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d of %d rows are count_verified with a context that the model did not see", wrong, contexts)
			}
			if tt.unverified && tt.reason == "" {
				if unverified != contexts || graded != samples {
					t.Errorf("%d of %d rows are unverified in %d samples, want all", unverified, contexts, graded)
				}
			} else if graded != tt.graded || unverified > 0 {
				t.Errorf("%d of %d samples have graded rows, want %d; %d rows are unverified", graded, samples, tt.graded, unverified)
			}
		})
	}
}

// If a server keeps no traces, traces are soon no longer requested.
func TestTracelessServer(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	const samples = 40
	for none, most := range map[bool]int64{false: samples, true: samples + 2*16} { // some are requested concurrently before it is known
		sim := simulate(t, lettasim.Config{NoTraces: none}, "single")
		recordingOf(t, "single").collect(t, sim, newPrompter(t, prompt.Config{Model: model, Unverified: true}), samples)
		if n := sim.Stats().Requests["GET /v1/steps/{id}/trace"]; n > most || n < samples {
			t.Errorf("no traces %v: %d requests for traces of %d calls, want at most %d", none, n, samples, most)
		}
	}
}

// TestUnsteadyTakenOver: the same holds for agents that are taken over from a dead process. They
// are read when their tools can already be in another order.
func TestUnsteadyTakenOver(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	graded, others := 0, 0
	for _, rec := range recordings(t) {
		if rec.name != "tool-two" && rec.name != "multi" {
			continue
		}
		for cutAt := int64(1); cutAt <= int64(len(rec.Exchanges)); cutAt++ {
			for _, f := range []lettasim.Face{{}, restamped, described} {
				for _, kind := range []lettasim.LookKind{lettasim.LookAgent, lettasim.LookSend} {
					config := lettasim.Config{Prompt: faced(t, model), Face: func(l lettasim.Look) lettasim.Face {
						if l.Kind != kind {
							return lettasim.Face{Rotate: l.N}
						}
						return lettasim.Face{Rotate: l.N + 1, Old: f.Old, New: f.New}
					}}
					got := rollOut(t, &rec, model, config, cutAt)
					if errors.Is(got.err, collector.ErrGone) {
						others++ // collected again
						continue
					}
					if got.err != nil {
						t.Fatal(got.err)
					}
					given := got.server.Given()
					for k := range got.calls {
						switch c := &got.calls[k]; {
						case c.Grade == tokenize.Quarantined:
							others++
						case slices.Equal(c.PromptIDs, given[k].InputIDs):
							graded++
						default:
							t.Errorf("%s, cut at send %d, %+v at look %d: call %d is %v from %v with a prompt that the model did not see", rec.name, cutAt, f, kind, k, c.Grade, c.Source)
						}
					}
				}
			}
		}
	}
	t.Logf("%d calls are graded and right, %d are not graded", graded, others)
	if graded < 50 {
		t.Errorf("%d calls are graded, want most", graded)
	}
}
