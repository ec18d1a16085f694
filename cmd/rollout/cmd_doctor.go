package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/doctor"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

func (p *program) doctorCmd() *cobra.Command {
	asJSON := false
	d := &doctor.Doctor{Say: p.say, Report: func(check doctor.Check) { p.printCheck(check, asJSON) }}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check that a run would work, with a real rollout",
		Long: `Check that a run would work: the machine, the servers, the model, and one real rollout
per server with the run's agent settings. The rollout sends the messages of the first task,
if there is one. If the agent has tools but called none, doctor asks a second agent to call
a tool, because some templates fail only on tool calls. --prompt and --task skip this step.

With a tokenizer, doctor rebuilds the prompt of every call, from the stored messages and
from the trace. It compares the prompts with the server's token count, or with ids from a
tap or the server. If they differ, it reports whether the template, the tokenizer or the
server is the cause, and prints the first difference. It also reports the value of
--transformers that matches the server. With --tap, it lists the agents that bypass the tap.

With --tune, doctor also reports what makes a Letta server slow or fragile, the setting that
fixes it, and the effect of the setting. An effect that was not measured on this server is
marked as a reference. To measure, doctor runs a no-op tool three times in the server's
sandbox, and sends up to 256 parallel requests for the number of agents. The tool also
returns some settings of the server.

doctor writes nothing and deletes its agents.`,
		Annotations: exits("Exit status: 0 all checks passed, 2 usage or configuration error, 5 a check failed, 130 interrupted."),
		Example: `  rollout doctor -c run.yaml
  rollout doctor --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tokenizer models/qwen3 --prompt 'Add 2 and 3 with the tool.'
  rollout doctor -c run.yaml --tune`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.StringVar(&d.Prompt, "prompt", "", "use `TEXT` as the user message instead of a task's messages")
	f.StringVar(&d.TaskID, "task", "", "use the task with this `ID` instead of the first task")
	f.BoolVar(&d.Tune, "tune", false, "also report what makes the servers slow or fragile, and which setting fixes it")
	f.BoolVar(&asJSON, "json", false, "print one JSON line per check")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls", "server.max_in_flight", "agent.model", "agent.file",
		"tokens.prompts", "tokens.tap", "tokens.tokenizer", "tokens.transformers", "tokens.experimental", "tasks.file", "output.dir")
	completeFlag(cmd, "model", p.models(load))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		needless := func(err error) bool {
			return !strings.HasPrefix(err.Error(), "server.") && !strings.HasPrefix(err.Error(), "agent.")
		}
		if err := slices.DeleteFunc(l.Config.CheckComplete(true), needless).Err(); err != nil {
			return err
		}
		d.Config = l.Config
		return runDoctor(cmd.Context(), d)
	}
	return cmd
}

func runDoctor(ctx context.Context, d *doctor.Doctor) error {
	// An interrupt cancels the model call. The agent for the call is still deleted.
	ctx, stop := interruptible(ctx)
	defer stop()
	bad, err := d.Run(ctx)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return exit.With(exit.Interrupted, errors.New("doctor: interrupted"))
	case bad > 0:
		return exit.With(exit.Unusable, fmt.Errorf("doctor: %s failed", format.Plural(int64(bad), "check")))
	}
	return nil
}

func (p *program) printCheck(c doctor.Check, asJSON bool) {
	if asJSON {
		line := map[string]any{"check": c.Name, "state": c.State, "text": c.Text}
		if len(c.Detail) > 0 {
			line["detail"] = c.Detail
		}
		if c.Hint != "" {
			line["hint"] = c.Hint
		}
		_ = p.printJSON(line) // if stdout is closed, a later write fails and ends the program
		return
	}
	color := map[doctor.State]string{doctor.OK: "32", doctor.Bad: "31;1", doctor.Hint: "33"}[c.State]
	paint, _ := p.painter("auto")
	termsafe.Fprintf(p.stdout, "%s %-10s %s\n", paint.Code(color, fmt.Sprintf("%-4s", c.State)), c.Name, c.Text)
	for _, line := range c.Detail {
		termsafe.Fprintf(p.stdout, "     %-10s %s\n", "", line)
	}
	if c.Hint != "" {
		termsafe.Fprintf(p.stdout, "     %-10s hint: %s\n", "", c.Hint)
	}
}
