package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// server checks one server and reports whether the server answers. If a check fails that later
// checks depend on, the later checks are skipped.
func (d *Doctor) server(ctx context.Context, client *letta.Client) (answers bool) {
	version, err := client.Version(ctx)
	if err != nil {
		d.failed("server", preflight.Unusable(client.BaseURL(), err))
		return false
	}
	if strings.HasPrefix(version, "0.16.") {
		d.ok("server", "%s answers, version %s", client.BaseURL(), version)
	} else {
		d.report(Hint, "server", fmt.Sprintf("%s answers, version %s", client.BaseURL(), version), nil,
			"rollout is tested with Letta 0.16; with other versions, rows can get lower grades")
	}
	found, err := client.FindModel(ctx, d.Config.Agent.Model)
	if err != nil {
		d.failed("models", preflight.Unusable(client.BaseURL(), err))
		return false
	}
	d.ok("auth", "the server accepts the credentials and lists %d models", found.Count)

	cfg, err := connect.AgentConfig(d.Config)
	var backend *agent.Backend
	if cfg.Prompter = d; err == nil {
		backend, err = connect.Backend(client, cfg)
	}
	if err != nil {
		d.failed("agent", err)
		return true
	}
	// Preflight checks that the server lists the model, and that an agent with this model returns
	// token data.
	if _, err := backend.Preflight(ctx); err != nil {
		d.failed("model", preflight.Unusable(client.BaseURL(), err))
		return true
	}
	d.ok("model", "%s; its agents return token data", cmp.Or(d.Config.Agent.Model, "the model of the agent file"))
	defer d.bypassing(ctx, client)
	used, all := d.call(ctx, client, backend, d.task)
	if all && !used && d.Prompt == "" && d.TaskID == "" && d.task.ID != "doctor" {
		// The rollout of the first task did not show how tools are rendered. Collect another
		// rollout, in which the agent calls a tool.
		used, _ = d.call(ctx, client, backend, &collector.Task{ID: "doctor", Messages: []string{doctorText}, Agent: d.task.Agent})
	}
	if all && !used {
		d.report(Hint, "tools", "the agent called no tool, so the rendering of tool calls and results was not checked", nil,
			"use --prompt with text that makes the agent call a tool")
	}
	return true
}

// Messages to the agent if there is no task. The first message is for agents without tools. It
// contains text that tokenizers split in different ways.
const (
	doctorText = `Reply with the word ok. Do not mind the rest: 3.14159, 2026-01-05T10:00:00Z, naïve café, 日本語, Привет, {"a": [1, 2.5, null]}, if (x >= 10) { return y; }`
	doctorTool = "Call the tool %s once, with any valid arguments. Then reply with the word ok."
)

// call runs one agent and checks its reply. The result used is true if the agent called a tool. The
// result all is true if the agent has tools and ran without an error.
func (d *Doctor) call(ctx context.Context, client *letta.Client, backend *agent.Backend, task *collector.Task) (used, all bool) {
	ctx, cancel := context.WithTimeout(ctx, d.Config.Run.AttemptTimeout)
	defer cancel()
	agent, err := backend.Open(ctx, collector.Attempt{Task: task, Key: "doctor", GroupSize: 1, N: 1, RunID: runfolder.NewID(time.Now())})
	if err != nil {
		d.failed("agent", preflight.Unusable(client.BaseURL(), err))
		return false, false
	}
	var tools []string
	if a, ok := agent.(interface{ Tools() []string }); ok {
		tools = a.Tools()
	}
	if a, ok := agent.(interface{ ModelEndpoint() string }); ok {
		d.endpoint = a.ModelEndpoint()
	}
	if len(tools) > 0 && task.Messages[0] == doctorText {
		task.Messages[0] = fmt.Sprintf(doctorTool, tools[0]) // only the doctor's own task refers to a tool
		defer func() { task.Messages[0] = doctorText }()
	}
	began := time.Now()
	reply, err := agent.Run(ctx)
	if err != nil {
		d.failed("call", preflight.Unusable(client.BaseURL(), err))
	} else {
		d.answered(ctx, agent, reply, time.Since(began))
		all = len(tools) > 0
		for i := range reply.Sends {
			used = used || slices.ContainsFunc(reply.Sends[i].Turns, func(t tokenize.Turn) bool { return t.Role == tokenize.RoleTool })
		}
	}
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	if err := agent.Close(closing); err != nil {
		d.failed("cleanup", preflight.Unusable(client.BaseURL(), err))
	} else if !d.Config.Agent.Keep {
		d.ok("cleanup", "the agent was deleted")
	}
	return used, all
}

// Prompts examines the prompts in a reply.
func (d *Doctor) Prompts(ctx context.Context, reply *collector.Reply, e *record.Rollout) (_ []tokenize.Call, err error) {
	if err := d.findTapped(ctx, reply, e); err != nil || d.model == nil {
		return nil, err
	}
	if d.calls, err = prompt.Examine(ctx, d.model, reply, e); err != nil {
		return nil, err
	}
	d.compareTapped()
	d.releases, err = prompt.ExamineReleases(ctx, d.model, reply, e)
	return nil, err
}

// Prefetch does nothing, because the doctor makes only one send at a time.
func (d *Doctor) Prefetch(context.Context, *record.Rollout, record.Send, []tokenize.Turn) {}

