package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A Continuer gives engines the tokens of the true history where the server re-rendered them
// in another way.
type Continuer interface {
	// Prompt returns the prompt to send to the engine instead of asked, or nil for asked
	// itself, and the number of its turns that differ from asked. It must be quick, because
	// the call waits for it. The proxy catches and counts a panic.
	Prompt(asked []int32) (sent []int32, spliced int)
	// Answered is told of each call, also of one that failed, before its answer ends: c.Prompt
	// is what the engine was sent, and c.Asked what the server had sent, nil if that is the
	// same. c has no output if the engine had another prompt. c and what it refers to are
	// valid until Answered returns.
	Answered(c *tap.Call)
}

// Config says what a Proxy does. The zero value of a field means its default.
type Config struct {
	// Engines are the base URLs, without a query. At least one.
	Engines []*url.URL
	// Keep is given each call that ended, and must not block. It reports false if the call is
	// not kept. The call and what it refers to are valid until it returns. Default: nobody is
	// told.
	Keep func(*tap.Call) bool
	// Unkept returns the reason why calls that Keep took are currently not kept, or nil.
	// /healthz reports it. Default: calls are kept.
	Unkept func() error
	// Continuer changes prompts. Each answer reports the change (see marker), even if there
	// is none. Default: prompts and answers pass unchanged.
	Continuer Continuer
	// Set overrides how engines sample.
	Set Set
	// AskIDs adds what makes an engine answer with token ids and log-probabilities.
	AskIDs bool
	// Pages serves the paths under /tap/. Default: they pass like others.
	Pages http.Handler

	// BodyBytes bounds the body of a request that is read. A longer one passes unread.
	// Default 16 MiB.
	BodyBytes int64
	// MemoryBytes bounds the bodies that are held at a time. What is beyond passes unread.
	// Default 1 GiB.
	MemoryBytes int64
	// HealthEvery is the time between two checks of an engine. Default 5 s.
	HealthEvery time.Duration
	// Log has what happens to engines, and the first of each kind of fault. It never has
	// bodies, headers or passwords. Default: nothing.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Keep == nil {
		c.Keep = func(*tap.Call) bool { return true }
	}
	if c.Unkept == nil {
		c.Unkept = func() error { return nil }
	}
	if c.BodyBytes == 0 {
		c.BodyBytes = 16 << 20
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 1 << 30
	}
	if c.HealthEvery == 0 {
		c.HealthEvery = 5 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns all complaints about c.
func (c Config) Validate() error {
	var bad []error
	if len(c.Engines) == 0 {
		bad = append(bad, errors.New("proxy: engines: none"))
	}
	seen := map[string]bool{}
	for i, u := range c.Engines {
		switch {
		case u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			bad = append(bad, fmt.Errorf("proxy: engines: number %d is not a URL such as http://127.0.0.1:30000", i+1))
		case u.RawQuery != "" || u.Fragment != "":
			bad = append(bad, fmt.Errorf("proxy: engines: %s: must have neither ? nor #", u.Redacted()))
		case seen[u.Host+u.Path]:
			bad = append(bad, fmt.Errorf("proxy: engines: %s: given twice", u.Redacted()))
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
