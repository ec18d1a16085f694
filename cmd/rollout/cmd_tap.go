package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/render"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize"
)

type tapOptions struct {
	listen, readyFile, spool string
	engines, set             []string
	spoolBytes               string
	spoolAge, healthEvery    time.Duration
	askIDs, continuity       bool
	sessions, render, masks  bool
	experts                  string // a shape
	access                   access
	tokenizer, transformers  string
	experimental             bool
	maxPrompt                int
	asJSON, verbose          bool
}

func (p *program) tapCmd() *cobra.Command {
	var o tapOptions
	cmd := &cobra.Command{
		Use:   "tap --engine URL --spool DIR",
		Short: "record the token ids of every model call, of a Letta server or of any program",
		Long: `Record the token ids of every model call. The tap is a reverse proxy between the program
that calls a model and its inference engines. It writes the ids, log-probabilities and
sampling parameters of each call to the spool.

For a Letta server, use the tap's URL in place of the engine's, as the base URL of a
provider, or as SGLANG_API_BASE before the server's first start. For a server that has
already run, see collector/tap/README.md. Requests and answers pass through unchanged;
streams pass event by event. collect --tap reads the engine's prompts from the spool.

For any other program, use --sessions. POST /r begins a session, which is one rollout, and
returns a KEY. The program calls /r/KEY/v1/chat/completions, and POST /r/KEY/end ends the
session. collect --from-sessions makes rows of ended sessions. The tap asks the engine for
the token ids, and replaces the name of the model. Text and tool calls stay the same.

The tap records SGLang's /generate, and /v1/chat/completions and /v1/completions of vLLM
and SGLang if the answer has token ids; --ask-ids requests them. Other requests, such as a
weight update, go to only one engine, so send them to each engine directly.

--set NAME=VALUE overrides a sampling parameter of the server:
` + format.Fold("  "+strings.Join(proxy.SettingNames(), ", ")+"\n", 80, 2) + `
With --continuity, the engine receives the model's own earlier tokens if the server
renders them differently. This needs the model's tokenizer and replaces only text that
was sampled. Each answer describes the replacement in meta_info.rollout. In sessions,
--continuity needs no tokenizer: it replaces messages that are an earlier answer in
another form.

With --render, the tap renders the prompts of sessions with the template in --tokenizer,
and sends token ids to SGLang's /generate or vLLM's /v1/completions. It parses reasoning
and tool calls itself, so the engine needs neither a template nor parsers.

With several engines, a conversation stays on one engine, and a new conversation goes to
the least busy engine. The tap serves /healthz, /tap/metrics (Prometheus) and /tap/segments
(the spool, for remote collectors). After the first SIGINT or SIGTERM, the tap refuses new
requests and waits for open requests; the second signal ends them. The log on standard
error contains no request or answer bodies.`,
		Annotations: exits("Exit status: 0 after an interrupt, 2 usage error, 5 the address or an engine cannot be used, 6 the spool cannot be written, 8 another process writes to it, 130 interrupted twice."),
		Example: `  rollout tap --listen 127.0.0.1:30001 --engine http://127.0.0.1:30000 --spool spool
  rollout tap --engine http://127.0.0.1:30000 --engine http://127.0.0.1:30010 --spool spool --set top_p=1.0 --set max_new_tokens=8192
  rollout tap --sessions --engine http://127.0.0.1:8000 --spool spool`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.tap(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:30001", "`ADDRESS` to listen on; port 0 picks a free port. An address that other machines can reach needs --token-file or --insecure")
	f.StringArrayVar(&o.engines, "engine", nil, "base `URL` of an engine, without /v1; repeatable")
	f.StringVar(&o.spool, "spool", "", "store the calls in `DIR`")
	f.StringVar(&o.spoolBytes, "spool-bytes", "8GiB", "the maximum `SIZE` of the spool; the tap removes the oldest calls to stay below it")
	f.DurationVar(&o.spoolAge, "spool-age", 24*time.Hour, "keep each call for this `DURATION`")
	f.StringArrayVar(&o.set, "set", nil, "override a sampling parameter, `NAME=VALUE`; repeatable")
	f.BoolVar(&o.askIDs, "ask-ids", false, "request token ids and log-probabilities if the client does not, except in streams of the OpenAI API")
	f.StringVar(&o.experts, "routed-experts", "", "request and record routed experts of this `SHAPE`, such as 48x8/128 (see output.routed_experts)")
	f.BoolVar(&o.masks, "sampling-mask", false, "request and record sampling masks")
	f.BoolVar(&o.sessions, "sessions", false, "record sessions: POST /r begins one, and /r/KEY is the base URL of its calls")
	f.StringVar(&o.access.tokenFile, "token-file", "", "require the token in `FILE` for everything except the calls of a session")
	f.BoolVar(&o.access.insecure, "insecure", false, "let every client that can connect use the engines and read the spool")
	f.StringVar(&o.access.tlsCert, "tls-cert", "", "serve TLS with the certificate in this PEM `FILE`")
	f.StringVar(&o.access.tlsKey, "tls-key", "", "the key of --tls-cert, a PEM `FILE`")
	f.BoolVar(&o.continuity, "continuity", false, "send the model's own earlier tokens to the engines; needs --tokenizer, or --sessions")
	f.BoolVar(&o.render, "render", false, "render the prompts of sessions, and send token ids to the engines; needs --sessions and --tokenizer")
	f.StringVar(&o.tokenizer, "tokenizer", "", "the `DIR` with the model's tokenizer and chat template, for --continuity and --render")
	addTransformers(cmd, &o.transformers, ", for --continuity and --render")
	f.BoolVar(&o.experimental, "experimental", false, "accept tokenizers of families that have not been compared with the reference implementation")
	f.IntVar(&o.maxPrompt, "max-prompt-tokens", 0, "the maximum `TOKENS` in a prompt with --continuity (0: the engines' context length minus max_new_tokens, which is 4096 or the value of --set)")
	f.DurationVar(&o.healthEvery, "health-every", 5*time.Second, "check the health of the engines every `DURATION`")
	f.StringVar(&o.readyFile, "ready-file", "", "write the URL to `FILE` when the tap is ready")
	f.BoolVar(&o.verbose, "verbose", false, "log every call")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: one when ready, one at the end")
	var names []string
	for _, name := range proxy.SettingNames() {
		names = append(names, name+"=")
	}
	values(cmd, "set", cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp, names...)
	return cmd
}

// config converts the flags into the configurations of the proxy and the spool. Its error lists
// every wrong flag.
func (o *tapOptions) config(ctx context.Context, log *slog.Logger) (proxy.Config, tap.SpoolConfig, *tls.Config, error) {
	var bad exit.Complaints
	c := proxy.Config{AskIDs: o.askIDs, HealthEvery: o.healthEvery, Log: log}
	if len(o.engines) == 0 {
		bad.Flag("engine", errors.New("not set; pass the URL of an engine"))
	}
	for _, text := range o.engines {
		u, err := connect.EngineURL(text)
		bad.Flag("engine", err)
		if err == nil {
			c.Engines = append(c.Engines, u)
		}
	}
	if len(c.Engines) == len(o.engines) && len(c.Engines) > 0 {
		bad.Flag("engine", c.Validate())
	}
	set, err := proxy.ParseSet(o.set)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			bad.Flag("set", err)
		}
	}
	c.Set = set
	c.Inside.SamplingMask = o.masks
	if o.experts != "" {
		c.Inside.Experts, err = tokenize.ParseExpertShape(o.experts)
		bad.Flag("routed-experts", err)
	}
	spool := tap.SpoolConfig{Dir: o.spool, MaxAge: o.spoolAge, Log: log}
	if o.spool == "" {
		bad.Flag("spool", errors.New("not set; pass a folder for the calls"))
	}
	spool.MaxBytes, err = format.ParseSize(o.spoolBytes)
	bad.Flag("spool-bytes", err)
	if err == nil && o.spool != "" {
		bad.Flag("spool", spool.Validate())
	}
	if o.healthEvery <= 0 {
		bad.Flag("health-every", errors.New("must be > 0"))
	}
	switch {
	case o.render && (o.tokenizer == "" || !o.sessions):
		bad.Flag("render", errors.New("needs --sessions and --tokenizer"))
	case o.render && (o.experts != "" || o.masks):
		bad.Flag("render", errors.New("cannot be used with --routed-experts or --sampling-mask; turn one of them off"))
	case o.tokenizer != "" && !o.continuity && !o.render:
		bad.Flag("tokenizer", errors.New("must be used together with --continuity or --render"))
	case o.continuity && o.tokenizer == "" && !o.sessions:
		bad.Flag("continuity", errors.New("needs --tokenizer, or --sessions"))
	}
	c.Continuity = o.continuity && o.sessions
	var secure *tls.Config
	c.Token, secure = o.access.read(&bad, o.listen)
	if err := bad.Err(); err != nil {
		return c, spool, nil, err
	}
	if o.tokenizer == "" {
		return c, spool, secure, nil
	}
	m, err := o.model()
	if err == nil && o.continuity {
		c.Continuer, err = o.continuer(ctx, m, c.Engines, log)
	}
	if o.render && err == nil {
		c.Renderer = render.New(m)
	}
	return c, spool, secure, err
}

