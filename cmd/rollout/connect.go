package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
)

// clientConfig is how one of the servers is reached.
func clientConfig(c *config.Config, url string, notice func(text string)) (letta.ClientConfig, error) {
	tls, err := tlsOf(c)
	if err != nil {
		return letta.ClientConfig{}, err
	}
	return letta.ClientConfig{
		BaseURL:         url,
		Password:        letta.Secret(c.Server.Password.Reveal()),
		Version:         readVersion().Version,
		ConnectTimeout:  c.Server.ConnectTimeout,
		IdleBodyTimeout: c.Server.IdleTimeout,
		SendTimeout:     c.Server.Timeout,
		InFlight:        c.Server.MaxInFlight,
		ReadBytes:       c.Server.ReadBytes,
		// An int of 32 bits holds every buffer that a kernel grants.
		ReceiveBufferBytes: int(min(c.Server.ReceiveBuffer, math.MaxInt32)),
		Headers:            c.Server.Headers.Reveal(),
		TLS:                tls,
		Notice:             notice,
	}, nil
}

// tlsOf is how a server proves who it is, and we to it; nil where nothing is said.
func tlsOf(c *config.Config) (*tls.Config, error) {
	if c.Server.CAFile == "" && c.Server.ClientCert == "" {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Server.CAFile != "" {
		pem, err := input.Read(c.Server.CAFile, input.MaxPEM, input.Wait)
		if err != nil {
			return nil, exit.Usagef("server.ca_file: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, exit.Usagef("server.ca_file: %s: no certificate in it; PEM is needed", c.Server.CAFile)
		}
	}
	if c.Server.ClientCert != "" {
		cert, err := input.Read(c.Server.ClientCert, input.MaxPEM, input.Wait)
		if err != nil {
			return nil, exit.Usagef("server.client_cert: %w", err)
		}
		key, err := input.Read(c.Server.ClientKey, input.MaxPEM, input.Wait)
		if err != nil {
			return nil, exit.Usagef("server.client_key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, exit.Usagef("server.client_cert: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// connect makes a client for every server. Nothing is asked yet.
func connect(c *config.Config, notice func(text string)) ([]*letta.Client, error) {
	return connectWatched(c, notice, nil)
}

// connectWatched is connect where watch, given the name of an endpoint and the
// configuration of its client, may add what looks at its requests.
func connectWatched(c *config.Config, notice func(text string), watch func(endpoint string, cfg *letta.ClientConfig)) ([]*letta.Client, error) {
	var clients []*letta.Client
	for _, u := range c.Server.URLs {
		cfg, err := clientConfig(c, u, notice)
		if err != nil {
			return nil, err
		}
		client, err := letta.NewClient(cfg)
		if err == nil && watch != nil {
			watch(client.BaseURL(), &cfg) // by the name that the run calls it
			client, err = letta.NewClient(cfg)
		}
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// connectOne makes a client for the one server of a verb that asks only one.
func connectOne(c *config.Config, notice func(text string)) (*letta.Client, error) {
	switch len(c.Server.URLs) {
	case 0:
		return nil, exit.Hint(exit.Usagef("no server"), "give one with --server URL")
	case 1:
	default:
		return nil, exit.Hint(exit.Usagef("%d servers are configured, one can be asked", len(c.Server.URLs)), "choose one with --server URL")
	}
	clients, err := connect(c, notice)
	if err != nil {
		return nil, err
	}
	return clients[0], nil
}

// makeBackends makes what opens agents on each of the servers. prompter finds the prompts of
// their replies. progress, where it is not nil, is told of sends of which nothing is heard.
func makeBackends(c *config.Config, clients []*letta.Client, prompter agent.Prompter, progress func(agent.Progress)) ([]*agent.Backend, error) {
	cfg, err := agentConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Prompter, cfg.Progress = prompter, progress
	var backends []*agent.Backend
	for _, client := range clients {
		b, err := agent.NewBackend(client, cfg)
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		backends = append(backends, b)
	}
	return backends, nil
}

// agentConfig says how the agents of the run are made.
func agentConfig(c *config.Config) (agent.Config, error) {
	cfg := agent.Config{
		Model:         c.Agent.Model,
		System:        c.Agent.System,
		Tools:         c.Agent.Tools,
		ToolIDs:       c.Agent.ToolIDs,
		Tags:          c.Agent.Tags,
		ClientTools:   c.Agent.ClientTools,
		Temperature:   c.Agent.Temperature,
		ContextWindow: c.Agent.ContextWindow,
		Create:        c.Agent.Create,
		Keep:          c.Agent.Keep,
		KeepReasoning: c.Agent.KeepReasoning,
		MaxSteps:      c.Agent.MaxSteps,
		Approvals:     c.Agent.Approvals,
		MaxRounds:     c.Agent.MaxRounds,
		Conversation:  c.Agent.Conversation,
		Messages:      c.Output.Messages,
		StuckAfter:    c.Server.StuckAfter,

		OverrideModel: c.Agent.OverrideModel, OverrideSystem: c.Agent.OverrideSystem,
		// Rebuilding prompts begins with the system message, as it is before the
		// first send.
		SystemText: c.Tokens.Tokenizer != "",
	}
	if c.Agent.File != "" {
		b, err := input.Read(c.Agent.File, input.MaxAgentFile, input.Wait)
		if err != nil {
			return cfg, exit.Usagef("agent.file: %w", err)
		}
		cfg.File = b
	}
	return cfg, nil
}

// preflight asks every server what a run needs before anything is written: that it
// answers, lets us in, has the model, and gives token data. One that cannot be used
// ends it, however many others there are. What may pass is tried a few times; again is
// told before each.
func preflight(ctx context.Context, backends []*agent.Backend, model string, again func(server string, err error, wait time.Duration)) ([]serverInfo, error) {
	var infos []serverInfo
	for _, b := range backends {
		var info serverInfo
		err := tryAgain(ctx, func() (err error) {
			info, err = askServer(ctx, b, model)
			return err
		}, func(err error, wait time.Duration) { again(b.Client().BaseURL(), err, wait) })
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, unusable(b.Client(), err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// askServer is the preflight of one server.
func askServer(ctx context.Context, b *agent.Backend, model string) (serverInfo, error) {
	if err := b.Preflight(ctx); err != nil {
		return serverInfo{}, err
	}
	version, err := b.Client().Version(ctx)
	if err != nil {
		return serverInfo{}, err
	}
	info := serverInfo{URL: b.Client().BaseURL(), Version: version}
	if model != "" {
		found, err := b.Client().FindModel(ctx, model)
		if err != nil {
			return serverInfo{}, err
		}
		info.Model = describeServerModel(found.Model)
	}
	return info, nil
}

// The bounds of tryAgain: a server that is not there is given up after seconds, and
// one that lets every request time out is not asked for minutes.
const (
	preflightTries = 3
	preflightPause = time.Second // then twice as long
	preflightMost  = 30 * time.Second
	preflightAsked = 5 * time.Second // of a Retry-After, at most
)

// tryAgain asks again where an error may pass: nobody may be there to start an
// unattended run again.
func tryAgain(ctx context.Context, ask func() error, again func(err error, wait time.Duration)) error {
	began := time.Now()
	for try, pause := 1, preflightPause; ; try, pause = try+1, 2*pause {
		err := ask()
		if err == nil || try == preflightTries || !mayPass(err) || ctx.Err() != nil || time.Since(began) > preflightMost {
			return err
		}
		wait := pause
		if e, ok := errors.AsType[*letta.APIError](err); ok {
			wait = max(wait, min(e.RetryDelay(), preflightAsked))
		}
		again(err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mayPass reports whether an error is about the moment and not about the server: no
// connection, no room, no answer in time, or a failure of its own.
func mayPass(err error) bool {
	switch collector.Classify(err) {
	case collector.ClassAborted, collector.ClassConnection, collector.ClassRateLimited, collector.ClassUnavailable, collector.ClassTimeoutTotal, collector.ClassTimeoutIdle:
		return true
	case collector.ClassServerError:
		e, ok := errors.AsType[*letta.APIError](err)
		return ok && e.Status >= http.StatusInternalServerError // and not an answer that cannot be read
	default:
		return false
	}
}

// describeServerModel is what a server says about a model; nil where it has none.
func describeServerModel(m *letta.Model) *serverModel {
	if m == nil {
		return nil
	}
	name := m.Model
	if name == "" {
		name = m.Name
	}
	return &serverModel{Handle: m.Handle, Name: name, ContextWindow: m.ContextWindow, EndpointType: m.ModelEndpointType}
}

// unusable says which server it is about and what the user can do.
func unusable(client *letta.Client, err error) error {
	if !strings.Contains(err.Error(), client.BaseURL()) {
		err = fmt.Errorf("server %s: %w", client.BaseURL(), err)
	}
	err = exit.With(exit.Unusable, err)
	if run, ok := errors.AsType[*agent.ServerRunError](err); ok && run.Engine != "" {
		return exit.Hint(err, "the Letta server is there: look at the model engine behind it, and at its log")
	}
	switch {
	case errors.Is(err, collector.ErrAuth):
		return exit.Hint(err, "set server.password, or ROLLOUT_SERVER_PASSWORD, to the password of the server")
	case errors.Is(err, collector.ErrConnection), errors.Is(err, collector.ErrTimeout):
		return exit.Hint(err, "is the server running, and is the address right? a Letta server listens on port 8283")
	case letta.IsNotFound(err):
		return exit.Hint(err, "is the address that of a Letta server? it is given without /v1")
	default:
		return err
	}
}
