package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A Continuer replaces re-rendered history in prompts with the tokens that the engine sampled.
type Continuer interface {
	// Prompt returns the prompt to send to the engine instead of asked, and the number of turns in
	// which this prompt differs from asked. It returns nil if asked is to be sent unchanged. Prompt
	// must be fast, because the call waits for it. If it panics, the proxy recovers and counts the
	// panic.
	Prompt(asked []int32) (sent []int32, spliced int)
	// Answered is called for each call, successful or not, before the client has the whole answer.
	// c.Prompt is the prompt that was sent. c.Asked is the server's prompt, or nil if it is the
	// same. If the engine used a different prompt, c has no output. c and its memory are valid only
	// until Answered returns.
	Answered(c *tap.Call)
}

// Config configures a Proxy. A field with a zero value has its default.
type Config struct {
	// Engines contains the base URLs of the engines, without a query. At least one is required.
	Engines []*url.URL
	// Keep is called with each finished call and must not block. It reports whether it kept the
	// call. The call and its memory are valid only until Keep returns. By default, calls are
	// discarded.
	Keep func(*tap.Call) bool
	// Unkept returns the reason why calls that Keep accepted are currently not stored, or nil. The
	// page /healthz reports it. By default, Unkept returns nil.
	Unkept func() error
	// Continuer changes prompts. If it is set, every answer is marked, even if the prompt was not
	// changed (see The mark in the package comment). By default, prompts and answers are forwarded
	// unchanged.
	Continuer Continuer
	// Set overrides sampling parameters.
	Set Set
	// AskIDs adds members to requests that make the engine return token ids and log-probabilities.
	AskIDs bool
	// Pages serves the paths under /tap/. By default, these requests are forwarded like all others.
	Pages http.Handler

	// BodyBytes limits the size of a request body that is parsed. Longer bodies are forwarded
	// without being parsed. Default 16 MiB.
	BodyBytes int64
	// MemoryBytes limits the total size of the bodies in memory. Further bodies are forwarded
	// without being parsed. Default 1 GiB.
	MemoryBytes int64
	// HealthEvery is the time between two health checks of an engine. Default 5 s.
	HealthEvery time.Duration
	// Log receives changes in the health of engines, and the first fault of each kind. The messages
	// never contain bodies, headers or passwords. By default, they are discarded.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Keep == nil {
		c.Keep = func(*tap.Call) bool { return true }
	}
	if c.Unkept == nil {
		c.Unkept = func() error { return nil }
	}
	c.BodyBytes = cmp.Or(c.BodyBytes, 16<<20)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 1<<30)
	c.HealthEvery = cmp.Or(c.HealthEvery, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns all errors in c, joined.
func (c Config) Validate() error {
	var bad []error
	if len(c.Engines) == 0 {
		bad = append(bad, errors.New("proxy: engines: at least one is required"))
	}
	seen := map[string]bool{}
	for i, u := range c.Engines {
		switch {
		case u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			bad = append(bad, fmt.Errorf("proxy: engines: number %d is not a URL such as http://127.0.0.1:30000", i+1))
		case u.RawQuery != "" || u.Fragment != "":
			bad = append(bad, fmt.Errorf("proxy: engines: %s: must not have a query or fragment", u.Redacted()))
		case seen[u.Host+u.Path]:
			bad = append(bad, fmt.Errorf("proxy: engines: %s: duplicate", u.Redacted()))
		default:
			seen[u.Host+u.Path] = true
		}
	}
	for _, v := range []struct {
		name string
		n    int64
	}{{"body bytes", c.BodyBytes}, {"memory bytes", c.MemoryBytes}, {"health every", int64(c.HealthEvery)}} {
		if v.n < 0 {
			bad = append(bad, fmt.Errorf("proxy: %s: %d: must be ≥ 0", v.name, v.n))
		}
	}
	return errors.Join(bad...)
}
