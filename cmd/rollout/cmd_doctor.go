package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

type doctorOptions struct {
	prompt, task string
	asJSON       bool
}

func (p *program) doctorCmd() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check that a run would work, with one real call",
		Long: `Check that a run would work: the machine, the servers, the model, and one real
rollout per server with the run's own agent settings. It is that of the first task,
where there are tasks. An agent with tools that called none in it is asked to call one,
because a template may go wrong there only; --prompt and --task ask for one rollout.

With a tokenizer, the prompt of every call is rebuilt by both recipes and compared
with the server's count, or with the server's ids where it sends them. Where they
disagree, it says which of template, tokenizer or server differs, and shows the
first difference.

It writes nothing, and deletes the agents that it makes.`,
		Annotations: exits("Exit status: 0 nothing is bad, 2 wrong flags or configuration, 5 something is bad, 130 interrupted."),
		Example: `  rollout doctor -c run.yaml
  rollout doctor --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tokenizer models/qwen3 --prompt 'Add 2 and 3 with the tool.'`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.StringVar(&o.prompt, "prompt", "", "the `TEXT` of the user message, instead of a task's")
	f.StringVar(&o.task, "task", "", "the task with this `ID`, instead of the first one")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON line per check")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls", "server.max_in_flight", "agent.model", "agent.file",
		"tokens.tokenizer", "tokens.experimental", "tasks.file", "output.dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if len(l.Bad) == 0 {
			for _, bad := range l.Config.CheckComplete() {
				if text := bad.Error(); strings.HasPrefix(text, "server.") || strings.HasPrefix(text, "agent.") {
					l.Bad = append(l.Bad, bad)
				}
			}
		}
		if err := l.Err(); err != nil {
			return err
		}
		return p.doctor(cmd.Context(), l.Config, &o)
	}
	return cmd
}

// A doctor makes the checks of one call and counts what is bad.
type doctor struct {
	p      *program
	config *config.Config
	o      *doctorOptions
	model  *prompt.Model // nil: no tokenizer was given
	task   *collector.Task
	bad    int
	// calls are those of the last reply, with what is found out about their prompts.
	calls []prompt.Examined
}

// findTask chooses what the agent is told.
func (d *doctor) findTask() error {
	file := d.config.Tasks.File
	d.task = &collector.Task{ID: "doctor", Messages: []string{cmp.Or(d.o.prompt, doctorText)}}
	if d.o.prompt != "" || d.o.task == "" && (file == "" || file == "-") {
		return nil
	}
	if file == "" || file == "-" {
		return exit.Usagef("--task: the tasks must be in a file: give it with --tasks FILE")
	}
	for t, err := range tasks.Read(file, nil) {
		if err != nil {
			return err
		}
		if d.o.task == "" || d.o.task == t.ID {
			d.task = &t
			return nil
		}
	}
	return exit.Usagef("--task: %s has no task %q", file, d.o.task)
}

func (p *program) doctor(ctx context.Context, c *config.Config, o *doctorOptions) error {
	// An interrupt ends the call; its agent is deleted all the same.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &doctor{p: p, config: c, o: o}
	d.disk()
	d.files()
	d.loadModel()
	if err := d.findTask(); err != nil {
		return err
	}
	clients, err := connect(c, func(text string) { p.say("%s", text) })
	if err != nil {
		return err
	}
	for _, client := range clients {
		d.server(ctx, client)
		client.CloseIdle()
	}
	if err := ctx.Err(); err != nil {
		return exit.With(exit.Interrupted, errors.New("doctor: interrupted"))
	}
	if d.bad > 0 {
		return exit.With(exit.Unusable, fmt.Errorf("doctor: %d checks are bad", d.bad))
	}
	return nil
}

// The states of a check. A hint is about something that may matter.
const (
	stateOK   = "ok"
	stateBad  = "bad"
	stateHint = "hint"
)

// tell prints one check, with its details and what to do.
func (d *doctor) tell(state, name, text string, detail []string, hint string) {
	if state == stateBad {
		d.bad++
	}
	if d.o.asJSON {
		line := map[string]any{"check": name, "state": state, "text": text}
		if len(detail) > 0 {
			line["detail"] = detail
		}
		if hint != "" {
			line["hint"] = hint
		}
		_ = d.p.printJSON(line) // a closed stdout ends the program elsewhere
		return
	}
	color := map[string]string{stateOK: "32", stateBad: "31;1", stateHint: "33"}[state]
	paint, _ := d.p.painter("auto")
	tame.Fprintf(d.p.stdout, "%s %-10s %s\n", paint.Code(color, fmt.Sprintf("%-4s", state)), name, text)
	for _, line := range detail {
		tame.Fprintf(d.p.stdout, "     %-10s %s\n", "", line)
	}
	if hint != "" {
		tame.Fprintf(d.p.stdout, "     %-10s hint: %s\n", "", hint)
	}
}

func (d *doctor) ok(name, format string, args ...any) {
	d.tell(stateOK, name, fmt.Sprintf(format, args...), nil, "")
}

