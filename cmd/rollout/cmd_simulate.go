package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

type simulateOptions struct {
	lettasim.Config       // flags set some of its fields; the method config sets the others
	listen, readyFile     string
	exchanges, writeTasks string
	latency, bodyRate     string
	passwordRef           string
	weights, weightsLog   string
	engine                engineOptions
	faults                []string
	scripted              int
	tokens, calls         []int
	asJSON                bool
}

func (p *program) simulateCmd() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "simulate a Letta server or an inference engine",
		Long: `Run a simulated Letta server, with real HTTP and without a model. It replays recorded
exchanges and plays scripted agents. Its answers depend only on the seed, the task and the
sample. It prints its URL on standard output. At an interrupt, it prints a summary and exits.
The tokenizer and template of scripted agents are built in: use --tokenizer simulated.

A fault is KIND=SHARE, KIND@TASK, KIND@TASK/SAMPLE or KIND@TASK/SAMPLE/ATTEMPT. The
kinds are:
` + format.Fold("  "+strings.Join(faultKinds(), ", ")+"\n", 80, 2) + `
A LATENCY is constant (200ms), uniform (50ms..2s) or log-normal (200ms~0.5: median and sigma).

With --engine URL, your own engine answers the model calls of scripted agents. It must
implement SGLang's POST URL/generate:

  { "input_ids": [51, 32, 10], "sampling_params": { … }, "return_logprob": true }

The answer contains the sampled ids and their log-probabilities:

  { "output_ids": [52, 0], "meta_info": {
      "output_token_logprobs": [[-0.7, 52, null], [-0.1, 0, null]],
      "finish_reason": { "type": "stop", "matched": 0 }, "weight_version": "3" } }

A prompt consists of the UTF-8 bytes of the task's message and a newline (10), so all its
ids are below 256. A scorer gets the answer's "text". If the answer has no text, the scorer gets
the ids as decimal numbers separated by spaces, without the last id if it is "matched".

With --serve-engine, it simulates an inference engine for agent harnesses instead of a
server: OpenAI's /v1/chat/completions, with token ids as in vLLM or SGLang. A marker in the
prompt selects what the model does, and which faults happen:

  Write two notes. [script:harness seed=7 parallel cut=2]

The model calls tools in two answers and then gives a final answer. Options of the marker:

  seed=N     a number that distinguishes conversations (default 1)
  calls=N    N answers that call a tool, or N parallel calls (default 2)
  parallel   all calls in one answer
  subagent   the first answer starts a subagent
  think      answers with reasoning
  long       long texts before the calls
  unicode    characters outside ASCII
  compact    arguments without spaces, so most harnesses change their form
  numbers    a number in another form than JavaScript prints
  answer=N   the number in the final answer (default 42)
  remember   the first call commits the number to the memory of a Letta Code agent
  recall     the number in the final answer comes from the prompt

A fault happens to answer N, once or times=K times:

  cut=N      the answer is cut off; a stream after three events (after=K: K events)
  drop=N     the connection is dropped before the answer
  err=N      status 500
  busy=N     status 429 with Retry-After: 1
  length=N   the token limit ends the answer
  ctx=N      the engine's error for a prompt that is too long
  slow=N     the answer is delayed by three seconds (ms=K: K milliseconds)

GET /calls returns what was sampled in each call.`,
		Annotations: exits("Exit status: 0 after an interrupt, 2 usage error, 5 the address cannot be used, 6 a file cannot be written."),
		Example: `  rollout simulate --input-ids --scripted 100 --write-tasks tasks.jsonl
  rollout simulate --exchanges testdata/letta --input-ids --fault engine-down=0.01
  rollout simulate --serve-engine vllm --listen 127.0.0.1:8000 --calls-log calls.jsonl`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.engine.check(cmd.Flags()); err != nil {
				return err
			}
			if o.engine.dialect != "" {
				return p.simulateEngine(cmd.Context(), &o)
			}
			return p.simulate(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8283", "`ADDRESS` to listen on; port 0 picks a free port")
	f.StringVar(&o.readyFile, "ready-file", "", "write the URL to `FILE` when the server is ready")
	f.StringVar(&o.exchanges, "exchanges", "", "replay the recorded exchanges in `DIR`")
	f.BoolVar(&o.InputIDs, "input-ids", false, "add the prompt ids to assistant turns, like a newer server")
	f.BoolVar(&o.NoTraces, "no-traces", false, "store no provider traces, like a server with LETTA_TRACK_PROVIDER_TRACE=false")
	f.BoolVar(&o.KeepIDs, "keep-ids", false, "also keep the recorded ids; each exchange can then have only one agent at a time")
	f.IntVar(&o.scripted, "scripted", 0, "with --write-tasks: write `N` tasks for scripted agents")
	f.StringVar(&o.writeTasks, "write-tasks", "", "write tasks for this server to `FILE`, as JSON Lines")
	f.Uint64Var(&o.Seed, "seed", 1, "seed all random choices with `N`")
	f.StringVar(&o.Engine, "engine", "", "`URL` of an engine with SGLang's API that answers the model calls of scripted agents; needs --input-ids")
	f.StringVar(&o.weights, "weights", "", "simulate weight updates of the scripted engine: `SPEC` is every=300ms or every=40 (calls), then optionally engines=2, lag=100ms, fall=3 and words, separated by commas. /model_info returns the version")
	f.StringVar(&o.weightsLog, "weights-log", "", "write the version of every call to `FILE`, as JSON Lines")
	f.IntSliceVar(&o.calls, "calls", nil, "`MIN,MAX` model calls per send to a scripted agent (default 1,4, or 1,1 with --engine)")
	f.StringVar(&o.latency, "latency", "", "make every send take `LATENCY` (default: no delay)")
	f.IntVar(&o.Capacity, "capacity", 0, "process `N` sends at a time and queue the others (default: no limit)")
	f.StringVar(&o.bodyRate, "body-rate", "", "write each answer at `SIZE` per second, such as 1MB (default: no limit)")
	f.StringArrayVar(&o.faults, "fault", nil, "inject a `FAULT`; repeatable")
	f.Float64Var(&o.Script.Drift, "drift", 0, "`SHARE` of scripted tool calls whose preceding text the server deletes")
	f.Float64Var(&o.Script.Wrong, "wrong", 0, "`SHARE` of scripted answers that are wrong")
	f.IntSliceVar(&o.tokens, "tokens", nil, "`MIN,MAX` sampled tokens in the last call of a scripted agent")
	f.StringVar(&o.Model, "model", "", "`HANDLE` of the model (default sglang//models/qwen3)")
	f.StringVar(&o.Version, "server-version", "", "the `VERSION` that the server reports (default 0.16.7)")
	f.StringVar(&o.passwordRef, "password", "", "require this password, given as a `REFERENCE`: ${env:NAME} or ${file:/path}")
	f.StringVar(&o.engine.dialect, "serve-engine", "", "simulate an engine instead of a server, with the API of `KIND`: "+strings.Join(enginesim.Dialects(), ", "))
	f.StringVar(&o.engine.log, "calls-log", "", "with --serve-engine: write every call to `FILE`, as JSON Lines")
	f.StringVar(&o.engine.tokenizer, "tokenizer", lettasim.ModelName, "with --serve-engine: use the tokenizer and chat template in `DIR`")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: one when ready, one at the end")
	values(cmd, "serve-engine", cobra.ShellCompDirectiveNoFileComp, enginesim.Dialects()...)
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

// config converts the flags into the configuration of the simulated server. Its error lists every
// wrong flag.
func (o *simulateOptions) config(getenv func(string) string) (lettasim.Config, error) {
	c := o.Config
	c.KeepAnswers = true
	var bad exit.Complaints
	if o.exchanges != "" {
		cases, err := lettasim.LoadCases(os.DirFS(o.exchanges), ".")
		if err == nil && len(cases) == 0 {
			err = fmt.Errorf("no recorded exchange (.json, .json.gz) in %s", o.exchanges)
		}
		bad.Flag("exchanges", err)
		c.Cases = cases
	}
	c.Latency = parseFlag(&bad, "latency", o.latency, lettasim.ParseLatency)
	c.BodyRate = parseFlag(&bad, "body-rate", o.bodyRate, format.ParseSize)
	c.Weights = parseFlag(&bad, "weights", o.weights, lettasim.ParseWeights)
	if o.weightsLog != "" && o.weights == "" {
		bad.Flag("weights-log", errors.New("needs --weights"))
	}
	for _, text := range o.faults {
		f, err := lettasim.ParseFault(text)
		bad.Flag("fault", err)
		c.Faults = append(c.Faults, f)
	}
	if o.scripted < 0 {
		bad.Flag("scripted", fmt.Errorf("must be ≥ 0, got %d", o.scripted))
	}
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
			bad.Flag(r.flag, errors.New("must be two numbers: MIN,MAX"))
		}
	}
	password, err := config.ParseSecret(o.passwordRef, getenv)
	bad.Flag("password", err)
	c.Password = password.Reveal()
	return c, bad.Err()
}

