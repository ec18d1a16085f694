package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

type simulateOptions struct {
	listen, readyFile     string
	exchanges, writeTasks string
	latency, bodyRate     string
	model, version        string
	passwordRef           string
	engine                string
	weights, weightsLog   string
	faults                []string
	scripted, capacity    int
	seed                  uint64
	drift, wrong          float64
	tokens, calls         []int
	inputIDs, keepIDs     bool
	noTraces              bool
	asJSON                bool
}

func (p *program) simulateCmd() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "a Letta server to try things against",
		Long: `A Letta server to try things against: real HTTP, no model. It replays recorded
exchanges and plays scripted agents; what it answers depends on the seed, the task
and the sample alone. The URL goes to stdout; an interrupt ends it with a line of
what it did.

A fault is KIND=SHARE, KIND@TASK, KIND@TASK/SAMPLE or KIND@TASK/SAMPLE/ATTEMPT, and
the kinds are:` + wrap(strings.Join(faultKinds(), ", "), 80, "  ") + `

A latency is 200ms, 50ms..2s, or 200ms~0.5 for a log-normal one.

With --engine URL the calls of scripted agents are made by an engine of yours, which
is asked as SGLang is: POST URL/generate with

  { "input_ids": [51, 32, 10], "sampling_params": { … }, "return_logprob": true }

It answers with the ids that it sampled and their log-probabilities:

  { "output_ids": [52, 0], "meta_info": {
      "output_token_logprobs": [[-0.7, 52, null], [-0.1, 0, null]],
      "finish_reason": { "type": "stop", "matched": 0 }, "weight_version": "3" } }

A prompt is the UTF-8 bytes of the task's message and a newline (10), so ids below
256 are enough. What a reward sees is the answer's "text", or else its ids as decimal
numbers with spaces between them, without the last one if it is "matched".`,
		Annotations: exits("Exit status: 0 after an interrupt, 2 wrong flags, 5 the address cannot be used."),
		Example: `  rollout simulate --input-ids --scripted 100 --write-tasks tasks.jsonl
  rollout simulate --exchanges testdata/letta --input-ids --fault engine-down=0.01`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.simulate(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8283", "`ADDRESS` to listen on; port 0 takes a free one")
	f.StringVar(&o.readyFile, "ready-file", "", "write the URL to `FILE` once the server answers")
	f.StringVar(&o.exchanges, "exchanges", "", "replay the recorded exchanges in `DIR`")
	f.BoolVar(&o.inputIDs, "input-ids", false, "put the prompt ids on assistant turns, as a newer server does")
	f.BoolVar(&o.noTraces, "no-traces", false, "keep no provider traces, as a server with LETTA_TRACK_PROVIDER_TRACE=false")
	f.BoolVar(&o.keepIDs, "keep-ids", false, "replay the recorded ids too: one agent per exchange at a time")
	f.IntVar(&o.scripted, "scripted", 0, "write `N` tasks for scripted agents")
	f.StringVar(&o.writeTasks, "write-tasks", "", "write tasks that this server answers to `FILE`, JSON lines")
	f.Uint64Var(&o.seed, "seed", 1, "`N`, the seed of everything that is drawn")
	f.StringVar(&o.engine, "engine", "", "`URL` of an engine that makes the calls of scripted agents, in SGLang's dialect; needs --input-ids")
	f.StringVar(&o.weights, "weights", "", "update the weights of the scripted engine meanwhile, as a `SPEC`: every=300ms or every=40 (calls); ,engines=2 ,lag=100ms ,fall=3 ,words. Its page is /model_info")
	f.StringVar(&o.weightsLog, "weights-log", "", "write the version of every call to `FILE`, JSON lines")
	f.IntSliceVar(&o.calls, "calls", nil, "`MIN,MAX` calls of the model in a send to a scripted agent (default 1,4; with --engine 1,1)")
	f.StringVar(&o.latency, "latency", "", "how long a send takes, a `LATENCY` (default: no time)")
	f.IntVar(&o.capacity, "capacity", 0, "work on `N` sends at a time, and let the others wait (default: no bound)")
	f.StringVar(&o.bodyRate, "body-rate", "", "bytes per second at which an answer is written, as a `SIZE` (default: no bound)")
	f.StringArrayVar(&o.faults, "fault", nil, "a `FAULT` to inject; give it again for several")
	f.Float64Var(&o.drift, "drift", 0, "`SHARE` of tool calls of scripted agents before which text is lost")
	f.Float64Var(&o.wrong, "wrong", 0, "`SHARE` of scripted agents' answers that are wrong")
	f.IntSliceVar(&o.tokens, "tokens", nil, "`MIN,MAX` sampled tokens of a scripted agent's last call")
	f.StringVar(&o.model, "model", "", "`HANDLE` of the model (default sglang//models/qwen3)")
	f.StringVar(&o.version, "server-version", "", "the `VERSION` that the server names (default 0.16.7)")
	f.StringVar(&o.passwordRef, "password", "", "ask for this password, given as a `REFERENCE`: ${env:NAME} or ${file:/path}")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: one when ready, one at the end")
	values(cmd, "fault", cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp, faultKinds()...)
	return cmd
}

