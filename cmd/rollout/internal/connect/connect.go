// Package connect creates the clients for the configured servers, and the configuration of their
// agents.
package connect

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

// ClientConfig returns the configuration for the client of one server.
func ClientConfig(c *config.Config, s *config.Server, notice func(text string)) (letta.ClientConfig, error) {
	tls, err := tlsOf(c)
	if err != nil {
		return letta.ClientConfig{}, err
	}
	return letta.ClientConfig{
		BaseURL:         s.URL,
		Password:        c.Server.Password.Secret,
		Version:         version.Read().Version,
		ConnectTimeout:  c.Server.ConnectTimeout,
		IdleBodyTimeout: c.Server.IdleTimeout,
		SendTimeout:     c.Server.Timeout,
		IdleConns:       c.InFlight(s),
		ReadBytes:       c.Server.ReadBytes,
		// Every buffer size that a kernel grants fits into a 32-bit int.
		ReceiveBufferBytes: int(min(c.Server.ReceiveBuffer, math.MaxInt32)),
		Headers:            c.HeadersOf(s),
		TLS:                tls,
		Notice:             notice,
	}, nil
}

// tlsOf returns a TLS configuration with the configured CA and client certificate. It returns nil
// if neither is set.
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
			return nil, exit.Usagef("server.ca_file: %s contains no PEM certificate", c.Server.CAFile)
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

// Clients creates a client for every server. It does not send requests. If watch is not nil,
// Clients calls it with each endpoint's name and client configuration, so that it can add observers
// to the configuration.
func Clients(c *config.Config, notice func(text string), watch func(endpoint string, cfg *letta.ClientConfig)) ([]*letta.Client, error) {
	var clients []*letta.Client
	for i := range c.Server.URLs {
		s := &c.Server.URLs[i]
		cfg, err := ClientConfig(c, s, notice)
		if err != nil {
			return nil, err
		}
		// The run uses the same name for the endpoint. NewClient reports an invalid URL.
		if name, err := letta.BaseURL(s.URL); err == nil && watch != nil {
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

// Backend creates the backend for a server. The parameter cfg is the configuration of the backend's
// agents.
func Backend(client *letta.Client, cfg agent.Config) (*agent.Backend, error) {
	b, err := agent.NewBackend(client, cfg)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return b, nil
}

// AgentConfig returns the configuration of agents, except for the fields that depend on the run.
func AgentConfig(c *config.Config) (agent.Config, error) {
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
		StuckAfter:    c.Server.StuckAfter,

		OverrideModel: c.Agent.OverrideModel, OverrideSystem: c.Agent.OverrideSystem,
		// Rebuilding prompts requires the agent's system message from before the first send.
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
