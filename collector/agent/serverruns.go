package agent

import (
	"context"
	"errors"
	"net/http"

	"github.com/rollout-rl/rollout/collector/letta"
)

// runOf returns the id of the server run of an answer. An answer without messages, as after an
// empty generation, does not name its run. runOf then looks up the newest run. The tokens are kept
// even if the lookup fails.
func (g *agent) runOf(ctx context.Context, answer *letta.LettaResponse) (string, error) {
	if id := answer.RunID(); id != "" {
		return id, nil
	}
	run, err := g.client.LastRun(ctx, g.state.ID)
	if run == nil || g.isAnswered(run.ID) {
		return "", err
	}
	return run.ID, err
}

func (g *agent) isAnswered(runID string) bool {
	for i := range g.rollout.Sends {
		if g.rollout.Sends[i].RunID == runID {
			return true
		}
	}
	return false
}

// reportRun reports a server run to Attempt.ServerRun, once.
func (g *agent) reportRun(runID string) {
	if runID == "" || g.told[runID] {
		return
	}
	if g.told == nil {
		g.told = make(map[string]bool)
	}
	g.told[runID] = true
	if g.attempt.ServerRun != nil {
		g.attempt.ServerRun(runID)
	}
}

// serverRuns lists the server runs of the agent, all of one attempt, oldest first.
func (g *agent) serverRuns(ctx context.Context) ([]letta.Run, error) {
	const most = 1000
	runs, err := g.client.Runs(ctx, letta.RunsQuery{AgentID: g.state.ID, Ascending: true, Limit: most})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// mayStillRun reports whether the server might still run a send that failed with err: there was
// no answer, or one from an impatient proxy.
func mayStillRun(err error) bool {
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return true
	}
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
