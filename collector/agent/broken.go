package agent

import (
	"context"
	"strings"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// brokenRun returns an error if the server run ended because something outside the rollout failed,
// such as the server's connection to its database. The answer then has status 200 and the stop
// reason "error" (letta_agent_v3.py:1546-1554), as if a tool or the model had failed. If the lookup
// fails or finds no known exception name, brokenRun returns nil. The stop reason then classifies
// the failure.
func (g *agent) brokenRun(ctx context.Context, answer *letta.LettaResponse, runID string) error {
	if answer.StopReason != letta.StopError || runID == "" {
		return nil
	}
	steps, err := g.rollout.Run(runID).Steps(ctx)
	if err != nil {
		return nil //nolint:nilerr // the answer is valid; only its reason is unknown
	}
	found := &ServerRunError{RunID: runID}
	var class error
	for i := range steps {
		s := &steps[i]
		if class = infraError(s.ErrorType); class == nil {
			continue
		}
		found.StepID, found.Type = s.ID, g.client.Redact(s.ErrorType)
		if s.ErrorData != nil {
			found.Message = g.client.Redact(s.ErrorData.Message)
		}
		break
	}
	if class == nil {
		run, err := g.client.Run(ctx, runID)
		if err != nil {
			return nil //nolint:nilerr // the answer is valid; only its reason is unknown
		}
		for _, name := range failureNames(run) {
			if class = infraError(name); class != nil {
				found.Type = g.client.Redact(name)
				break
			}
		}
	}
	if class == nil {
		return nil
	}
	found.Err = class
	return found
}

// failureNames returns the strings in a failed run that can be the name of an exception. These are
// the error itself and its members type, message and detail.
func failureNames(run *letta.Run) []string {
	failure := run.Failure()
	names := []string{failure}
	for _, member := range []string{"type", "message", "detail"} {
		var text string
		if raw := letta.RawJSON(failure).Member(member); !raw.IsNull() && raw.Decode(&text) == nil {
			names = append(names, text)
		}
	}
	return names
}

// infraError returns the sentinel for an exception in the server's infrastructure, from asyncpg,
// SQLAlchemy, httpx or Python itself. It accepts only the name of an exception, such as
// TimeoutError, asyncio.TimeoutError or TimeoutError(), because longer text can come from a tool.
// For all other text, it returns nil.
func infraError(name string) error {
	name = strings.TrimSuffix(strings.TrimSpace(name), "()")
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[i+1:]
	}
	switch name {
	case "TimeoutError", "QueryCanceledError", "PoolTimeout", "ConnectTimeout", "ReadTimeout", "WriteTimeout":
		return collector.ErrTimeout
	case "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "ConnectionDoesNotExistError", "ConnectionFailureError",
		"TooManyConnectionsError", "CannotConnectNowError", "OperationalError", "InterfaceError", "ConnectError", "ReadError", "WriteError", "RemoteProtocolError":
		return collector.ErrUnavailable
	}
	return nil
}
