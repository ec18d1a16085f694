package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Continuer replaces re-rendered history in prompts with the tokens that the engine sampled.
type Continuer interface {
	// Prompt receives the server's prompt. It returns the prompt to send to the engine instead, and
	// the number of turns in which the two prompts differ. If the server's prompt must be sent
	// unchanged, Prompt returns nil. Prompt must be fast, because the call waits for it. If Prompt
	// panics, the proxy recovers and counts the panic.
	Prompt(asked []int32) (sent []int32, spliced int)
	// Answered receives each call, successful or not, before the client has the whole answer.
	// c.Prompt is the prompt that was sent. c.Asked is the server's prompt, or nil if the server's
	// prompt was sent unchanged. If the engine used a prompt that differs from c.Prompt, c has no
	// output. c and its memory are valid only until Answered returns.
	Answered(c *tap.Call)
}

// Config configures a Proxy. In every field except Engines, zero selects the default.
type Config struct {
	// Engines contains the base URLs of the engines, without a query. At least one is required.
	Engines []*url.URL
	// Keep receives each finished call and reports whether it accepted the call. Keep must not
	// block. The call and its memory are valid only until Keep returns. By default, calls are
	// discarded.
	Keep func(*tap.Call) bool
	// Unkept returns nil, or the reason why calls that Keep accepted are currently not being
	// stored. The page /healthz reports the reason. By default, Unkept returns nil.
	Unkept func() error
	// Continuer changes prompts. If it is set, every answer is marked, even if the prompt was not
	// changed (see The mark in the package comment). By default, prompts and answers are forwarded
	// unchanged.
	Continuer Continuer
	// Set overrides sampling parameters.
	Set Set
	// AskIDs makes the proxy add members to requests, so that the engine returns token ids and
	// log-probabilities.
	AskIDs bool
	// Inside selects the values from inside a call that the proxy requests and records. Weight versions
	// are always recorded. By default, nothing else is.
	Inside tokenize.Inside
	// Pages serves the paths under /tap/. By default, these requests are forwarded like all others.
	Pages http.Handler

	// Sessions keeps the sessions that the proxy serves under /r (see Sessions in the package
	// comment). By default, these paths are forwarded like all others.
	Sessions *store.Store
	// Continuity replaces answers that a client sent back in another form with the engine's own texts
	// (see Continuity in the package comment). It applies only to sessions. By default, the messages
	// are forwarded unchanged.
	Continuity bool
	// Renderer renders the prompts of sessions, and parses the outputs. The engines then get token ids (see
	// Rendered prompts in the package comment). By default, the engines render the prompts. A Renderer cannot
	// be used with Inside.Experts or Inside.SamplingMask.
	Renderer Renderer
	// Token guards all paths except /healthz and the paths of sessions. A client sends it as
	// Authorization: Bearer TOKEN or as X-Api-Key, and the proxy does not forward it. By default,
	// these paths are open to every client that can connect.
	Token string
	// HealthEvery is the time between two health checks of an engine. Default 5 s.
	HealthEvery time.Duration
	// Log receives changes in the health of engines, and the first fault of each kind. The log
	// messages never contain bodies, headers or passwords. By default, they are discarded.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Keep == nil {
		c.Keep = func(*tap.Call) bool { return true }
	}
	if c.Unkept == nil {
		c.Unkept = func() error { return nil }
	}
	c.HealthEvery = cmp.Or(c.HealthEvery, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Validate joins and returns all errors that it finds in c.
func (c Config) Validate() error {
	var bad []error
	if len(c.Engines) == 0 {
		bad = append(bad, errors.New("proxy: engines: at least one is required"))
	}
	seen := map[string]bool{}
	for i, u := range c.Engines {
		switch {
		case u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			bad = append(bad, fmt.Errorf("proxy: engines: engine %d is not a URL such as http://127.0.0.1:30000", i+1))
		case u.RawQuery != "" || u.Fragment != "":
			bad = append(bad, fmt.Errorf("proxy: engines: %s: must not have a query or fragment", u.Redacted()))
		case seen[u.Host+u.Path]:
			bad = append(bad, fmt.Errorf("proxy: engines: %s is listed twice", u.Redacted()))
		default:
			seen[u.Host+u.Path] = true
		}
	}
	if c.Renderer != nil && len(insideAsks(c.Inside)) > 0 {
		bad = append(bad, errors.New("proxy: routed experts and sampling masks cannot be recorded with rendered prompts; turn one of them off"))
	}
	if c.HealthEvery < 0 {
		bad = append(bad, fmt.Errorf("proxy: health every: %v: must be ≥ 0", c.HealthEvery))
	}
	return errors.Join(bad...)
}
