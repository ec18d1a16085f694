package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

type tapOptions struct {
	listen, readyFile, spool string
	engines, set             []string
	spoolBytes               string
	spoolAge, healthEvery    time.Duration
	askIDs, continuity       bool
	tokenizer, transformers  string
	experimental             bool
	maxPrompt                int
	asJSON, verbose          bool
}

func (p *program) tapCmd() *cobra.Command {
	var o tapOptions
	cmd := &cobra.Command{
		Use:   "tap --engine URL --spool DIR",
		Short: "keep the token ids of every call between a Letta server and its engines",
		Long: `Keep the token ids of every call between a Letta server and its engines. The tap is a
reverse proxy: give its URL to the server in place of the engine's (the base URL of
a provider, or SGLANG_API_BASE before the server's first start; README says how to
move a server that has run). Requests and answers pass byte for byte, streams event
by event; ids, log-probabilities and sampling parameters of each generation go
to the spool, and a collection that reads it has the engine's own prompts.

It reads SGLang's /generate, and /v1/chat/completions and /v1/completions of vLLM and
SGLang where the answer has token ids; --ask-ids asks for them. Other requests, such
as an update of weights, go to one of the engines: send those to each of them itself.

With --set NAME=VALUE the engine samples as you say, whatever the server sends:` + wrap(strings.Join(proxy.SettingNames(), ", "), 80, "  ") + `

With --continuity the engine is given the model's own earlier tokens where the server
renders them in another way. It needs the model's tokenizer, and changes no token
that was not sampled. Each answer then says what was changed (meta_info.rollout).

With several engines a conversation stays at one of them, and new ones go to the
least busy. Own pages: /healthz, /tap/metrics (Prometheus), /tap/segments (the spool,
for collectors elsewhere). The first interrupt, or SIGTERM, refuses new requests and
waits for those at work; the second one ends them. The log on standard error has no
bodies.`,
		Annotations: exits("Exit status: 0 after an interrupt, 2 wrong flags, 5 the address cannot be used,\n6 the spool cannot be written, 8 another process writes it, 130 interrupted twice."),
		Example: `  rollout tap --listen 127.0.0.1:30001 --engine http://127.0.0.1:30000 --spool spool
  rollout tap --engine http://127.0.0.1:30000 --engine http://127.0.0.1:30010 --spool spool --set top_p=1.0 --set max_new_tokens=8192`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.tap(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:30001", "`ADDRESS` to listen on; port 0 takes a free one. Whoever reaches it reaches the engines and the spool")
	f.StringArrayVar(&o.engines, "engine", nil, "base `URL` of an engine, without /v1; give it again for several")
	f.StringVar(&o.spool, "spool", "", "keep the calls in `DIR`")
	f.StringVar(&o.spoolBytes, "spool-bytes", "8GiB", "the `SIZE` of the spool at most: the oldest calls go")
	f.DurationVar(&o.spoolAge, "spool-age", 24*time.Hour, "how long a call is kept, a `DURATION`")
	f.StringArrayVar(&o.set, "set", nil, "sample by `NAME=VALUE`; give it again for several")
	f.BoolVar(&o.askIDs, "ask-ids", false, "ask engines for token ids and log-probabilities where a request does not, but for streams of OpenAI's API")
	f.BoolVar(&o.continuity, "continuity", false, "give engines the model's own earlier tokens; needs --tokenizer")
	f.StringVar(&o.tokenizer, "tokenizer", "", "the model's `DIR` with tokenizer and chat template, for --continuity")
	f.StringVar(&o.transformers, "transformers", "", "the server has this `VERSION` of transformers, for --continuity: 4.57, 5.0, 5.21, 5.22.2, 5.23, each up to the next one; without it, all must make the same tokenizer, and templates go by 4.57")
	f.BoolVar(&o.experimental, "experimental", false, "accept tokenizers of families that were not compared with the reference")
	f.IntVar(&o.maxPrompt, "max-prompt-tokens", 0, "the most `TOKENS` that --continuity makes a prompt; 0: what the engines say that they take, less max_new_tokens (4096, or as --set says)")
	f.DurationVar(&o.healthEvery, "health-every", 5*time.Second, "how often engines are asked for /health, a `DURATION`")
	f.StringVar(&o.readyFile, "ready-file", "", "write the URL to `FILE` once the tap answers")
	f.BoolVar(&o.verbose, "verbose", false, "log every call")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: one when ready, one at the end")
	var names []string
	for _, name := range proxy.SettingNames() {
		names = append(names, name+"=")
	}
	var releases []string
	for _, r := range chat.AllTransformers() {
		releases = append(releases, r.String())
	}
	values(cmd, "transformers", cobra.ShellCompDirectiveNoFileComp, releases...)
	values(cmd, "set", cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp, names...)
	return cmd
}

// config converts the flags into configurations. Its error lists every wrong flag.
func (o *tapOptions) config(ctx context.Context, log *slog.Logger) (proxy.Config, tap.SpoolConfig, error) {
	var bad exit.Complaints
	complain := func(flag string, err error) {
		if err != nil {
			bad = append(bad, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	c := proxy.Config{AskIDs: o.askIDs, HealthEvery: o.healthEvery, Log: log}
	if len(o.engines) == 0 {
		complain("engine", errors.New("give the URL of at least one engine"))
	}
	for _, text := range o.engines {
		u, err := engineURL(text)
		complain("engine", err)
		if err == nil {
			c.Engines = append(c.Engines, u)
		}
	}
	if len(c.Engines) == len(o.engines) && len(c.Engines) > 0 {
		complain("engine", c.Validate())
	}
	set, err := proxy.ParseSet(o.set)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			complain("set", err)
		}
	}
	c.Set = set
	spool := tap.SpoolConfig{Dir: o.spool, MaxAge: o.spoolAge, Log: log}
	if o.spool == "" {
		complain("spool", errors.New("give the folder for the calls"))
	}
	spool.MaxBytes, err = human.ParseSize(o.spoolBytes)
	complain("spool-bytes", err)
	if err == nil && o.spool != "" {
		complain("spool", spool.Validate())
	}
	if o.healthEvery <= 0 {
		complain("health-every", errors.New("must be > 0"))
	}
	if o.continuity != (o.tokenizer != "") {
		complain("continuity", errors.New("it needs the model's tokenizer, and --tokenizer is for nothing else: give both, or neither"))
	}
	if len(bad) > 0 {
		return c, spool, exit.Refuse(exit.Usage, bad, "")
	}
	if o.continuity {
		table, err := o.table(ctx, c.Engines, log)
		if err != nil {
			return c, spool, err
		}
		c.Continuer = table
	}
	return c, spool, nil
}

// engineURL parses the URL of an engine. It removes a final /v1, which the URL of a provider has.
func engineURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("want a URL such as http://127.0.0.1:30000") // the URL is not shown, because it can hold a password
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	return u, nil
}

func (p *program) tap(ctx context.Context, o *tapOptions) error {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	cfg, spoolCfg, err := o.config(ctx, log)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return exit.Hint(exit.With(exit.Unusable, err), "give another address with --listen; port 0 takes a free one")
	}
	spool, err := tap.OpenSpool(spoolCfg)
	if err != nil {
		err = exit.With(exit.Storage, err)
		if errors.Is(err, tap.ErrLocked) {
			err = exit.Hint(exit.With(exit.Locked, err), "another tap writes there; give each its own folder")
		}
		return errors.Join(err, listener.Close())
	}
	if table, ok := cfg.Continuer.(*continuity.Table); ok {
		recall(ctx, table, o.spool, log)
	}
	pages := http.NewServeMux()
	cfg.Keep, cfg.Pages = spool.Add, pages
	cfg.Unkept = func() error { return spool.Stats().Err }
	tapped, err := proxy.New(cfg)
	if err != nil {
		return errors.Join(exit.With(exit.Usage, err), listener.Close(), spool.Close())
	}
	metrics := show.NewTapMetrics(tapped.Stats, spool.Stats, tableStats(cfg.Continuer))
	pages.Handle("GET /tap/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	pages.Handle("/tap/", spool.Handler())
	err = p.serveTap(ctx, o, tapped, spool, listener)
	return errors.Join(err, p.tapped(o, tapped.Stats(), spool.Stats()))
}

// serveTap serves until it is interrupted, and closes spool and listener.
func (p *program) serveTap(ctx context.Context, o *tapOptions, tapped *proxy.Proxy, spool *tap.Spool, listener net.Listener) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &http.Server{Handler: tapped, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go machine.BoundTapMemory(ctx)
	served, checked := make(chan error, 1), make(chan struct{}) // buffered: Serve returns even after the caller has stopped waiting
	go func() { served <- server.Serve(listener) }()
	go func() { defer close(checked); tapped.Run(ctx) }()
	drained := make(chan struct{})
	go signals.Watch(ctx, 0, signals.Stops{
		Drain: func() {
			tapped.Drain()
			p.say("tap: no new requests; %s at work (a second interrupt ends them)", human.Plural(tapped.Stats().Open, "request"))
			close(drained)
		},
		Stop:  func(cause error) { stop(cause) },
		Abort: p.abort,
	})
	err := p.ready(&simulateOptions{asJSON: o.asJSON, readyFile: o.readyFile}, "http://"+listener.Addr().String())
	if err == nil {
		select {
		case err = <-served:
			served <- err
		case <-drained:
			err = tapped.Wait(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if errors.Is(err, signals.ErrInterrupted) {
			err = exit.With(exit.Interrupted, err)
		}
	}
	tapped.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if ctx.Err() != nil {
		_ = server.Close()     // ends the requests in flight
		_ = tapped.Wait(grace) // waits until their calls are kept
	}
	// Readers of the spool get its last calls before their connections close.
	err = errors.Join(err, exit.With(exit.Storage, spool.Close()))
	if server.Shutdown(grace) != nil {
		_ = server.Close()
	}
	stop(nil)
	<-checked
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	tapped.Close()
	return err
}

// tapped prints a summary of the tap. A call counts as kept if the spool has it.
func (p *program) tapped(o *tapOptions, s proxy.Stats, spool tap.SpoolStats) error {
	kept, dropped := spool.Written, s.Kept+s.Dropped-spool.Written
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "done", "calls": s.Calls, "kept": kept, "dropped": dropped, "unreachable": s.Unreachable, "refused": s.Refused,
			"continued": s.Continued, "unread": s.Unread, "bytes": spool.WrittenBytes, "errors": spool.Errors,
		})
	}
	parts := []string{fmt.Sprintf("tapped: %d calls, %d kept (%s)", s.Calls, kept, human.Bytes(spool.WrittenBytes))}
	for _, n := range []struct {
		count int64
		what  string
	}{{dropped, "dropped"}, {s.Unreachable, "without an engine"}, {s.Refused, "refused while ending"}, {s.Continued, "continued"}, {spool.Errors, "errors of the spool"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	p.say("%s", strings.Join(parts, ", "))
	return nil
}
