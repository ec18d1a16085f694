package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// Prefetch fetches the records that Prompts will read for an answered send. The backend calls it
// while the server works on the next send. It does not fetch data that the answer contains. It
// fetches nothing if a tap might have recorded the calls, because most of the records would not be
// read. It returns when all requests are done or ctx is done. If a request fails or finds no free
// lane, Prompts makes that request later.
func (p *Prompter) Prefetch(ctx context.Context, rollout *record.Rollout, of record.Send, turns []tokenize.Turn) {
	if !p.rebuilds() || p.tap != nil || of.RunID == "" || p.turns && promptsIn(turns) {
		return
	}
	run := rollout.Run(of.RunID)
	all := []func(context.Context) error{prefetch(run.Messages), prefetch(run.Steps)}
	ownTrace := true
	if p.takesAnswers(rollout) {
		if said := stepsSaid(rollout, &of, turns); len(said) > 0 {
			all, ownTrace = nil, needsTrace(rollout, of.Request)
			if len(said) > fewCalls {
				all = append(all, prefetch(run.Steps))
			}
		}
	}
	asksRun := len(all) > 0
	// Do not request a trace ahead of time from a server that was never seen to keep traces.
	if id := lastStep(turns, &of); id != "" && ownTrace && p.finish.traced.Load() {
		all = append(all, func(ctx context.Context) error {
			_, _ = rollout.TraceSoon(ctx, id)
			return nil
		})
	}
	if len(all) == 0 || !p.lanes.take() {
		return
	}
	defer p.lanes.give()
	if p.lanes.together(ctx, all...) != nil || !asksRun {
		return
	}
	if steps, err := run.Calls(ctx); err == nil && len(steps) < tokenize.AssistantTurns(turns) {
		run.Forget() // the server has not yet stored all steps
	}
}

// promptsIn reports whether every assistant turn contains its prompt.
func promptsIn(turns []tokenize.Turn) bool {
	return !slices.ContainsFunc(turns, func(t tokenize.Turn) bool { return t.Role == tokenize.RoleAssistant && t.PromptIDs == nil })
}

// lastStep returns the step id of a send's last call. The trace of this step is the first trace
// that a proof reads. The id is empty if the answer does not name the step, or if a compaction
// might have removed the trace.
func lastStep(turns []tokenize.Turn, of *record.Send) string {
	ids := stepsOfTurns(turns, of.Response.Messages)
	if len(ids) == 0 || len(answered(of).alerts()) > 0 {
		return ""
	}
	return ids[len(ids)-1]
}
