package agent

import (
	"context"
	"strings"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// brokenRun returns an error if the server ended the run of an answer because something outside of
// the rollout failed, such as the connection to its database. Such an answer has the status 200 and
// the stop reason error (letta_agent_v3.py:1546-1554), like an answer whose tool or model failed.
// If the lookup fails, or returns no known name, brokenRun returns nil, and the stop reason
// classifies the failure.
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
			return nil //nolint:nilerr // as above
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

// failureNames returns the parts of a failed run that can be the name of an exception: its
// error, or the members of its error.
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

// infraError returns the sentinel for the name of an exception that the infrastructure of the
// server raised, from asyncpg, SQLAlchemy or Python itself. It accepts only a name, such as
// TimeoutError, asyncio.TimeoutError or TimeoutError(). A longer text can come from a tool.
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