func (d *Doctor) answered(ctx context.Context, agent collector.Agent, reply *collector.Reply, took time.Duration) {
	var turns []tokenize.Turn
	stop := "-"
	for i := range reply.Sends {
		turns, stop = append(turns, reply.Sends[i].Turns...), reply.Sends[i].StopReason
	}
	calls, err := tokenize.CallsFromTurns(nil, turns)
	if err != nil {
		d.failed("call", fmt.Errorf("stop reason %s: %w", stop, err))
		return
	}
	sampled := 0
	for i := range calls {
		sampled += len(calls[i].OutputIDs)
	}
	d.ok("call", "%d calls with %d sampled tokens in %s, stop reason %s", len(calls), sampled, format.Duration(took), stop)
	if d.tap != nil || d.model != nil {
		if _, err := agent.Prompts(ctx, reply); err != nil {
			d.failed("prompts", err)
			return
		}
	}
	if d.tapSaw() && d.model == nil {
		return
	}
	if d.model == nil {
		for i := range calls {
			if calls[i].Grade != tokenize.Exact {
				d.report(Bad, "prompts", "the server does not send the prompts", nil, "use --tokenizer to rebuild the prompts")
				return
			}
		}
		d.ok("prompts", "the server sends the prompts, so rows will be exact")
		return
	}
	examined := d.calls
	for i := range examined {
		d.examined(i, &examined[i])
	}
	d.transformers()
	d.clock()
	if i := slices.IndexFunc(examined, func(x prompt.Examined) bool { return model.Doubted(&x) }); i >= 0 {
		state := Bad
		if d.Config.Tokens.Require == config.RequireAny {
			state = Hint
		}
		hint := ""
		if examined[i].Reason == tokenize.ReasonToolOrder {
			hint = prompt.ToolOrderHint
		}
		d.report(state, "proof", examined[i].Gap, nil, hint)
	}
	if by := model.SameDifference(examined); by != 0 {
		d.report(Hint, "prompts", fmt.Sprintf("the length of every prompt rebuilt from the stored messages differs from the server's count by %+d tokens", by), nil,
			"check the parts that all prompts share: the preamble, the tools, and the start of the model's turn")
	}
}

func (d *Doctor) examined(i int, x *prompt.Examined) {
	name := fmt.Sprintf("prompt %d", i)
	truth, from := fmt.Sprintf("the server counted %d tokens", x.Counted), "the turns"
	switch {
	case x.Source == tokenize.SourceTap:
		truth, from = fmt.Sprintf("the tap saw %d ids", len(x.PromptIDs)), "the tap"
	case len(x.PromptIDs) > 0:
		truth = fmt.Sprintf("the server sent %d ids", len(x.PromptIDs))
	}
	text := fmt.Sprintf("%s; the stored messages yield %s and the trace yields %s", truth, rebuiltText(x.Stored), rebuiltText(x.Trace))
	v := model.Diagnose(x, d.model.Tokenizer)
	if _, other := d.releases.Other(d.model.Transformers); other && v.Culprit != "" {
		v = model.Diagnosis{Culprit: "release of transformers"} // the check named transformers reports the details
	}
	switch byTrace := x.Trace.Err == nil && int64(len(x.Trace.IDs)) == x.Counted; {
	case v.Culprit == "" && len(x.PromptIDs) > 0:
		d.ok(name, "%s; all ids match", text)
	case v.Culprit == "":
		d.ok(name, "%s", text)
	case len(x.PromptIDs) > 0:
		// The server's ids are correct, but the rebuilt prompt has other ids.
		d.report(Hint, name, text+": the "+v.Culprit+" differs", v.Detail, "this does not affect the rows, because their prompts come from "+from+" and are exact")
	case byTrace:
		d.report(Hint, name, text+": the "+v.Culprit+" differs", v.Detail, "")
	default:
		d.report(Bad, name, text+": the "+v.Culprit+" differs", v.Detail, "")
	}
}

// transformers reports which versions of the transformers library reproduce the server's prompts.
func (d *Doctor) transformers() {
	const name = "transformers"
	now := d.model.Transformers
	var fit, unfit []string
	for _, release := range chat.AllTransformers() {
		if slices.Contains(d.releases.Fit, release) {
			fit = append(fit, release.String())
		} else {
			unfit = append(unfit, release.String())
		}
	}
	other, wrong := d.releases.Other(now)
	switch {
	case wrong:
		state := Bad
		if !slices.ContainsFunc(d.calls, func(x prompt.Examined) bool { return len(x.PromptIDs) == 0 }) {
			state = Hint // a hint is enough, because prompts come from the turns
		}
		d.report(state, name, fmt.Sprintf("the server renders prompts like transformers %s, but tokens.transformers is %s", strings.Join(fit, ", "), now), nil,
			"use --transformers "+other.String())
	case len(fit) == 0: // the version does not explain the difference
	case !d.releases.Apart:
		d.ok(name, "all releases render these prompts identically, so tokens.transformers does not matter here")
	default:
		d.ok(name, "the server renders prompts like transformers %s, not like %s", strings.Join(fit, ", "), strings.Join(unfit, ", "))
	}
}

func rebuiltText(r prompt.Rebuilt) string {
	switch {
	case errors.Is(r.Err, prompt.ErrNotRebuilt):
		return "no prompt"
	case r.Err != nil:
		return "an error"
	}
	return fmt.Sprintf("%d tokens", len(r.IDs))
}