func (p *program) tap(ctx context.Context, o *tapOptions) error {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	cfg, spoolCfg, secure, err := o.config(ctx, log)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	spool, err := tap.OpenSpool(spoolCfg)
	if err != nil {
		err = exit.With(exit.Storage, err)
		if errors.Is(err, tap.ErrLocked) {
			err = exit.Hint(exit.With(exit.Locked, err), "another tap writes to this folder; use a separate folder for each tap")
		}
		return errors.Join(err, listener.Close())
	}
	var continued func() continuity.Stats
	var sessions *store.Store
	if o.sessions {
		if sessions, err = openSessions(&cfg, spoolCfg, log); err != nil {
			return errors.Join(err, listener.Close(), spool.Close())
		}
	}
	if table, ok := cfg.Continuer.(*continuity.Table); ok {
		recall(ctx, table, o.spool, log)
		continued = table.Stats
	}
	pages := http.NewServeMux()
	cfg.Keep, cfg.Pages = spool.Add, pages
	cfg.Unkept = func() error { return spool.Stats().Err }
	tapped, err := proxy.New(cfg)
	if err != nil {
		return errors.Join(exit.With(exit.Usage, err), listener.Close(), spool.Close())
	}
	if o.sessions {
		sessionPages(pages, sessions)
		if err := probe(ctx, tapped, log); err != nil {
			return errors.Join(err, listener.Close(), spool.Close(), sessions.Close())
		}
	}
	if o.access.insecure && !isLoopback(o.listen) {
		p.say("tap: --insecure: every client that can connect to %s can use the engines and read the spool", o.listen)
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	metrics := show.NewTapMetrics(tapped.Stats, spool.Stats, continued)
	pages.Handle("GET /tap/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	pages.Handle("/tap/", spool.Handler())
	err = p.serveTap(ctx, o, tapped, spool, listener, secure != nil)
	if sessions != nil {
		err = errors.Join(err, exit.With(exit.Storage, sessions.Close()))
	}
	return errors.Join(err, p.tapped(o, tapped.Stats(), spool.Stats()))
}

// serveTap serves until it is interrupted. It then closes the spool and the listener.
func (p *program) serveTap(ctx context.Context, o *tapOptions, tapped *proxy.Proxy, spool *tap.Spool, listener net.Listener, secure bool) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &http.Server{Handler: tapped, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go machine.BoundTapMemory(ctx)
	served, checked := make(chan error, 1), make(chan struct{}) // buffered, so that Serve can return after the caller has stopped waiting
	go func() { served <- server.Serve(listener) }()
	go func() { defer close(checked); tapped.Run(ctx) }()
	drained := make(chan struct{})
	defer signals.Watch(0, signals.Stops{
		Drain: func() {
			tapped.Drain()
			p.say("tap: refusing new requests and waiting for %s in flight; interrupt again to stop", format.Plural(tapped.Stats().Open, "request"))
			close(drained)
		},
		Stop:  func(cause error) { stop(cause) },
		Abort: p.abort,
	})()
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	err := p.ready(o.asJSON, o.readyFile, scheme+listener.Addr().String())
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
		_ = tapped.Wait(grace) // waits until the calls of these requests are in the spool
	}
	// Close the spool first, so that its readers receive the last calls before their connections
	// are closed.
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

// tapped prints a summary of the tap. A call counts as kept if it was written to the spool or to the
// file of its session.
func (p *program) tapped(o *tapOptions, s proxy.Stats, spool tap.SpoolStats) error {
	kept := spool.Written + s.Sessions.Kept
	dropped := s.Kept + s.Dropped - kept
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "done", "calls": s.Calls, "kept": kept, "dropped": dropped, "unreachable": s.Unreachable, "refused": s.Refused,
			"continued": s.Continued, "unread": s.Unread, "bytes": spool.WrittenBytes, "errors": spool.Errors,
			"sessions": map[string]int64{"begun": s.Sessions.Begun, "ended": s.Sessions.Ended, "calls": s.Sessions.Kept},
		})
	}
	parts := []string{fmt.Sprintf("tapped: %d calls, %d kept (%s)", s.Calls, kept, format.Bytes(spool.WrittenBytes))}
	if o.sessions {
		parts = append(parts, fmt.Sprintf("%s begun, %d ended", format.Plural(s.Sessions.Begun, "session"), s.Sessions.Ended))
	}
	for _, n := range []struct {
		count int64
		what  string
	}{
		{dropped, "%d dropped"},
		{s.Unreachable, "%d without a reachable engine"},
		{s.Refused, "%d refused during shutdown"},
		{s.Continued, "%d with a prompt changed by --continuity"},
		{spool.Errors, "spool errors: %d"},
	} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf(n.what, n.count))
		}
	}
	p.say("%s", strings.Join(parts, ", "))
	return nil
}