// parseFlag parses the text of a flag, unless the text is empty. It adds any error to bad.
func parseFlag[T any](bad *exit.Complaints, flag, text string, parse func(string) (T, error)) (value T) {
	var err error
	if text != "" {
		value, err = parse(text)
	}
	bad.Flag(flag, err)
	return value
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
	told := new(sync.Map) // errors already reported; an engine usually repeats the same error
	cfg.EngineFailed = func(err error) {
		if _, again := told.LoadOrStore(err.Error(), true); !again {
			p.say("engine: %v", err)
		}
	}
	sim, err := lettasim.New(cfg)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	listener, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	if o.writeTasks != "" {
		tasks := sim.Tasks(lettasim.TaskOptions{Cases: o.exchanges != "", Scripted: o.scripted})
		if err := os.WriteFile(o.writeTasks, tasks, 0o666); err != nil {
			return errors.Join(exit.With(exit.Storage, err), listener.Close())
		}
	}

	if err := p.serveUntilInterrupt(ctx, o, listener, sim.HTTPServer()); err != nil {
		return err
	}
	return p.simulated(o, sim.Stats())
}

// serveUntilInterrupt prints the URL and serves until an interrupt.
func (p *program) serveUntilInterrupt(ctx context.Context, o *simulateOptions, listener net.Listener, server *http.Server) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	served := make(chan error, 1) // buffered, so that Serve can return after the caller has stopped waiting
	go func() { served <- server.Serve(listener) }()
	if err := p.ready(o.asJSON, o.readyFile, "http://"+listener.Addr().String()); err != nil {
		return errors.Join(err, server.Close(), <-served)
	}

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// When the server shuts down, clients have one second to read their answers.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // closes the remaining connections
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ready prints the URL. If there is a ready file, it also writes the URL to that file, atomically.
func (p *program) ready(asJSON bool, readyFile, url string) error {
	if asJSON {
		if err := p.printJSON(map[string]any{"event": "ready", "url": url}); err != nil {
			return err
		}
	} else {
		termsafe.Fprintf(p.stdout, "%s\n", url)
	}
	if readyFile == "" {
		return nil
	}
	// Do not use WriteNamed here, because an existing pipe or link must also be replaced.
	tmp := filepath.Join(filepath.Dir(readyFile), "."+filepath.Base(readyFile)+".tmp")
	if err := os.WriteFile(tmp, []byte(url+"\n"), 0o666); err != nil {
		return exit.With(exit.Storage, err)
	}
	return exit.With(exit.Storage, os.Rename(tmp, readyFile))
}

func (p *program) simulated(o *simulateOptions, s lettasim.Stats) error {
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "done", "agents_created": s.AgentsCreated, "agents_deleted": s.AgentsDeleted, "agents_alive": s.AgentsAlive,
			"sends": s.Sends, "answered": s.Answered, "max_in_flight": s.MaxInFlight, "bytes_sent": s.BytesSent, "faults": s.Faults,
			"engine_calls": s.EngineCalls, "engine_errors": s.EngineErrors,
		})
	}
	line := fmt.Sprintf("simulated: %s, %d answered, at most %d at once; %s of answers; agents: %d created, %d alive",
		format.Plural(s.Sends, "send"), s.Answered, s.MaxInFlight, format.Bytes(s.BytesSent), s.AgentsCreated, s.AgentsAlive)
	if s.EngineCalls+s.EngineErrors > 0 {
		line += fmt.Sprintf("; engine calls: %d, %d failed", s.EngineCalls+s.EngineErrors, s.EngineErrors)
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
