package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/letta"
)

const stepsLong = `Query the steps recorded by a Letta server. A step is one model call. Choose the server
with --server, ROLLOUT_SERVER_URLS or -c. --json prints the server's answer, one object
per line.`

const stepsExits = "Exit status: 0 done, 2 usage error, 5 the server did not answer or refused the request."

func (p *program) stepsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "steps",
		Short:       "query the steps of a server",
		Long:        stepsLong,
		Annotations: exits(stepsExits),
		Args:        cobra.ArbitraryArgs,
		RunE:        needVerb,
	}
	cmd.AddCommand(
		p.stepsListCmd(),
		p.stepsFeedbackCmd(),
		stepCmd(p, "get", "show one step", (*letta.Client).Step, (*stepsOutput).step),
		stepCmd(p, "metrics", "show the durations of a step", (*letta.Client).StepMetrics, (*stepsOutput).metrics),
		stepCmd(p, "trace", "show the request to the model's provider and the response", stepTrace, (*stepsOutput).trace),
		stepCmd(p, "messages", "show the messages of a step", (*letta.Client).StepMessages, (*stepsOutput).messages),
	)
	return cmd
}

func stepTrace(c *letta.Client, ctx context.Context, id string) (*letta.ProviderTrace, error) { //nolint:revive // like a method expression
	t, err := c.PollStepTrace(ctx, id)
	if err == nil && t == nil {
		err = exit.Hint(exit.With(exit.Unusable, fmt.Errorf("step %s has no trace", id)), "the server stores a trace shortly after the call; a failed call has no trace")
	}
	return t, err
}

// A stepsOutput prints an answer from the server. With --json, it prints the answer unchanged.
// Otherwise it prints a table.
type stepsOutput struct {
	p      *program
	asJSON bool
}

// print prints the rows as a table or, with --json, the objects. Rows can have different numbers of
// cells.
func (o *stepsOutput) print(objects []letta.RawJSON, rows ...[]string) error {
	if o.asJSON {
		for _, object := range objects {
			if err := o.p.printJSON(json.RawMessage(object)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(o.p.stdout, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		for i, cell := range cells {
			if i > 0 {
				termsafe.Fprintf(w, "\t")
			}
			termsafe.Fprintf(w, "%s", cmp.Or(cell, "-"))
		}
		termsafe.Fprintf(w, "\n")
	}
	return w.Flush()
}

// withClient runs f with a client for the configured server. Exactly one server must be configured.
func (p *program) withClient(cmd *cobra.Command, load func(...func(*config.Loader) error) (*config.Loader, error), f func(context.Context, *letta.Client) error) error {
	l, err := load()
	if err != nil {
		return err
	}
	switch n := len(l.Config.Server.URLs); n {
	case 0:
		return exit.Hint(exit.Usagef("no server is configured"), "pass one with --server URL")
	case 1:
	default:
		return exit.Hint(exit.Usagef("%d servers are configured, but steps needs exactly one", n), "choose one with --server URL")
	}
	clients, err := connect.Clients(l.Config, func(text string) { p.say("%s", text) }, nil)
	if err != nil {
		return err
	}
	client := clients[0]
	defer client.CloseIdle()
	if err := f(cmd.Context(), client); err != nil {
		return preflight.Unusable(client.BaseURL(), err)
	}
	return nil
}

// stepCmd returns a verb for one step. The verb calls get to fetch data about the step, and show to
// print the data.
func stepCmd[T any](p *program, name, short string, get func(*letta.Client, context.Context, string) (T, error), show func(*stepsOutput, T) error) *cobra.Command {
	o := &stepsOutput{p: p}
	cmd := &cobra.Command{
		Use: name + " STEP", Short: short, Long: sentence(short) + "\n\n" + stepsLong, Args: exactArgs("STEP"), Annotations: exits(stepsExits),
		Example: "  rollout steps " + name + " step-… --server http://127.0.0.1:8283",
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the server's answer")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.withClient(cmd, load, func(ctx context.Context, c *letta.Client) error {
			v, err := get(c, ctx, args[0])
			if err != nil {
				return err
			}
			return show(o, v)
		})
	}
	return cmd
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

func (p *program) stepsListCmd() *cobra.Command {
	o := &stepsOutput{p: p}
	var q letta.StepsQuery
	cmd := &cobra.Command{
		Use: "list", Short: "list steps", Long: "List steps.\n\n" + stepsLong, Args: exactArgs(), Annotations: exits(stepsExits),
		Example: "  rollout steps list --agent agent-… --server http://127.0.0.1:8283",
	}
	f := cmd.Flags()
	f.StringVar(&q.AgentID, "agent", "", "list only steps of the agent with this `ID`")
	f.StringVar(&q.RunID, "server-run", "", "list only steps of the server run with this `ID`")
	f.StringVar(&q.Model, "of-model", "", "list only steps of the model with this `NAME` or handle")
	f.StringVar(&q.Feedback, "feedback", "", "list only steps with this `FEEDBACK`: positive or negative")
	f.StringVar(&q.After, "after", "", "list only steps after the step with this `ID`")
	f.StringVar(&q.Before, "before", "", "list only steps before the step with this `ID`")
	f.BoolVar(&q.Descending, "newest", false, "list the newest steps first")
	f.IntVar(&q.Limit, "limit", 50, "list at most `N` steps")
	f.BoolVar(&o.asJSON, "json", false, "print the server's answer")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.Feedback != "" && q.Feedback != "positive" && q.Feedback != "negative" {
			return exit.Usagef("--feedback: %q is neither positive nor negative", q.Feedback)
		}
		for _, name := range []string{"agent", "server-run", "of-model", "feedback", "after", "before"} {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
				return exit.Usagef("--%s is empty; omit the flag to match all", name)
			}
		}
		return p.withClient(cmd, load, func(ctx context.Context, c *letta.Client) error {
			steps, err := c.Steps(ctx, q)
			if errors.Is(err, letta.ErrStepsListBroken) {
				return exit.Hint(exit.With(exit.Unusable, err), "pass --agent or --server-run")
			}
			if err != nil {
				return err
			}
			return o.steps(steps)
		})
	}
	return cmd
}