func faultKinds() []string {
	var names []string
	for _, k := range lettasim.FaultKinds() {
		names = append(names, string(k))
	}
	return names
}

// wrap breaks text at spaces into lines of at most width columns. Each line begins with indent.
func wrap(text string, width int, indent string) string {
	var out strings.Builder
	out.WriteString("\n" + indent)
	at := len(indent)
	for i, word := range strings.Fields(text) {
		if i > 0 && at+1+len(word) > width {
			out.WriteString("\n" + indent)
			at = len(indent)
		} else if i > 0 {
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += len(word)
	}
	return out.String()
}

// config converts the flags into the server's configuration. Its error lists every wrong flag.
func (o *simulateOptions) config(getenv func(string) string) (lettasim.Config, error) {
	c := lettasim.Config{Seed: o.seed, KeepIDs: o.keepIDs, InputIDs: o.inputIDs, NoTraces: o.noTraces, Engine: o.engine, Model: o.model, Version: o.version, Capacity: o.capacity, KeepAnswers: true}
	var bad exit.Complaints
	complain := func(flag string, err error) {
		if err != nil {
			bad = append(bad, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if o.exchanges != "" {
		cases, err := lettasim.LoadCases(os.DirFS(o.exchanges), ".")
		if err == nil && len(cases) == 0 {
			err = fmt.Errorf("no recorded exchange (.json, .json.gz) in %s", o.exchanges)
		}
		complain("exchanges", err)
		c.Cases = cases
	}
	if o.latency != "" {
		l, err := lettasim.ParseLatency(o.latency)
		complain("latency", err)
		c.Latency = l
	}
	if o.bodyRate != "" {
		n, err := human.ParseSize(o.bodyRate)
		complain("body-rate", err)
		c.BodyRate = n
	}
	if o.weights != "" {
		w, err := lettasim.ParseWeights(o.weights)
		complain("weights", err)
		c.Weights = w
	}
	if o.weightsLog != "" && o.weights == "" {
		complain("weights-log", errors.New("needs --weights"))
	}
	for _, text := range o.faults {
		f, err := lettasim.ParseFault(text)
		complain("fault", err)
		c.Faults = append(c.Faults, f)
	}
	if o.scripted < 0 {
		complain("scripted", fmt.Errorf("%d: must be ≥ 0", o.scripted))
	}
	c.Script.Drift, c.Script.Wrong = o.drift, o.wrong
	for _, r := range []struct {
		flag  string
		given []int
		into  *lettasim.Range
	}{{"tokens", o.tokens, &c.Script.Tokens}, {"calls", o.calls, &c.Script.Calls}} {
		switch len(r.given) {
		case 0:
		case 2:
			*r.into = lettasim.Range{Min: r.given[0], Max: r.given[1]}
		default:
			complain(r.flag, errors.New("give two numbers: MIN,MAX"))
		}
	}
	password, err := config.ParseSecret(o.passwordRef, getenv)
	complain("password", err)
	c.Password = password.Reveal()
	if len(bad) > 0 {
		return c, exit.Refuse(exit.Usage, bad, "")
	}
	return c, nil
}

func (p *program) simulate(ctx context.Context, o *simulateOptions) error {
	cfg, err := o.config(p.getenv)
	if err != nil {
		return err
	}
	if o.weightsLog != "" {
		log, err := os.Create(o.weightsLog)
		if err != nil {
			return exit.With(exit.Storage, err)
		}
		defer log.Close() //nolint:errcheck // every line was written
		cfg.Weights.Log = log
	}
	told := new(sync.Map) // an engine usually fails the same way each time
	cfg.EngineFailed = func(err error) {
		if _, again := told.LoadOrStore(err.Error(), true); !again {
			p.say("engine: %v", err)
		}
	}
	sim, err := lettasim.New(cfg)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return exit.Hint(exit.With(exit.Unusable, err), "give another address with --listen; port 0 takes a free one")
	}
	url := "http://" + listener.Addr().String()
	if o.writeTasks != "" {
		tasks := sim.Tasks(lettasim.TaskOptions{Cases: o.exchanges != "", Scripted: o.scripted})
		if err := os.WriteFile(o.writeTasks, tasks, 0o666); err != nil {
			return errors.Join(exit.With(exit.Storage, err), listener.Close())
		}
	}

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := sim.HTTPServer()
	served := make(chan error, 1) // buffered: Serve returns even after the caller has stopped waiting
	go func() { served <- server.Serve(listener) }()
	if err := p.ready(o, url); err != nil {
		return errors.Join(err, server.Close(), <-served)
	}

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// When the server shuts down, clients have a second to read their answers.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // closes what is still open
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return p.simulated(o, sim.Stats())
}

// ready reports the URL. The ready file appears as a whole or not at all.
func (p *program) ready(o *simulateOptions, url string) error {
	if o.asJSON {
		if err := p.printJSON(map[string]any{"event": "ready", "url": url}); err != nil {
			return err
		}
	} else {
		tame.Fprintf(p.stdout, "%s\n", url)
	}
	if o.readyFile == "" {
		return nil
	}
	tmp := filepath.Join(filepath.Dir(o.readyFile), "."+filepath.Base(o.readyFile)+".tmp")
	if err := os.WriteFile(tmp, []byte(url+"\n"), 0o666); err != nil {
		return exit.With(exit.Storage, err)
	}
	return exit.With(exit.Storage, os.Rename(tmp, o.readyFile))
}

func (p *program) simulated(o *simulateOptions, s lettasim.Stats) error {
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "done", "agents_created": s.AgentsCreated, "agents_deleted": s.AgentsDeleted, "agents_alive": s.AgentsAlive,
			"sends": s.Sends, "answered": s.Answered, "max_in_flight": s.MaxInFlight, "bytes_sent": s.BytesSent, "faults": s.Faults,
			"engine_calls": s.EngineCalls, "engine_errors": s.EngineErrors,
		})
	}
	line := fmt.Sprintf("simulated: %d sends, %d answered, %s, at most %d at once; agents: %d made, %d alive",
		s.Sends, s.Answered, human.Bytes(s.BytesSent), s.MaxInFlight, s.AgentsCreated, s.AgentsAlive)
	if s.EngineCalls+s.EngineErrors > 0 {
		line += fmt.Sprintf("; engine: %d calls, %d failed", s.EngineCalls+s.EngineErrors, s.EngineErrors)
	}
	var faults []string
	for _, k := range slices.Sorted(maps.Keys(s.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", k, s.Faults[k]))
	}
	if faults != nil {
		line += "; faults: " + strings.Join(faults, ", ")
	}
	p.say("%s", line)
	return nil
}
