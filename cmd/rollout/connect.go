package main

import (
	"crypto/tls"
	"crypto/x509"
	"math"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
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
		Version:         version.Read().Version,
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
		// By the name that the run calls it; NewClient complains where it has none.
		if name, err := letta.BaseURL(u); err == nil && watch != nil {
			watch(name, &cfg)
		}
		client, err := letta.NewClient(cfg)
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
