package collect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
)

// connect creates a client and a backend for each server. It attaches metrics and spans to the
// client's requests.
func (p *planning) connect(ctx context.Context) (err error) {
	h := p.host
	if h.Tracing, err = show.NewTracing(h.getenv, h.Say); err != nil {
		return err
	}
	h.atClose(func() { h.Tracing.Stop(ctx) })
	switch p.config.Kind() {
	case config.KindHarness:
		return p.connectHarness()
	case config.KindSessions:
		return p.connectSessions(ctx)
	}
	clients, err := connect.Clients(p.config, func(text string) { h.Say("%s", text) }, func(endpoint string, cfg *letta.ClientConfig) {
		h.Metrics.Endpoint(endpoint)
		cfg.Observe = h.Metrics.Watch(endpoint)
		h.Tracing.Watch(endpoint, cfg)
	})
	if err != nil {
		return err
	}
	for _, client := range clients {
		h.atClose(client.CloseIdle)
	}
	if p.versions, err = newVersions(p.config, p.options.Stream && !p.options.Reads, h.VersionUnknown); err != nil {
		return err
	}
	if v := p.config.Tokens.PolicyVersion; p.earlier != nil && !p.options.IgnoreClaim && !v.Claimed && !v.Traces && v.URL.Reveal() == "" {
		if had := p.earlier.Claimed(); had != "" {
			h.Note("policy version %s was claimed only for the previous invocation; set --policy-version for this one", had)
		}
	}
	p.clients = clients
	for _, client := range clients {
		backend, check, err := p.newServer(client)
		if err != nil {
			return err
		}
		p.backends, p.checks = append(p.backends, backend), append(p.checks, check)
	}
	return nil
}

func (p *planning) newServer(client *letta.Client) (collector.Backend, preflight.Server, error) {
	cfg := p.settings.agent
	if p.options.Reads {
		r := agent.NewReader(client, agent.ReaderConfig{Prompter: p.settings.prompter})
		return r, preflight.Reads(r), nil
	}
	cfg.Prompter, cfg.Progress, cfg.Versions = p.settings.prompter, p.host.Silent, p.versions
	b, err := connect.Backend(client, cfg)
	if err != nil {
		return nil, preflight.Server{}, err
	}
	return b, preflight.Drives(b), nil
}

func (p *Plan) endpoints() (out []collector.Endpoint) {
	for i, backend := range p.backends {
		e := collector.Endpoint{Name: p.checks[i].URL, Backend: backend, MaxInFlight: p.inFlight[i]}
		switch {
		case p.gateway != nil:
			e.Name = harnessName // the engines can change when the run is resumed
		case i < len(p.config.Server.URLs):
			e.Weight = p.config.Server.URLs[i].Weight
		}
		out = append(out, e)
	}
	return out
}

// askServers checks that every server meets the needs of the run, and fills in the description of
// the run.
func (p *planning) askServers(ctx context.Context) error {
	h := p.host
	h.phase.Store("asking the servers")
	servers, err := preflight.Ask(ctx, p.checks, func(server string, err error, wait time.Duration) {
		h.Say("%s: no valid answer (retrying in %v): %v", server, wait, err)
	})
	if err != nil {
		if len(p.checks) > 1 && !p.options.Reads && ctx.Err() == nil {
			h.Say("a run starts only if every server answers; to start without this server, pass only the other servers with --server")
		}
		return err
	}
	if err := p.checkNamedRuns(ctx); err != nil {
		return err
	}
	var had *runfolder.Info
	if p.earlier != nil {
		had = &p.earlier.Info
		bad, notices := runfolder.ServerChanges(had.Servers, servers)
		if p.gateway != nil {
			bad = append(bad, modelChange(had.Servers, servers)...)
		}
		if err := runfolder.Refuse(p.dir(), bad); err != nil {
			return err
		}
		for _, text := range notices {
			h.Say("%s", text)
		}
	}
	p.info, err = runfolder.Describe(p.loader, had, p.identity, p.tasks, servers, p.settings.model)
	if f := p.options.Fleet; f != nil && err == nil {
		p.info.Fleet = &runfolder.Fleet{ID: f.ID}
		p.info.Fleet.Location, err = f.absolute()
	}
	if err == nil {
		p.info.Invocations[len(p.info.Invocations)-1].RetryFailed = p.options.RetryFailed
	}
	return err
}

// checkNamedRuns checks that the server runs listed by id exist. The check runs before anything is
// written.
func (p *planning) checkNamedRuns(ctx context.Context) error {
	if p.config.Kind() != config.KindRuns || p.options.RetryFailed {
		return nil
	}
	for _, id := range p.config.Tasks.FromRuns.IDs {
		if p.tasks.Has(id) {
			continue
		}
		if _, err := p.clients[0].Run(ctx, id); letta.IsNotFound(err) {
			return p.runsError(&serverruns.MissingError{ID: id})
		} else if err != nil {
			return preflight.Unusable(p.checks[0].URL, err)
		}
	}
	return nil
}

// A feed yields the finished rollouts of other programs as tasks, each once. Ready reports whether the
// next task is available without a wait.
type feed interface {
	Tasks(ctx context.Context) iter.Seq2[collector.Task, error]
	Ready() bool
	Counts() serverruns.Counts
}

// feed returns a feed of server runs or sessions. The function known reports whether one is already a
// task of the run.
func (p *Plan) feed(known func(id string) bool) feed {
	if p.config.Kind() == config.KindSessions {
		return newSessionFeed(p, known)
	}
	return serverruns.New(serverruns.Config{
		Client: p.clients[0], Which: *p.config.Tasks.FromRuns, Follow: p.config.Tasks.Follow && !p.options.DryRun,
		StuckAfter: p.config.Server.StuckAfter, Known: known,
		Again: func(err error, wait time.Duration) {
			p.host.Say("cannot list the server runs (retrying in %v): %v", wait, err)
		},
	})
}

// runsError adds an exit code and a hint to an error from listing server runs or sessions.
func (p *Plan) runsError(err error) error {
	if p.config.Kind() == config.KindSessions {
		return unreadable(p.checks[0].URL, err)
	}
	if _, missing := errors.AsType[*serverruns.MissingError](err); missing {
		return exit.Hint(exit.Usagef("tasks.from_runs: %w", err), "the server run might have been deleted with its agent; rollout steps list shows the steps of a server run")
	}
	return preflight.Unusable(p.checks[0].URL, err)
}

// unmatchedError returns the error of a collection that has found no server runs or sessions and does
// not wait for any.
func (p *Plan) unmatchedError() error {
	if p.config.Kind() == config.KindSessions {
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("%s has no session that has ended", p.checks[0].URL)),
			"POST /r/KEY/end ends a session; with --follow, rollout waits for sessions")
	}
	return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("no server run on %s matches --from-runs", p.checks[0].URL)),
		"check agent=, tag= and since= (compared with the server's clock); --follow waits for new server runs")
}

func (p *Plan) describeFound(n serverruns.Counts) string {
	if p.config.Kind() == config.KindSessions {
		return fmt.Sprintf("ended sessions: %d (%d to read, %d already in the run)", n.Total(), n.Given, n.Known)
	}
	return fmt.Sprintf("matching server runs: %d (%d to read, %d already in the run, %d still in progress)", n.Total(), n.Given, n.Known, n.Running)
}
