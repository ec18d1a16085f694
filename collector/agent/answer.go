package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// answer builds the message that answers all pending calls at once, as the server requires
// (agents/helpers.py:121-145). The message contains the results of client tools and the decisions
// about the other calls. If a decision is needed and the policy is ApprovalStop, answer returns
// nil.
func (g *agent) answer(ctx context.Context, pending []letta.ToolCall) (*input, error) {
	if len(pending) == 0 {
		return nil, nil
	}
	var returns []letta.ToolResult
	var decisions []letta.Answer
	ours := false
	for _, call := range pending {
		tool := g.clientTool(call.Name)
		switch {
		case tool != nil:
			r, err := g.runTool(ctx, tool, &call)
			if err != nil {
				return nil, err
			}
			returns = append(returns, r)
			ours = true
		case g.cfg.Approvals == ApprovalStop:
			return nil, nil
		default:
			d := &letta.ApprovalReturn{Type: "approval", ToolCallID: call.ToolCallID, Approve: g.cfg.Approvals == ApprovalApprove}
			if !d.Approve {
				d.Reason = new("denied")
				ours = true
			}
			decisions = append(decisions, d)
		}
	}
	if len(decisions) == 0 {
		return &input{letta.InputMessages{&letta.ToolReturnCreate{Type: "tool_return", ToolReturns: returns}}, ours}, nil
	}
	for i := range returns {
		decisions = append(decisions, &returns[i])
	}
	return &input{letta.InputMessages{&letta.ApprovalCreate{Type: "approval", Approvals: decisions}}, ours}, nil
}

func (g *agent) clientTool(name string) *ClientToolConfig {
	for i := range g.cfg.ClientTools {
		if g.cfg.ClientTools[i].Tool.Name == name {
			return &g.cfg.ClientTools[i]
		}
	}
	return nil
}

func (g *agent) runTool(ctx context.Context, tool *ClientToolConfig, call *letta.ToolCall) (letta.ToolResult, error) {
	r := letta.ToolResult{Type: "tool", Status: "success", ToolCallID: call.ToolCallID}
	switch {
	case len(tool.Command) > 0:
		text, ok, err := g.command(ctx, tool, call)
		if err != nil {
			return r, err
		}
		r.ToolReturn = letta.TextOf(text)
		if !ok {
			r.Status = "error"
		}
	case tool.Answer != nil:
		r.ToolReturn = letta.TextOf(*tool.Answer)
	default:
		r.ToolReturn = letta.TextOf(call.Arguments)
	}
	return r, nil
}

// maxToolOutputBytes limits the output of a tool. The server truncates the output to about 20% of
// the context window.
const maxToolOutputBytes = 1 << 20

// command runs the program of a tool and returns its standard output. If the exit status is not 0,
// command returns false and the standard error. If the standard error is empty, it returns the
// standard output instead.
func (g *agent) command(ctx context.Context, tool *ClientToolConfig, call *letta.ToolCall) (text string, ok bool, err error) {
	in, err := letta.Marshal(map[string]any{
		"name": tool.Tool.Name, "arguments": arguments(call), "tool_call_id": call.ToolCallID,
		"task_id": g.attempt.Task.ID, "sample_index": g.attempt.Index,
	})
	if err != nil {
		return "", false, fmt.Errorf("client tool %s: %w", tool.Tool.Name, err)
	}
	limit := cmp.Or(tool.Timeout, time.Minute)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(timed, tool.Command[0], tool.Command[1:]...)
	cmd.WaitDelay = time.Second // a child of the program can keep the pipes open
	cmd.Env = g.client.Environ(os.Environ())
	cmd.Stdin = bytes.NewReader(append(in, '\n'))
	stdout, stderr := &boundedBuffer{}, &boundedBuffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()

	fail := func(why error) error {
		return fmt.Errorf("client tool %s: %w", tool.Tool.Name, &classed{collector.ErrTool, why})
	}
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return "", false, context.Cause(ctx)
	case timed.Err() != nil:
		return "", false, fail(fmt.Errorf("timed out after %v", limit))
	case stdout.over:
		return "", false, fail(fmt.Errorf("the output is longer than %d bytes", maxToolOutputBytes))
	case err == nil:
		return strings.ToValidUTF8(string(stdout.b), "\uFFFD"), true, nil
	case !errors.As(err, &exit):
		return "", false, fail(err)
	}
	b := stderr.b
	if len(b) == 0 {
		b = stdout.b
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), false, nil
}

// arguments returns the arguments of a call. It returns JSON if they are valid JSON, and otherwise
// a string.
func arguments(call *letta.ToolCall) any {
	text := call.Arguments
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// A boundedBuffer keeps the first maxToolOutputBytes bytes and records whether more bytes were
// written.
type boundedBuffer struct {
	b    []byte
	over bool
}

func (w *boundedBuffer) Write(p []byte) (int, error) {
	room := maxToolOutputBytes - len(w.b)
	if len(p) > room {
		w.over = true
		w.b = append(w.b, p[:room]...)
		return len(p), nil
	}
	w.b = append(w.b, p...)
	return len(p), nil
}