// failed tells of an error with the hint that it has.
func (d *doctor) failed(name string, err error) {
	text := strings.Join(strings.Fields(err.Error()), " ")
	d.tell(stateBad, name, strings.TrimPrefix(text, name+" "), nil, exit.HintOf(err))
}

// leastDisk is where a run is likely to end with a full disk.
const leastDisk = 1 << 30

// disk looks at the space where the run would be.
func (d *doctor) disk() {
	dir, err := filepath.Abs(cmp.Or(d.config.Output.Dir, "."))
	if err != nil {
		d.failed("disk", err)
		return
	}
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		d.failed("disk", fmt.Errorf("%s: %w", dir, err))
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types of both differ between systems
	if free < leastDisk {
		d.tell(stateHint, "disk", fmt.Sprintf("%s free at %s", human.Bytes(free), dir), nil, "a million tokens take some 4 MB")
		return
	}
	d.ok("disk", "%s free at %s", human.Bytes(free), dir)
}

// files compares the limit on open files with the connections of a run. Where they are
// too few a run has fewer samples in flight.
func (d *doctor) files() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.failed("files", err)
		return
	}
	servers := max(1, len(d.config.Server.URLs))
	need := uint64(min(d.config.Server.MaxInFlight, math.MaxInt32))*uint64(servers) + machine.SpareFiles
	if n, why := machine.InFlight(d.config, math.MaxInt, servers, machine.Machine{Files: limit.Cur}); why != "" {
		d.tell(stateHint, "files", fmt.Sprintf("%d may be open, %d are needed: collect has %d samples in flight per server, not %d", limit.Cur, need, n, d.config.Server.MaxInFlight), nil,
			fmt.Sprintf("ulimit -n %d allows all", need))
		return
	}
	d.ok("files", "%d may be open, %d are needed", limit.Cur, need)
}

func (d *doctor) loadModel() {
	if d.config.Tokens.Tokenizer == "" {
		d.tell(stateHint, "tokenizer", "none given: prompts are known only where the server sends them", nil,
			"give the folder of the model's tokenizer and chat template with --tokenizer")
		return
	}
	m, err := model.Load("tokens.tokenizer", d.config.Tokens.Tokenizer, d.config.Tokens.Experimental)
	if err != nil {
		d.failed("tokenizer", err)
		return
	}
	d.model = m
	info := runfolder.DescribeModel(m)
	d.ok("tokenizer", "%s, ids below %d, sha256 %.16s…", info.Family, info.VocabSize, info.TokenizerSHA256)
	d.ok("template", "%s, sha256 %.16s…", info.ChatTemplate, info.ChatTemplateSHA256)
}

// server checks one server, each check only where the ones before it let it.
func (d *doctor) server(ctx context.Context, client *letta.Client) {
	version, err := client.Version(ctx)
	if err != nil {
		d.failed("server", preflight.Unusable(client, err))
		return
	}
	if strings.HasPrefix(version, "0.16.") {
		d.ok("server", "%s answers, version %s", client.BaseURL(), version)
	} else {
		d.tell(stateHint, "server", fmt.Sprintf("%s answers, version %s", client.BaseURL(), version), nil,
			"rollout is tested with 0.16; what another version does not prove gets a lower grade")
	}
	found, err := client.FindModel(ctx, d.config.Agent.Model)
	if err != nil {
		d.failed("models", preflight.Unusable(client, err))
		return
	}
	d.ok("auth", "the server accepts our credentials and lists %d models", found.Count)

	backends, err := makeBackends(d.config, []*letta.Client{client}, d, nil)
	if err != nil {
		d.failed("agent", err)
		return
	}
	// That the model is listed, and that an agent on it will give token data.
	if _, err := backends[0].Preflight(ctx); err != nil {
		d.failed("model", preflight.Unusable(client, err))
		return
	}
	d.ok("model", "%s; an agent on it gives token data", cmp.Or(d.config.Agent.Model, "that of the agent file"))
	used, all := d.call(ctx, client, backends[0], d.task)
	if all && !used && d.o.prompt == "" && d.o.task == "" && d.task.ID != "doctor" {
		// The first task's rollout said nothing of tools.
		used, _ = d.call(ctx, client, backends[0], &collector.Task{ID: "doctor", Messages: []string{doctorText}, Agent: d.task.Agent})
	}
	if all && !used {
		d.tell(stateHint, "tools", "no tool was called: what the template makes of calls and results was not compared", nil,
			"give a text that makes the agent call one, with --prompt")
	}
}

// What doctor says to an agent of which nobody says what it is to do: to one without a
// tool something that tokenizers cut in different ways.
const (
	doctorText = `Reply with the word ok. Do not mind the rest: 3.14159, 2026-01-05T10:00:00Z, naïve café, 日本語, Привет, {"a": [1, 2.5, null]}, if (x >= 10) { return y; }`
	doctorTool = "Call the tool %s once, with any arguments that fit. Then reply with the word ok."
)

