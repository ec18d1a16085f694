package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// explain finds the reason for a failed send if the status does not show it. A dead engine, a full
// database and an overlong context all result in a 500. The server run (metadata.error) and its
// last step (error_data) contain the reason.
func (g *agent) explain(ctx context.Context, err error) error {
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	if e.Status == http.StatusBadRequest && isMalformedCall(e.Detail) {
		// The model wrote a tool call in valid JSON whose arguments are null or a list. The server
		// raises ValueError, and the rollout is lost (app.py:564).
		e.Err = &classed{collector.ErrMalformedCall, letta.ErrRejected}
	}
	if e.Status != http.StatusInternalServerError && e.Status != http.StatusBadRequest || ctx.Err() != nil {
		return err
	}
	// Make only one short lookup, so that an overloaded server does not delay the attempt further.
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	run, lookErr := g.client.LastRun(ctx, g.state.ID)
	if lookErr != nil || run == nil || g.isAnswered(run.ID) {
		return err
	}
	return g.runError(ctx, run, e)
}

// runError returns the error for a failed send, with the reason from the server run and its last
// step.
func (g *agent) runError(ctx context.Context, run *letta.Run, e *letta.APIError) error {
	found := &ServerRunError{RunID: run.ID, Message: run.Failure()}
	steps, lookErr := g.rollout.Run(run.ID).Steps(ctx)
	var last *letta.Step
	if lookErr == nil && len(steps) > 0 {
		last = &steps[len(steps)-1]
		found.StepID, found.Type = last.ID, last.ErrorType
		if last.ErrorData != nil && last.ErrorData.Message != "" {
			found.Message = last.ErrorData.Message
		}
		if found.Type == "" && last.StopReason == letta.StopInvalidLLMResponse {
			found.Type = string(last.StopReason)
		}
	}
	if found.Message == "" && found.Type == "" {
		return e
	}
	text := found.Message
	found.Engine = engineOf(g.client, found.Type, text, last)
	found.Type = g.client.Redact(found.Type)
	found.Message = g.client.Redact(text)
	class := classifyRun(found.Type, text)
	if engineStatus(text) == http.StatusBadRequest && g.exceedsWindow(steps) {
		class = collector.ErrContextOverflow
	}
	if class == nil {
		if e.Status == http.StatusBadRequest {
			return e // an ordinary rejection, whose error already contains the reason
		}
		class = collector.ErrServer
	}
	found.Err = &classed{class, lookedUpError{e}}
	return found
}

// A lookedUpError hides the sentinel of the error that it wraps, because the server run determines
// the class of the failure.
type lookedUpError struct{ e *letta.APIError }

func (w lookedUpError) Error() string { return w.e.Error() }

func (w lookedUpError) As(target any) bool {
	if t, ok := target.(**letta.APIError); ok {
		*t = w.e
		return true
	}
	return false
}

// classifyRun returns the sentinel for the error text of a failed server run, or nil if the text is
// unknown. The text comes from httpx or pydantic, because letta-ai/letta 0.16.7 does not translate
// errors on the native path.
func classifyRun(kind, text string) error {
	if isMalformedCall(text) {
		return collector.ErrMalformedCall
	}
	lower := strings.ToLower(text)
	if status := engineStatus(text); status != 0 {
		switch {
		case status == http.StatusTooManyRequests:
			return collector.ErrBusy
		case status >= 500:
			return collector.ErrUnavailable
		case isOverflow(lower):
			return collector.ErrContextOverflow
		case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
			return collector.ErrRejected // the server does not store the engine's reason
		}
		return collector.ErrServer
	}
	if isOverflow(lower) {
		return collector.ErrContextOverflow
	}
	switch {
	case strings.HasSuffix(kind, "Timeout"), strings.Contains(kind, "TimeoutError"):
		return collector.ErrTimeout
	case isEngineUnreachable(kind, text), strings.Contains(lower, "connection refused"), strings.Contains(lower, "too many clients"):
		return collector.ErrUnavailable
	case kind == string(letta.StopInvalidLLMResponse), strings.HasPrefix(kind, "JSONDecode"), strings.HasPrefix(lower, "expecting value"):
		return collector.ErrServer
	}
	return nil
}

func isOverflow(lower string) bool {
	for _, word := range []string{"context length", "context window", "context_length", "maximum context", "longer than the model"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}

// isEngineUnreachable reports whether an error's class and text show that the server's httpx
// connection to its engine failed.
func isEngineUnreachable(kind, text string) bool {
	for _, prefix := range []string{"Connect", "Read", "Write", "RemoteProtocol", "Pool", "Network"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return strings.Contains(text, "ll connection attempts failed") || strings.Contains(text, "erver disconnected")
}

// engineOf returns the address of the failed engine, or "" if the engine did not fail. last is the
// failed step, or nil.
func engineOf(client *letta.Client, kind, text string, last *letta.Step) string {
	if engineStatus(text) == 0 && !isEngineUnreachable(kind, text) {
		return ""
	}
	address := ""
	if _, rest, ok := strings.Cut(text, " for url '"); ok {
		address, _, _ = strings.Cut(rest, "'")
	} else if last != nil {
		address = last.ModelEndpoint
	}
	if address == "" {
		return "address unknown"
	}
	return client.RedactAddress(address)
}

// exceedsWindow adds the token limit of a call to the length of the conversation before the last
// step. It reports whether the sum exceeds the context window. SGLang refuses such a call with 400,
// and the server does not store the reason.
func (g *agent) exceedsWindow(steps []letta.Step) bool {
	if len(steps) == 0 {
		return false
	}
	last := &steps[len(steps)-1]
	window, grown := g.state.LLMConfig.ContextWindow, int64(0)
	if last.ContextWindowLimit != nil {
		window = *last.ContextWindowLimit
	}
	if n := len(g.rollout.Sends); n > 0 {
		if tokens := g.rollout.Sends[n-1].Response.Usage.ContextTokens; tokens != nil {
			grown = *tokens
		}
	}
	for i := range steps[:len(steps)-1] {
		if tokens := steps[i].TotalTokens; tokens != nil && *tokens > 0 {
			grown = *tokens
		}
	}
	most := int64(0)
	if strings.HasPrefix(g.version, "0.16.") {
		most = 4096 // the token limit, which no setting changes (sglang_native_adapter.py:303)
	}
	return window > 0 && grown > 0 && grown+most >= window
}

// isMalformedCall reports whether the text is a pydantic error about a tool call from the model:
//
//	1 validation error for FunctionCall
//	arguments
//	  Input should be a valid string […]
func isMalformedCall(text string) bool {
	return strings.Contains(text, "validation error") && strings.Contains(text, "for FunctionCall")
}

// engineStatus returns the engine's HTTP status from the text of an httpx error, or 0:
//
//	Server error '500 X' for url 'http://127.0.0.1:30000/generate'
func engineStatus(text string) int {
	for _, before := range []string{"Server error '", "Client error '"} {
		if _, rest, ok := strings.Cut(text, before); ok {
			var status int
			if _, err := fmt.Sscanf(rest, "%d", &status); err == nil && status >= 400 && status < 600 {
				return status
			}
		}
	}
	return 0
}
