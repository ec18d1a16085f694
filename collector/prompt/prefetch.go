package prompt

import (
	"context"

	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// Prefetch fetches what Prompts will read of a send that was answered with turns, while
// the server works at the next one. It returns when all is there, or ctx is done. Whatever
// fails here, or has no lane, is asked for by Prompts.
func (p *Prompter) Prefetch(ctx context.Context, rollout *record.Rollout, of record.Send, turns []tokenize.Turn) {
	if !p.rebuilds() || of.RunID == "" || p.turns && promptsIn(turns) {
		return
	}
	if !p.lanes.take() {
		return
	}
	defer p.lanes.give()
	var all []func(context.Context) error
	// A server that was never seen to keep a trace is not asked for one ahead of time.
	if id := lastStep(turns, &of); id != "" && p.finish.traced.Load() {
		all = append(all, func(ctx context.Context) error {
			_, _ = rollout.TraceSoon(ctx, id)
			return nil
		})
	}
	run := rollout.Run(of.RunID)
	if p.lanes.together(ctx, append(all, ofRun(run)...)...) != nil {
		return
	}
	if steps, err := run.Calls(ctx); err == nil && len(steps) < assistantTurns(turns) {
		run.Forget() // the server has not stored all of it yet
	}
}

// promptsIn reports whether every assistant turn holds its prompt.
func promptsIn(turns []tokenize.Turn) bool {
	for i := range turns {
		if turns[i].Role == tokenize.RoleAssistant && turns[i].PromptIDs == nil {
			return false
		}
	}
	return true
}

// lastStep returns the id of the step of a send's last call, whose trace is the first one
// that a proof asks for. It is empty where the answer does not name it, or where a
// compaction may have taken the trace.
func lastStep(turns []tokenize.Turn, of *record.Send) string {
	ids := stepsOfTurns(turns, of.Response.Messages)
	s := send{request: of.Request, messages: of.Response.Messages}
	if len(ids) == 0 || len(s.alerts()) > 0 {
		return ""
	}
	return ids[len(ids)-1]
}