// call lets one agent answer and looks at what came. It reports whether a tool was called,
// and whether all went well with an agent that has tools.
func (d *doctor) call(ctx context.Context, client *letta.Client, backend *agent.Backend, task *collector.Task) (used, all bool) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Run.AttemptTimeout)
	defer cancel()
	agent, err := backend.Open(ctx, collector.Attempt{Task: task, Key: "doctor", GroupSize: 1, N: 1, RunID: runfolder.NewID(time.Now())})
	if err != nil {
		d.failed("agent", preflight.Unusable(client, err))
		return false, false
	}
	var tools []string
	if a, ok := agent.(interface{ Tools() []string }); ok {
		tools = a.Tools()
	}
	if len(tools) > 0 && task.Messages[0] == doctorText {
		task.Messages[0] = fmt.Sprintf(doctorTool, tools[0]) // of a task of ours, for this agent
		defer func() { task.Messages[0] = doctorText }()
	}
	began := time.Now()
	reply, err := agent.Run(ctx)
	if err != nil {
		d.failed("call", preflight.Unusable(client, err))
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
		d.failed("cleanup", preflight.Unusable(client, err))
	} else if !d.config.Agent.Keep {
		d.ok("cleanup", "the agent is deleted")
	}
	return used, all
}

// Prompts finds out what there is about the prompts of a reply.
func (d *doctor) Prompts(ctx context.Context, reply *collector.Reply, e *record.Rollout) (_ []tokenize.Call, err error) {
	d.calls, err = prompt.Examine(ctx, d.model, reply, e)
	return nil, err
}

// Prefetch does nothing: one send is made at a time.
func (d *doctor) Prefetch(context.Context, *record.Rollout, record.Send, []tokenize.Turn) {}

// answered checks the turns of a rollout, then its prompts.
func (d *doctor) answered(ctx context.Context, agent collector.Agent, reply *collector.Reply, took time.Duration) {
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
	d.ok("call", "%d calls with %d sampled tokens in %s, stop reason %s", len(calls), sampled, human.Duration(took), stop)
	if d.model == nil {
		for i := range calls {
			if calls[i].Grade != tokenize.Exact {
				d.tell(stateBad, "prompts", "the server does not say what the model was shown", nil, "with --tokenizer it can be rebuilt")
				return
			}
		}
		d.ok("prompts", "the server sends them: rows will be exact")
		return
	}
	if _, err := agent.Prompts(ctx, reply); err != nil {
		d.failed("prompts", err)
		return
	}
	examined := d.calls
	for i := range examined {
		d.examined(i, &examined[i])
	}
	if i := slices.IndexFunc(examined, func(x prompt.Examined) bool { return model.Doubted(&x) }); i >= 0 {
		state := stateBad
		if d.config.Tokens.Require == config.RequireAny {
			state = stateHint
		}
		hint := ""
		if examined[i].Reason == tokenize.ReasonToolOrder {
			hint = prompt.ToolOrderHint
		}
		d.tell(state, "proof", examined[i].Gap, nil, hint)
	}
	if by := model.SameDifference(examined); by != 0 {
		d.tell(stateHint, "prompts", fmt.Sprintf("every call differs by the same %+d tokens", by), nil,
			"the difference is in what all prompts share: the preamble, the tools, or what opens the model's turn")
	}
}

// examined tells of the prompt of one call.
func (d *doctor) examined(i int, x *prompt.Examined) {
	name := fmt.Sprintf("prompt %d", i)
	truth := fmt.Sprintf("the server counted %d", x.Counted)
	if len(x.PromptIDs) > 0 {
		truth = fmt.Sprintf("the server sent %d ids", len(x.PromptIDs))
	}
	text := fmt.Sprintf("%s; stored gives %s, trace %s", truth, rebuiltText(x.Stored), rebuiltText(x.Trace))
	v := model.Diagnose(x, d.model.Tokenizer)
	switch byTrace := x.Trace.Err == nil && int64(len(x.Trace.IDs)) == x.Counted; {
	case v.Culprit == "" && len(x.PromptIDs) > 0:
		d.ok(name, "%s; id by id the same", text)
	case v.Culprit == "":
		d.ok(name, "%s", text)
	case len(x.PromptIDs) > 0:
		// What the server sent is the truth; only rebuilding is off.
		d.tell(stateHint, name, text+": the "+v.Culprit+" differs", v.Detail, "prompts still come from the turns, and are exact")
	case byTrace:
		d.tell(stateHint, name, text+": the "+v.Culprit+" differs", v.Detail, "")
	default:
		d.tell(stateBad, name, text+": the "+v.Culprit+" differs", v.Detail, "")
	}
}

func rebuiltText(r prompt.Rebuilt) string {
	switch {
	case errors.Is(r.Err, prompt.ErrNotRebuilt):
		return "nothing"
	case r.Err != nil:
		return "an error"
	}
	return fmt.Sprint(len(r.IDs))
}
