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

// explain finds out why a send failed, where its status does not say it. A dead engine, a
// full database and an overlong context all look like a 500; the server run and its last
// step name the reason (metadata.error and error_data).
func (g *agent) explain(ctx context.Context, err error) error {
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	if e.Status == http.StatusBadRequest && isMalformedCall(e.Detail) {
		// The model wrote a call with null or a list as its arguments, in valid JSON:
		// the server's own ValueError, and the rollout is lost (app.py:564).
		e.Err = &classed{collector.ErrMalformedCall, letta.ErrRejected}
	}
	if e.Status != http.StatusInternalServerError && e.Status != http.StatusBadRequest || ctx.Err() != nil {
		return err
	}
	// The look-up must not cost more than the failure: a sick server gets one
	// short try.
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	run, lookErr := g.client.LastRun(ctx, g.state.ID)
	if lookErr != nil || run == nil || g.isAnswered(run.ID) {
		return err
	}
	return g.runError(ctx, run, e)
}

// runError returns the failure of a send as the failed run and its last step explain it.
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
	if engineStatus(text) == http.StatusBadRequest && g.outgrown(steps) {
		class = collector.ErrContextOverflow
	}
	if class == nil {
		if e.Status == http.StatusBadRequest {
			return e // a plain refusal, and it says why
		}
		class = collector.ErrServer
	}
	found.Err = &classed{class, lookedUpError{e}}
	return found
}

// A lookedUpError keeps an answer in the chain of errors without its sentinel: the run that
// was looked up says what the failure is.
type lookedUpError struct{ e *letta.APIError }

func (w lookedUpError) Error() string { return w.e.Error() }

func (w lookedUpError) As(target any) bool {
	if t, ok := target.(**letta.APIError); ok {
		*t = w.e
		return true
	}
	return false
}

// classifyRun returns the sentinel for the text of a failed server run; nil: the text says
// nothing that we know. The texts are those of httpx and pydantic in the server:
// letta-ai/letta 0.16.7 maps none of them on the native path.
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
		case saysOverflow(lower):
			return collector.ErrContextOverflow
		case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
			return collector.ErrRejected // its reason is in no text of the server
		}
		return collector.ErrServer
	}
	if saysOverflow(lower) {
		return collector.ErrContextOverflow
	}
	switch {
	case strings.HasSuffix(kind, "Timeout"), strings.Contains(kind, "TimeoutError"):
		return collector.ErrTimeout
	case isUnreached(kind, text), strings.Contains(lower, "connection refused"), strings.Contains(lower, "too many clients"):
		return collector.ErrUnavailable
	case kind == string(letta.StopInvalidLLMResponse), strings.HasPrefix(kind, "JSONDecode"), strings.HasPrefix(lower, "expecting value"):
		return collector.ErrServer
	}
	return nil
}

// saysOverflow reports whether a text, in lower case, is about the length of the context.
func saysOverflow(lower string) bool {
	for _, word := range []string{"context length", "context window", "context_length", "maximum context", "longer than the model"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}

// isUnreached reports whether the text is what httpx, in the server, says of an engine that
// it cannot reach or lost.
func isUnreached(kind, text string) bool {
	for _, prefix := range []string{"Connect", "Read", "Write", "RemoteProtocol", "Pool", "Network"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return strings.Contains(text, "ll connection attempts failed") || strings.Contains(text, "erver disconnected")
}

// engineOf returns the address of the engine where the engine failed, and else nothing.
// last is the step that failed, or nil.
func engineOf(client *letta.Client, kind, text string, last *letta.Step) string {
	if engineStatus(text) == 0 && !isUnreached(kind, text) {
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

// outgrown reports whether the conversation before the last step leaves less of the context
// window than the engine is asked for. SGLang refuses such a call with 400, and the server
// does not keep its reason.
func (g *agent) outgrown(steps []letta.Step) bool {
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
		most = 4096 // whatever its settings say (sglang_native_adapter.py:303)
	}
	return window > 0 && grown > 0 && grown+most >= window
}

// isMalformedCall reports whether the text is pydantic's complaint about a call of the
// model, such as
//
//	1 validation error for FunctionCall
//	arguments
//	  Input should be a valid string […]
func isMalformedCall(text string) bool {
	return strings.Contains(text, "validation error") && strings.Contains(text, "for FunctionCall")
}

// engineStatus returns the engine's status from the text of httpx,
//
//	Server error '500 X' for url 'http://127.0.0.1:30000/generate'
//
// or 0.
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
