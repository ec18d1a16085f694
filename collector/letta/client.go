package letta

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// A Client talks to one server. Its methods may be called from many goroutines.
type Client struct {
	cfg       ClientConfig
	base      string
	userAgent string
	http      *http.Client

	// reading bounds the bytes of the replies that are being read, by ReadBytes: memory
	// follows them and not the requests in flight. It counts bytes and not replies, so that
	// a reply that comes slowly keeps others waiting only by its size.
	reading *semaphore.Weighted
	// decoders and buffers are kept between two replies, and between two calls.
	decoders, buffers sync.Pool

	// large holds one element for each large answer to a call that is being read.
	large chan struct{}
	// unsized holds an element while a reply that does not say its length is being
	// read beyond chunkedBytes: one at a time, whatever it becomes.
	unsized chan struct{}

	// secrets are taken out of every text of the server.
	secrets scrubber
	// version is what the server called itself in the last Health.
	version atomic.Pointer[string]
	// stepsBroken reports whether the server cannot list steps.
	stepsBroken atomic.Bool
	// runsCursor is the parameter that continues the list of runs; nil: not known yet.
	runsCursor atomic.Pointer[string]
	// traced reports whether the server has shown a trace, untraced counts those that it
	// did not have.
	traced   atomic.Bool
	untraced atomic.Int64
	// ahead is by how much the server's clock was ahead of ours, to the second, in the last
	// answer with a date.
	ahead atomic.Pointer[time.Duration]

	mu sync.Mutex
	// noticed has what ClientConfig.Notice was told; mu guards it.
	noticed map[string]bool
}

// NewClient returns a client for the server at cfg.BaseURL. It connects to
// nothing yet and starts no goroutine.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	base, err := parseBase(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg:       cfg,
		base:      base.String(),
		userAgent: "rollout/" + cfg.Version,
		reading:   semaphore.NewWeighted(cfg.ReadBytes),
		secrets:   clientSecrets(&cfg),
		large:     make(chan struct{}, largeCalls),
		unsized:   make(chan struct{}, 1),
		noticed:   map[string]bool{},
	}
	c.http = &http.Client{
		Transport: c.transport(),
		// A redirect means a wrong address. Following it could send the password
		// elsewhere, or turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// CloseIdle closes the connections that are not in use.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// BaseURL returns the address of the server.
func (c *Client) BaseURL() string { return c.base }

// notice tells cfg.Notice about a thing, once.
func (c *Client) notice(text string) {
	if c.cfg.Notice == nil {
		return
	}
	c.mu.Lock()
	first := !c.noticed[text]
	c.noticed[text] = true
	c.mu.Unlock()
	if first {
		c.cfg.Notice(text)
	}
}

// Clock returns by how much the server's clock is ahead of ours; ok is false where that is
// not known.
func (c *Client) Clock() (ahead time.Duration, ok bool) {
	if p := c.ahead.Load(); p != nil {
		return *p, true
	}
	return 0, false
}