func (p *program) stepsFeedbackCmd() *cobra.Command {
	o := &stepsOutput{p: p}
	var tags []string
	cmd := &cobra.Command{
		Use: "feedback STEP positive|negative|none", Short: "rate a step",
		Long: "Rate a step. The rating \"none\" removes an earlier rating.\n\n" + stepsLong, Args: exactArgs("STEP", "FEEDBACK"), Annotations: exits(stepsExits),
		Example: "  rollout steps feedback step-… positive --server http://127.0.0.1:8283",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"positive", "negative", "none"}, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the server's answer")
	cmd.Flags().StringSliceVar(&tags, "tag", nil, "a `TAG` to add; repeatable")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f := letta.Feedback{Tags: tags}
		switch args[1] {
		case "positive", "negative":
			f.Feedback = &args[1]
		case "none":
		default:
			return exit.Usagef("feedback %q is not one of positive, negative, none", args[1])
		}
		return p.withClient(cmd, load, func(ctx context.Context, c *letta.Client) error {
			s, err := c.SetFeedback(ctx, args[0], f)
			if err != nil {
				return err
			}
			return o.step(s)
		})
	}
	return cmd
}

func (o *stepsOutput) step(s *letta.Step) error { return o.steps([]letta.Step{*s}) }

func (o *stepsOutput) steps(steps []letta.Step) error {
	var objects []letta.RawJSON
	rows := [][]string{{"step", "status", "stop", "prompt", "completion", "model", "feedback", "server run", "error"}}
	for i := range steps {
		s := &steps[i]
		failure := s.ErrorType
		if s.ErrorData != nil && s.ErrorData.Message != "" {
			failure = s.ErrorData.Message
		}
		objects = append(objects, s.JSON)
		rows = append(rows, []string{
			s.ID, s.Status, string(s.StopReason), shown(s.PromptTokens), shown(s.CompletionTokens), s.ModelHandle, s.Feedback, s.RunID, termsafe.Text(failure, 60),
		})
	}
	return o.print(objects, rows...)
}

func (o *stepsOutput) metrics(m *letta.StepMetrics) error {
	took := func(nanos *int64) string {
		if nanos == nil {
			return ""
		}
		return time.Duration(*nanos).Round(time.Microsecond).String()
	}
	return o.print([]letta.RawJSON{m.JSON}, []string{"step", "total", "model", "tools", "server run", "agent"},
		[]string{m.ID, took(m.StepNanos), took(m.LLMRequestNanos), took(m.ToolExecutionNanos), m.RunID, m.AgentID})
}

func (o *stepsOutput) trace(t *letta.ProviderTrace) error {
	body := func(name string, b letta.RawJSON) []string {
		return []string{name, fmt.Sprintf("%d bytes", len(b)), termsafe.Text(string(b), 160)}
	}
	return o.print([]letta.RawJSON{t.JSON}, []string{"step", t.StepID}, []string{"kind", t.CallType}, []string{"agent", t.AgentID},
		[]string{"server run", t.RunID}, body("request", t.Request.JSON), body("answer", t.Response.JSON))
}

func (o *stepsOutput) messages(messages letta.Messages) error {
	var objects []letta.RawJSON
	rows := [][]string{{"message", "kind", "text"}}
	for i := range messages {
		m := &messages[i]
		objects = append(objects, m.JSON)
		rows = append(rows, []string{m.ID, string(m.Type), termsafe.Text(messageText(m), 100)})
	}
	return o.print(objects, rows...)
}

func messageText(m *letta.Message) string {
	var parts []string
	switch m.Type {
	case letta.TypeSystem, letta.TypeUser, letta.TypeAssistant:
		return m.Content.String()
	case letta.TypeReasoning:
		return m.Reasoning
	case letta.TypeToolCall:
		for _, c := range m.ToolCalls {
			parts = append(parts, cmp.Or(c.Name, "-")+"("+cmp.Or(c.Arguments, "-")+")")
		}
	case letta.TypeToolReturn:
		for _, r := range m.ToolReturns {
			parts = append(parts, r.Content.String())
		}
	default: // a message of this type has no text
	}
	return strings.Join(parts, " ")
}

func shown[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}
