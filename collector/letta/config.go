package letta

import (
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

// A ClientConfig says how to reach one server. The zero value of each field but
// BaseURL is its documented default.
type ClientConfig struct {
	// BaseURL is where /v1 lies: http or https, a path before /v1 is allowed
	// ("https://host/letta"), a trailing /v1 is dropped. No user and no password.
	BaseURL string
	// Password of a server in secure mode. It is sent always when set; a server
	// that is not in secure mode ignores it.
	Password Secret
	// Headers are sent with every request, for proxies in between. Errors do not show
	// values of eight bytes and more.
	Headers http.Header
	// Version goes into the User-Agent, rollout/VERSION. There is always one: a
	// client without it gets agents without their tools.
	Version string

	// TLS holds own authorities and client certificates. Nil: the system's.
	TLS *tls.Config
	// Proxy chooses the proxy of a request. Nil: the usual environment variables.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial opens connections. Nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// ConnectTimeout bounds dialing and the TLS handshake, each. Default 10 s.
	ConnectTimeout time.Duration
	// SendTimeout bounds a send from start to end, with the wait for its turn to be read.
	// Default 30 min. Leave it well above a minute: a send may stall for 60 s on a healthy
	// server.
	SendTimeout time.Duration
	// CallTimeout bounds every other request. Default 2 min.
	CallTimeout time.Duration
	// IdleBodyTimeout bounds the time between two bytes of an answer once its
	// headers came. Default 1 min.
	IdleBodyTimeout time.Duration

	// IdleConns is how many idle connections are kept. Set it to the number of requests that
	// run at once, or connections are opened again and again. Default 64.
	IdleConns int
	// ReadBytes bounds the replies that are read and decoded at once, in bytes on the
	// wire; the others wait in the kernel. A larger reply is read alone, one that does
	// not say its length counts as 1 MiB. Default 32 MiB.
	ReadBytes int64
	// ReceiveBufferBytes caps the kernel's buffer of each connection, so that
	// waiting replies push back instead of filling memory. It also caps one
	// connection at that many bytes per round trip. Default 0: the system's.
	ReceiveBufferBytes int
	// MaxReplyBytes bounds the answer to a send, and a list that is read one by one.
	// Default 64 MiB.
	MaxReplyBytes int64
	// MaxCallBytes bounds every other answer: what the server keeps of a rollout is
	// seldom a megabyte. Default 16 MiB, or MaxReplyBytes where that is less.
	MaxCallBytes int64
	// Decoder bounds what is in a reply; its MaxReplyBytes is the one above.
	Decoder tokenize.DecoderConfig

	// ReadRetries is how often a small GET, or a DELETE, is repeated after an
	// answer of 429 or 5xx (but 501), or none. Default 2; negative: never.
	// A send, or anything else that changes something, is never repeated.
	ReadRetries int

	// Inject, where set, may add headers to a request, such as traceparent. What the
	// client itself sets wins. It is called from many goroutines.
	Inject func(ctx context.Context, h http.Header)
	// Observe, where set, is called before each request, also before one that is
	// repeated. The context that it returns is the request's, the function, which may be
	// nil, is called with what came of it. It is called from many goroutines and must
	// not block.
	Observe func(ctx context.Context, op, method string) (context.Context, func(Exchange))

	// Notice, where set, is told once about each thing that a person may want to
	// know about this server. It must not block.
	Notice func(text string)
}

// The defaults that a program may want to show.
const (
	DefaultConnectTimeout  = 10 * time.Second
	DefaultSendTimeout     = 30 * time.Minute
	DefaultIdleBodyTimeout = time.Minute
	DefaultReadBytes       = 32 << 20
)

func (c ClientConfig) withDefaults() ClientConfig {
	duration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	duration(&c.ConnectTimeout, DefaultConnectTimeout)
	duration(&c.SendTimeout, DefaultSendTimeout)
	duration(&c.CallTimeout, 2*time.Minute)
	duration(&c.IdleBodyTimeout, DefaultIdleBodyTimeout)
	if c.IdleConns == 0 {
		c.IdleConns = 64
	}
	if c.ReadBytes == 0 {
		c.ReadBytes = DefaultReadBytes
	}
	if c.MaxReplyBytes == 0 {
		c.MaxReplyBytes = 64 << 20
	}
	if c.MaxCallBytes == 0 {
		c.MaxCallBytes = min(16<<20, c.MaxReplyBytes)
	}
	if c.ReadRetries == 0 {
		c.ReadRetries = 2
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	c.Decoder.MaxReplyBytes = c.MaxReplyBytes
	return c
}

// Validate returns every complaint, joined.
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
		add("%d bytes of replies read at once: must not be negative", c.ReadBytes)
	}
	if c.ReceiveBufferBytes < 0 {
		add("receive buffer of %d bytes: must not be negative", c.ReceiveBufferBytes)
	}
	if c.MaxReplyBytes < 0 {
		add("largest reply of %d bytes: must not be negative", c.MaxReplyBytes)
	}
	if strings.ContainsAny(string(c.Password), "\r\n\x00") {
		add("password: holds a line break or NUL, which a header cannot carry")
	}
	for name := range c.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "User-Agent", "Accept-Encoding", "Host", "Content-Length", "X-Stainless-Package-Version":
			add("header %s: set by the client itself", name)
		case "Idempotency-Key", "X-Idempotency-Key":
			add("header %s: would let the transport repeat a send", name)
		}
	}
	return errors.Join(errs...)
}

// BaseURL returns the address of a server as [Client.BaseURL] gives it: without a
// trailing /v1 or slash. It is how a server is known before there is a client for it.
func BaseURL(text string) (string, error) {
	u, err := parseBase(text)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// parseBase checks the base URL. It repeats nothing of one where a password may be:
// before the host, where "user:password@host" may stand for a scheme, or after a ?.
func parseBase(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("letta: server address is missing, such as http://localhost:8283")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("letta: server address cannot be parsed; it should look like http://localhost:8283")
	}
	if u.User != nil {
		return nil, errors.New("letta: server address holds a user or a password; give the password apart from it")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("letta: server address must begin with http:// or https://, such as http://localhost:8283")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("letta: server address %q must not have a query or a fragment", u.Scheme+"://"+u.Host+u.Path)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawPath = ""
	return u, nil
}
