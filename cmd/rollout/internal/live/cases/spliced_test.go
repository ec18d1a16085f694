//go:build linux

package cases_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity/continuitytest"
	"github.com/rollout-rl/rollout/tokenize"
)

// A life is the calls of one agent: the server's prompts, the engine's prompts, and the outputs.
type life struct {
	script                string // of the first call
	asked, given, sampled [][]int32
	changed               int
}

// onlySampled compares the server's prompts with the engine's. All turns except the model's own
// must be equal, id for id. Differing tokens must have been sampled by the same agent. It logs the
// effect on rows.
func (w *world) onlySampled(t *testing.T, p *tapped, calls []enginesim.Call) {
	t.Helper()
	kept := p.kept(t, len(calls))
	lives := map[string]*life{}
	var agents []string
	for i := range calls {
		c := &calls[i]
		k := slices.IndexFunc(kept, func(k *tap.Call) bool {
			return slices.Equal(k.Prompt, c.InputIDs) && slices.Equal(k.Output, c.OutputIDs)
		})
		if k < 0 {
			t.Errorf("call %d of the engine is not in the spool", c.N)
			continue
		}
		l := lives[c.Agent]
		if l == nil {
			l = &life{script: c.Script}
			lives[c.Agent] = l
			agents = append(agents, c.Agent)
		}
		asked := c.InputIDs
		if kept[k].Asked != nil {
			l.changed++
			asked = kept[k].Asked
			if err := continuitytest.Check(w.tokenizer(t), asked, c.InputIDs, l.sampled); err != nil {
				t.Errorf("%s, script %s, call %d of the engine: %v", c.Agent, c.Script, c.N, err)
			}
		}
		l.asked, l.given, l.sampled = append(l.asked, asked), append(l.given, c.InputIDs), append(l.sampled, c.OutputIDs)
	}
	slices.SortFunc(agents, func(a, b string) int { return strings.Compare(lives[a].script+a, lives[b].script+b) })
	var out strings.Builder
	changed := 0
	for _, agent := range agents {
		l := lives[agent]
		rows, read := l.effect(t, l.asked)
		rowsNow, readNow := l.effect(t, l.given)
		fmt.Fprintf(&out, "%-12s %2d calls, rows %d → %d, prefilled %5d → %5d, contexts changed %2d\n", l.script, len(l.sampled), rows, rowsNow, read, readNow, l.changed)
		changed += l.changed
		if rowsNow > rows {
			t.Errorf("%s, script %s: continuity makes %d rows of %d", agent, l.script, rowsNow, rows)
		}
	}
	t.Logf("as asked → with continuity\n%s", out.String())
	if changed == 0 {
		t.Error("no context was changed, so this case shows nothing")
	}
}

func (p *tapped) kept(t *testing.T, n int) []*tap.Call {
	t.Helper()
	r := must(tap.OpenReader(p.spool, ""))(t)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a missing call would block
	defer cancel()
	var kept []*tap.Call
	for range n {
		c, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("call %d of %d of the spool: %v", len(kept), n, err)
		}
		kept = append(kept, c)
	}
	return kept
}

// effect returns the number of rows that the calls give with these prompts, and the tokens that an
// engine with a full cache of the agent must prefill.
func (l *life) effect(t *testing.T, prompts [][]int32) (rows, prefilled int) {
	t.Helper()
	calls := make([]tokenize.Call, len(prompts))
	for k, prompt := range prompts {
		cached := 0
		for j := range k {
			before, n := slices.Concat(prompts[j], l.sampled[j]), 0
			for n < min(len(before), len(prompt)) && before[n] == prompt[n] {
				n++
			}
			cached = max(cached, n)
		}
		prefilled += len(prompt) - cached
		calls[k] = tokenize.Call{
			PromptIDs: prompt, OutputIDs: l.sampled[k], Logprobs: make([]float32, len(l.sampled[k])),
			Source: tokenize.SourceTap, Grade: tokenize.Exact, Version: -1,
		}
	}
	all, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(calls)
	noError(t, err)
	return len(all), prefilled
}
