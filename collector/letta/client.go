package letta

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// A Client is a client of one server. It is safe for concurrent use.
type Client struct {
	cfg       ClientConfig
	base      string
	userAgent string
	http      *http.Client

	// reading is a semaphore with ReadBytes units. Each reply that is being read holds as many
	// units as it has bytes, so a slow reply uses up only its own size.
	reading           *semaphore.Weighted
	decoders, buffers sync.Pool

	// large has one element for each large answer that a call is reading.
	large chan struct{}
	// unsized has an element while a reply of unknown length is being read beyond chunkedBytes.
	unsized chan struct{}

	// secrets are removed from all text that comes from the server.
	secrets     scrubber
	version     atomic.Pointer[string]
	stepsBroken atomic.Bool
	// runsCursor is the query parameter that continues the list of runs, or nil if unknown.
	runsCursor atomic.Pointer[string]
	// traced is true if the server has ever returned a trace. untraced counts missing traces.
	traced   atomic.Bool
	untraced atomic.Int64
	// ahead is the time by which the server's clock is ahead of the local clock, according to the
	// Date header of the last answer. The header has a resolution of one second.
	ahead atomic.Pointer[time.Duration]

	mu sync.Mutex
	// noticed contains the text of every notice that was passed to ClientConfig.Notice. mu guards
	// it.
	noticed map[string]bool
}

// NewClient returns a client for cfg.BaseURL. It does not connect and starts no goroutine.
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
		// A redirect means that the address is wrong. Following it could leak the password or turn
		// a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// CloseIdle closes idle connections.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// BaseURL returns the address of the server.
func (c *Client) BaseURL() string { return c.base }

// notice passes text to cfg.Notice, unless it has already passed the same text.
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

// Clock returns the time by which the server's clock is ahead of the local clock. If that time is
// unknown, ok is false.
func (c *Client) Clock() (ahead time.Duration, ok bool) {
	if p := c.ahead.Load(); p != nil {
		return *p, true
	}
	return 0, false
}
