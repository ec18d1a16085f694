package agent

import (
	"context"
	"net/http/httptrace"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// Progress describes a server run whose answer is missing. The process that sent the request died,
// the connection was lost, or the send has been silent for a long time.
type Progress struct {
	Key     string
	Attempt int
	AgentID string
	RunID   string
	// Steps is the number of finished model calls.
	Steps int
	// Silent is the time since the last new step.
	Silent time.Duration
}

// sendWatched makes a send. If the send is silent for Config.SilentAfter, it looks up the server
// run and reports the run to Config.Progress. After the run has ended, the answer must begin within
// Config.LostAfter. Otherwise, the send is canceled.
func (g *agent) sendWatched(ctx context.Context, o letta.SendOptions) (*letta.LettaResponse, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	answered, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	timer := time.AfterFunc(g.cfg.SilentAfter, func() {
		defer close(watched)
		g.watch(answered, giveUp)
	})
	defer func() {
		if !timer.Stop() {
			stop()
			<-watched
		}
	}()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: stop})
	return g.client.SendWith(ctx, o)
}

// watch polls the newest server run of the agent until the answer begins or the run has ended.
func (g *agent) watch(answered context.Context, giveUp context.CancelCauseFunc) {
	steps, grew := 0, time.Now().Add(-g.cfg.SilentAfter)
	for {
		run, err := g.client.LastRun(answered, g.state.ID)
		if err == nil && run != nil && !g.isAnswered(run.ID) {
			list, err := g.client.RunSteps(answered, run.ID)
			if err == nil && len(list) != steps {
				steps, grew = len(list), time.Now()
			}
			g.reportRun(run.ID)
			g.progress(run.ID, steps, time.Since(grew))
			if run.Ended() || err == nil && g.conversation != nil && letta.StepsEnded(list) {
				if sleep(answered, g.cfg.LostAfter) == nil {
					giveUp(letta.ErrAnswerLost)
				}
				return
			}
		}
		if sleep(answered, g.cfg.SilentAfter) != nil {
			return
		}
	}
}

func (g *agent) progress(run string, steps int, silent time.Duration) {
	if g.backend.cfg.Progress == nil {
		return
	}
	g.backend.cfg.Progress(Progress{
		Key: g.attempt.Key, Attempt: g.attempt.N, AgentID: g.state.ID, RunID: run, Steps: max(0, steps), Silent: silent,
	})
}
