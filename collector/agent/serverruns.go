package agent

import (
	"context"
	"errors"
	"net/http"

	"github.com/rollout-rl/rollout/collector/letta"
)

// runOf returns the id of the server run of an answer. An answer without messages, for example
// after an empty generation, does not name its server run. In this case, runOf looks up the newest
// run of the agent. If the lookup fails, the caller still records the answer.
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

// reportRun reports a server run to Attempt.ServerRun, unless it has already been reported.
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

// serverRuns lists all server runs of the agent, oldest first.
func (g *agent) serverRuns(ctx context.Context) ([]letta.Run, error) {
	const most = 1000
	runs, err := g.client.Runs(ctx, letta.RunsQuery{AgentID: g.state.ID, Ascending: true, Limit: most})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// mayStillRun reports whether the server might still be working on a send that failed with err.
// This is possible if there was no answer, or if a proxy answered because it stopped waiting.
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
