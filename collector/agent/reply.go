package agent

import (
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

type sendResult struct {
	request *letta.LettaRequest
	ours    bool // the same as input.ours
	answer  *letta.LettaResponse
	arena   *tokenize.Reply // the turns of the answer
	runID   string          // empty if unknown
	took    time.Duration
	// began and ended have the same meaning as in record.Send.
	began, ended time.Time
	// fromRecord is true if the answer comes from the server's record. If this process made the
	// send, lost is the reason why its answer was lost.
	fromRecord bool
	lost       error
}

func (g *agent) recordSend(x sendResult) {
	send := collector.Send{
		RunID: x.runID, StopReason: string(x.answer.StopReason),
		Usage: collector.Usage{
			PromptTokens: x.answer.Usage.PromptTokens, CompletionTokens: x.answer.Usage.CompletionTokens, Steps: x.answer.Usage.StepCount,
		},
		ClientTools: x.ours, Duration: x.took, FromRecord: x.fromRecord, Lost: Translate(x.lost),
	}
	if x.arena.HasTurns {
		send.Turns = x.arena.Turns
		if send.Turns == nil {
			send.Turns = []tokenize.Turn{}
		}
	}
	g.reply.Sends = append(g.reply.Sends, send)
	if g.backend.cfg.Versions != nil {
		g.spans = append(g.spans, g.span)
	}
	g.rollout.Sends = append(g.rollout.Sends, record.Send{Request: x.request, Response: x.answer, RunID: x.runID, Duration: x.took, Began: x.began, Ended: x.ended})
}
