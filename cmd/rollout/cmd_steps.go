package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

const stepsLong = `Query the steps of a Letta server; a step is one model call. The server comes from
--server, ROLLOUT_SERVER_URLS or -c. --json prints the server's answer, one object per
line.`

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
		p.stepCmd("get", "show one step", func(ctx context.Context, c *letta.Client, id string, o *stepsOutput) error {
			s, err := c.Step(ctx, id)
			if err != nil {
				return err
			}
			return o.print(stepTable([]letta.Step{*s}), s.JSON)
		}),
		p.stepCmd("metrics", "show the durations of a step", func(ctx context.Context, c *letta.Client, id string, o *stepsOutput) error {
			m, err := c.StepMetrics(ctx, id)
			if err != nil {
				return err
			}
			return o.print(metricsTable(m), m.JSON)
		}),
		p.stepCmd("trace", "show the request to the model's provider and its response", func(ctx context.Context, c *letta.Client, id string, o *stepsOutput) error {
			t, err := c.PollStepTrace(ctx, id)
			if err != nil {
				return err
			}
			if t == nil {
				return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("step %s has no trace", id)), "a trace is stored shortly after its call; failed calls have none")
			}
			return o.print(traceTable(t), t.JSON)
		}),
		p.stepCmd("messages", "show the messages of a step", func(ctx context.Context, c *letta.Client, id string, o *stepsOutput) error {
			m, err := c.StepMessages(ctx, id)
			if err != nil {
				return err
			}
			objects := make([]letta.RawJSON, len(m))
			for i := range m {
				objects[i] = m[i].JSON
			}
			return o.print(messagesTable(m), objects...)
		}),
	)
	return cmd
}

type stepsOutput struct {
	p      *program
	asJSON bool
}

func (o *stepsOutput) print(table func(io.Writer), objects ...letta.RawJSON) error {
	if o.asJSON {
		for _, object := range objects {
			if err := o.p.printJSON(json.RawMessage(object)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(o.p.stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// withClient runs f with a client of the one configured server.
func (p *program) withClient(cmd *cobra.Command, load func(...func(*config.Loader) error) (*config.Loader, error), f func(context.Context, *letta.Client) error) error {
	l, err := load()
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	switch n := len(l.Config.Server.URLs); n {
	case 0:
		return exit.Hint(exit.Usagef("no server"), "pass one with --server URL")
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

// stepCmd returns a verb that shows one step.
func (p *program) stepCmd(name, short string, f func(context.Context, *letta.Client, string, *stepsOutput) error) *cobra.Command {
	o := &stepsOutput{p: p}
	cmd := &cobra.Command{
		Use: name + " STEP", Short: short, Long: sentence(short) + "\n\n" + stepsLong, Args: exactArgs("STEP"), Annotations: exits(stepsExits),
		Example: "  rollout steps " + name + " step-… --server http://127.0.0.1:8283",
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the server's answer")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.withClient(cmd, load, func(ctx context.Context, c *letta.Client) error { return f(ctx, c, args[0], o) })
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
	f.StringVar(&q.AgentID, "agent", "", "only steps of the agent with this `ID`")
	f.StringVar(&q.RunID, "server-run", "", "only steps of the server run with this `ID`")
	f.StringVar(&q.Model, "of-model", "", "only steps of the model with this `NAME` or handle")
	f.StringVar(&q.Feedback, "feedback", "", "only steps with this `FEEDBACK`: positive or negative")
	f.StringVar(&q.After, "after", "", "only steps after the step with this `ID`")
	f.StringVar(&q.Before, "before", "", "only steps before the step with this `ID`")
	f.BoolVar(&q.Descending, "newest", false, "newest first")
	f.IntVar(&q.Limit, "limit", 50, "at most `N` steps")
	f.BoolVar(&o.asJSON, "json", false, "print the server's answer")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.Feedback != "" && q.Feedback != "positive" && q.Feedback != "negative" {
			return exit.Usagef("--feedback: %q is neither positive nor negative", q.Feedback)
		}
		for _, name := range []string{"agent", "server-run", "of-model", "feedback", "after", "before"} {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
				return exit.Usagef("--%s: is empty; omit the flag to match all", name)
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
			objects := make([]letta.RawJSON, len(steps))
			for i := range steps {
				objects[i] = steps[i].JSON
			}
			return o.print(stepTable(steps), objects...)
		})
	}
	return cmd
}

func (p *program) stepsFeedbackCmd() *cobra.Command {
	o := &stepsOutput{p: p}
	var tags []string
	cmd := &cobra.Command{
		Use: "feedback STEP positive|negative|none", Short: "rate a step",
		Long: "Rate a step; none removes the rating.\n\n" + stepsLong, Args: exactArgs("STEP", "FEEDBACK"), Annotations: exits(stepsExits),
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
			return o.print(stepTable([]letta.Step{*s}), s.JSON)
		})
	}
	return cmd
}

func stepTable(steps []letta.Step) func(io.Writer) {
	return func(w io.Writer) {
		termsafe.Fprintf(w, "step\tstatus\tstop\tprompt\tcompletion\tmodel\tfeedback\tserver run\terror\n")
		for i := range steps {
			s := &steps[i]
			failure := s.ErrorType
			if s.ErrorData != nil && s.ErrorData.Message != "" {
				failure = s.ErrorData.Message
			}
			termsafe.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, cmp.Or(s.Status, "-"), cmp.Or(string(s.StopReason), "-"),
				shown(s.PromptTokens), shown(s.CompletionTokens), cmp.Or(s.ModelHandle, "-"), cmp.Or(s.Feedback, "-"), cmp.Or(s.RunID, "-"), cmp.Or(termsafe.Text(failure, 60), "-"))
		}
	}
}

func metricsTable(m *letta.StepMetrics) func(io.Writer) {
	return func(w io.Writer) {
		nanos := func(n *int64) string {
			if n == nil {
				return "-"
			}
			return time.Duration(*n).Round(time.Microsecond).String()
		}
		termsafe.Fprintf(w, "step\twhole\tmodel\ttools\tserver run\tagent\n")
		termsafe.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, nanos(m.StepNanos), nanos(m.LLMRequestNanos), nanos(m.ToolExecutionNanos), cmp.Or(m.RunID, "-"), cmp.Or(m.AgentID, "-"))
	}
}

func traceTable(t *letta.ProviderTrace) func(io.Writer) {
	return func(w io.Writer) {
		termsafe.Fprintf(w, "step\t%s\n", cmp.Or(t.StepID, "-"))
		termsafe.Fprintf(w, "kind\t%s\n", cmp.Or(t.CallType, "-"))
		termsafe.Fprintf(w, "agent\t%s\n", cmp.Or(t.AgentID, "-"))
		termsafe.Fprintf(w, "server run\t%s\n", cmp.Or(t.RunID, "-"))
		termsafe.Fprintf(w, "request\t%d bytes\t%s\n", len(t.Request.JSON), termsafe.Text(string(t.Request.JSON), 160))
		termsafe.Fprintf(w, "answer\t%d bytes\t%s\n", len(t.Response.JSON), termsafe.Text(string(t.Response.JSON), 160))
	}
}

func messagesTable(messages letta.Messages) func(io.Writer) {
	return func(w io.Writer) {
		termsafe.Fprintf(w, "message\tkind\ttext\n")
		for i := range messages {
			m := &messages[i]
			termsafe.Fprintf(w, "%s\t%s\t%s\n", m.ID, m.Type, termsafe.Text(messageText(m), 100))
		}
	}
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
	default: // has no text
	}
	return strings.Join(parts, " ")
}

func shown[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}
