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

// A Continuer replaces re-rendered history in prompts by the tokens that were really sampled.
type Continuer interface {
	// Prompt returns the prompt to send to the engine instead of asked, or nil to send asked, and
	// the number of turns that differ from asked. It must be quick, because the call waits for it.
	// The proxy recovers and counts a panic.
	Prompt(asked []int32) (sent []int32, spliced int)
	// Answered is called for each call, successful or not, before its answer ends. c.Prompt is the
	// sent prompt. c.Asked is the server's prompt, or nil if it is the same. c has no output if the
	// engine used another prompt. c and its memory are valid until Answered returns.
	Answered(c *tap.Call)
}

// Config configures a Proxy. A zero field means its default.
type Config struct {
	// Engines are the base URLs, without a query. At least one is required.
	Engines []*url.URL
	// Keep is called with each finished call and must not block. It reports whether it kept the
	// call. The call and its memory are valid until Keep returns. Default: calls are discarded.
	Keep func(*tap.Call) bool
	// Unkept returns why accepted calls are currently not kept, or nil, for /healthz. Default: nil.
	Unkept func() error
	// Continuer changes prompts. If set, each answer gets a mark (see marker), even without a
	// change. Default: prompts and answers pass unchanged.
	Continuer Continuer
	// Set overrides sampling parameters.
	Set Set
	// AskIDs adds the members that make an engine return token ids and log-probabilities.
	AskIDs bool
	// Pages serves the paths under /tap/. Default: they are forwarded like others.
	Pages http.Handler

	// BodyBytes bounds the request bodies that are parsed. Longer ones pass unread. Default 16 MiB.
	BodyBytes int64
	// MemoryBytes bounds the bodies held at a time. Bodies beyond it pass unread. Default 1 GiB.
	MemoryBytes int64
	// HealthEvery is the time between two health checks of an engine. Default 5 s.
	HealthEvery time.Duration
	// Log logs changes of engines' health, and the first fault of each kind. It never gets bodies,
	// headers or passwords. Default: discard.
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

// Validate returns all errors of c, joined.
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
