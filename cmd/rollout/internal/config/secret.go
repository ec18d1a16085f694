package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/collector/letta"
)

// A Secret is a value that must never be printed or stored. The user passes a reference to the
// value. Only the reference is shown.
type Secret struct {
	letta.Secret        // the value, which formatting never reveals
	ref          string // ${env:NAME} or ${file:/path}; empty if there is no secret
}

// Hidden replaces a secret in output.
const Hidden = "***"

// Reveal returns the value. It must be called only by code that sends the value.
func (s Secret) Reveal() string { return string(s.Secret) }

// ParseSecret resolves a reference. It refuses a literal value, because configuration files are
// copied, committed and mailed.
func ParseSecret(text string, getenv func(string) string) (Secret, error) {
	if text == "" {
		return Secret{}, nil
	}
	kind, name, ok := cutReference(text)
	if !ok {
		return Secret{}, fmt.Errorf("a secret must be a reference, ${env:NAME} or ${file:/path}")
	}
	if kind == "env" {
		v := getenv(name)
		if v == "" {
			return Secret{}, fmt.Errorf("the environment variable %s is not set: export it", name)
		}
		return Secret{letta.Secret(v), text}, nil
	}
	b, err := input.Read(name, input.MaxSecret, input.Wait)
	if err != nil {
		return Secret{}, err
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return Secret{}, fmt.Errorf("%s is empty", name)
	}
	return Secret{letta.Secret(v), text}, nil
}

var reference = regexp.MustCompile(`(?s)^\$\{(env|file):(.+)\}$`)

// cutReference splits ${env:NAME} or ${file:PATH}.
func cutReference(text string) (kind, name string, ok bool) {
	m := reference.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// Secrets returns the values that must not occur in any file of a run.
func (c *Config) Secrets() []string {
	out := append(c.Harness.Env.secrets(), c.Server.Password.Reveal(), c.Tokens.TapToken.Reveal())
	if u := c.Tokens.PolicyVersion.URL; u.ref != u.Reveal() {
		out = append(out, u.Reveal())
	}
	for _, v := range c.Server.Headers {
		out = append(out, v.text)
	}
	for i := range c.Server.URLs {
		for _, v := range c.Server.URLs[i].Headers {
			out = append(out, v.text)
		}
	}
	return out
}
