package agent

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// abortedCall returns an error if the engine aborted a call before its first token. The server
// treats such a call as the end of a turn and stores a step without a turn. So abortedCall checks
// the answers that have fewer assistant turns than steps. If the engine aborted a call later, the
// prompter finds this in the call's trace. A failed lookup is not an error, because the step count
// still shows that a turn is missing.
func (g *agent) abortedCall(ctx context.Context, answer *letta.LettaResponse, arena *tokenize.Reply, runID string) error {
	if runID == "" || int32(tokenize.AssistantTurns(arena.Turns)) >= answer.Usage.StepCount {
		return nil
	}
	steps, err := g.rollout.Run(runID).Steps(ctx)
	if err != nil {
		return nil //nolint:nilerr // the answer is valid; only the reason for the missing turn stays unknown
	}
	for i := range steps {
		s := &steps[i]
		if s.CompletionTokens != nil && *s.CompletionTokens == 0 && g.wasAborted(ctx, s.ID) {
			return fmt.Errorf("%w: call %d of server run %s, before its first token", collector.ErrAborted, i+1, runID)
		}
	}
	return nil
}

func (g *agent) wasAborted(ctx context.Context, stepID string) bool {
	t, err := g.rollout.Trace(ctx, stepID)
	if err != nil || t == nil {
		return false
	}
	answer, err := t.Answer()
	return err == nil && answer.Finish == tokenize.FinishAbort
}
