package letta

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A ClientConfig configures a Client. A zero field, except BaseURL, means its default.
type ClientConfig struct {
	// BaseURL is the http or https address of the server. It can have a path
	// ("https://host/letta"), and a trailing /v1 is dropped. It has no user or password.
	BaseURL string
	// Password is the password of a server in secure mode. Other servers ignore it.
	Password Secret
	// Headers are sent with every request. Errors do not show values of eight bytes or more.
	Headers http.Header
	// Version goes into the User-Agent, rollout/VERSION. The User-Agent is never empty: the
	// server omits an agent's tools for a client without one.
	Version string

	// TLS sets certificate authorities and client certificates. Nil: the system's.
	TLS *tls.Config
	// Proxy selects the proxy of a request. Nil: the usual environment variables.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial opens connections. Nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// ConnectTimeout bounds dialing and the TLS handshake separately. Default 10 s.
	ConnectTimeout time.Duration
	// SendTimeout bounds a whole send, including the wait until its answer can be read. Default
	// 30 min. Keep it well above a minute: a send can stall for 60 s on a healthy server.
	SendTimeout time.Duration
	// CallTimeout bounds every other request. Default 2 min.
	CallTimeout time.Duration
	// IdleBodyTimeout bounds the time between two bytes of an answer's body. Default 1 min.
	IdleBodyTimeout time.Duration

	// IdleConns bounds the idle connections. Set it to the number of concurrent requests, or
	// connections are constantly reopened. Default 64.
	IdleConns int
	// ReadBytes bounds the replies that are read and decoded at once, in bytes on the wire. Other
	// replies wait in the kernel. A larger reply is read alone, and a reply of unknown length
	// counts as 1 MiB. Default 32 MiB.
	ReadBytes int64
	// ReceiveBufferBytes caps the kernel buffer of each connection, so that waiting replies do
	// not fill memory. It also limits a connection to that many bytes per round trip. Default 0:
	// the system's.
	ReceiveBufferBytes int
	// MaxReplyBytes bounds the answer to a send, and a streamed list. Default 64 MiB.
	MaxReplyBytes int64
	// MaxCallBytes bounds every other answer. The record of a rollout rarely exceeds a megabyte.
	// Default 16 MiB, or MaxReplyBytes if that is less.
	MaxCallBytes int64
	// Decoder bounds the content of a reply. MaxReplyBytes above replaces its MaxReplyBytes.
	Decoder tokenize.DecoderConfig

	// ReadRetries is the number of retries of a small GET or a DELETE after 429, 5xx (except 501)
	// or no answer. Default 2; negative: none. No other request is ever repeated.
	ReadRetries int

	// Inject can add headers, such as traceparent; the client's own headers take precedence. It
	// must be safe for concurrent use. It can be nil.
	Inject func(ctx context.Context, h http.Header)
	// Observe is called before each request and each retry. It returns the context of the request
	// and a function, or nil, for the outcome. It must not block and must be safe for concurrent
	// use. It can be nil.
	Observe func(ctx context.Context, op, method string) (context.Context, func(Exchange))

	// Notice is called once per noteworthy property of the server. It must not block. It can be
	// nil.
	Notice func(text string)
}

// Exported defaults.
const (
	DefaultConnectTimeout  = 10 * time.Second
	DefaultSendTimeout     = 30 * time.Minute
	DefaultIdleBodyTimeout = time.Minute
	DefaultReadBytes       = 32 << 20
)

func (c ClientConfig) withDefaults() ClientConfig {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.SendTimeout = cmp.Or(c.SendTimeout, DefaultSendTimeout)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Minute)
	c.IdleBodyTimeout = cmp.Or(c.IdleBodyTimeout, DefaultIdleBodyTimeout)
	c.IdleConns = cmp.Or(c.IdleConns, 64)
	c.ReadBytes = cmp.Or(c.ReadBytes, DefaultReadBytes)
	c.MaxReplyBytes = cmp.Or(c.MaxReplyBytes, 64<<20)
	c.MaxCallBytes = cmp.Or(c.MaxCallBytes, min(16<<20, c.MaxReplyBytes))
	c.ReadRetries = cmp.Or(c.ReadRetries, 2)
	c.Version = cmp.Or(c.Version, "dev")
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	c.Decoder.MaxReplyBytes = c.MaxReplyBytes
	return c
}

// Validate returns all errors of the configuration, joined.
func (c ClientConfig) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf("letta: "+format, args...)) }
	if _, err := parseBase(c.BaseURL); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"connect timeout", c.ConnectTimeout}, {"send timeout", c.SendTimeout}, {"call timeout", c.CallTimeout}, {"idle body timeout", c.IdleBodyTimeout}} {
		if d.d < 0 {
			add("%s %v: must not be negative", d.name, d.d)
		}
	}
	if c.IdleConns < 0 {
		add("idle connections %d: must not be negative", c.IdleConns)
	}
	if c.ReadBytes < 0 {
		add("read bytes %d: must not be negative", c.ReadBytes)
	}
	if c.ReceiveBufferBytes < 0 {
		add("receive buffer bytes %d: must not be negative", c.ReceiveBufferBytes)
	}
	if c.MaxReplyBytes < 0 {
		add("max reply bytes %d: must not be negative", c.MaxReplyBytes)
	}
	if strings.ContainsAny(string(c.Password), "\r\n\x00") {
		add("password: contains a line break or NUL, which is invalid in a header")
	}
	for name := range c.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "User-Agent", "Accept-Encoding", "Host", "Content-Length", "X-Stainless-Package-Version":
			add("header %s: reserved for the client", name)
		case "Idempotency-Key", "X-Idempotency-Key":
			add("header %s: would make the transport repeat sends", name)
		}
	}
	return errors.Join(errs...)
}

// BaseURL normalizes the address of a server like [Client.BaseURL], without a trailing /v1 or
// slash, before a client exists.
func BaseURL(text string) (string, error) {
	u, err := parseBase(text)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// parseBase checks the base URL. Its errors do not quote the parts that can contain a password:
// the part before the host, because "user:password@host" can look like a scheme, and the part
// after a ?.
func parseBase(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("letta: server address is missing; want a URL such as http://localhost:8283")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("letta: server address is not a URL such as http://localhost:8283")
	}
	if u.User != nil {
		return nil, errors.New("letta: server address contains a user or a password; set the password separately")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("letta: server address must begin with http:// or https://, such as http://localhost:8283")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("letta: server address %q must not have a query or fragment", u.Scheme+"://"+u.Host+u.Path)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawPath = ""
	return u, nil
}
