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

// A ClientConfig configures a Client. BaseURL is required. If another field is zero, its default
// applies.
type ClientConfig struct {
	// BaseURL is the http or https address of the server. It can have a path
	// ("https://host/letta"). A trailing /v1 is dropped. It must not contain a user or a password.
	BaseURL string
	// Password is the password of a server in secure mode. Other servers ignore it.
	Password Secret
	// Headers are sent with every request. Error messages never contain header values of eight
	// bytes or more.
	Headers http.Header
	// Version is the version in the User-Agent header, which is rollout/VERSION. The client always
	// sends a User-Agent, because otherwise the server omits the tools of agents.
	Version string

	// TLS sets certificate authorities and client certificates. If it is nil, the system's
	// certificate authorities are used.
	TLS *tls.Config
	// Proxy selects the proxy for a request. If it is nil, the usual environment variables select
	// the proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial opens connections. If it is nil, the client uses TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// ConnectTimeout limits dialing and the TLS handshake separately. Default 10 s.
	ConnectTimeout time.Duration
	// SendTimeout limits the duration of a whole send, including the wait until its answer can be
	// read. Default 30 min. Keep it well above a minute, because a send can stall for 60 s on a
	// healthy server.
	SendTimeout time.Duration
	// CallTimeout limits the duration of every other request. Default 2 min.
	CallTimeout time.Duration
	// IdleBodyTimeout limits the time between two bytes of an answer's body. Default 1 min.
	IdleBodyTimeout time.Duration

	// IdleConns limits the number of idle connections. Set it to the number of concurrent requests.
	// Otherwise connections are constantly closed and reopened. Default 64.
	IdleConns int
	// ReadBytes limits the total size of the replies that are read and decoded at the same time, in
	// bytes on the wire. Other replies wait in kernel buffers. A reply larger than ReadBytes is
	// read alone. A reply of unknown length counts as 1 MiB. Default 32 MiB.
	ReadBytes int64
	// ReceiveBufferBytes caps the kernel buffer of each connection, so that waiting replies do not
	// fill memory. It also limits the throughput of a connection to this number of bytes per round
	// trip. The default, 0, keeps the system's setting.
	ReceiveBufferBytes int
	// MaxReplyBytes limits the size of the answer to a send. Default 64 MiB.
	MaxReplyBytes int64
	// MaxCallBytes limits the size of every other answer except streamed lists. The records of a
	// rollout rarely exceed a megabyte. The default is the smaller of 16 MiB and MaxReplyBytes.
	MaxCallBytes int64
	// Decoder limits the content of a reply. ClientConfig.MaxReplyBytes takes precedence over
	// Decoder.MaxReplyBytes.
	Decoder tokenize.DecoderConfig

	// ReadRetries is the maximum number of retries of a small GET or a DELETE. The client retries
	// after a failed connection, an answer that cannot be decoded, a 429 answer, or a 5xx answer
	// other than 501 and 504. The default is 2. A negative value disables retries. No other request
	// is ever repeated.
	ReadRetries int

	// Inject, if not nil, can add headers such as traceparent to a request. The client's own
	// headers take precedence. Inject must be safe for concurrent use.
	Inject func(ctx context.Context, h http.Header)
	// Observe, if not nil, is called before each request and each retry. It returns the context for
	// the request and a function that receives the outcome. The returned function can be nil.
	// Observe must not block and must be safe for concurrent use.
	Observe func(ctx context.Context, op, method string) (context.Context, func(Exchange))

	// Notice, if not nil, is called once for each noteworthy property of the server. It must not
	// block.
	Notice func(text string)
}

// The default values of fields of ClientConfig.
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

// Validate returns all errors in the configuration, joined.
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
		add("password: must not contain a line break or NUL")
	}
	for name := range c.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "User-Agent", "Accept-Encoding", "Host", "Content-Length", "X-Stainless-Package-Version":
			add("header %s is reserved for the client", name)
		case "Idempotency-Key", "X-Idempotency-Key":
			add("header %s must not be set: it would make the transport repeat sends", name)
		}
	}
	return errors.Join(errs...)
}

// BaseURL normalizes the address of a server in the same way as [NewClient]. It removes a trailing
// slash and /v1.
func BaseURL(text string) (string, error) {
	u, err := parseBase(text)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// parseBase checks the base URL. A password can be in the part before the host or after a question
// mark. The errors never quote these parts. An unknown scheme is not quoted either, because
// "user:password@host" parses as a URL with the scheme user.
func parseBase(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("letta: server address is missing; want a URL such as http://localhost:8283")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("letta: server address is not a URL such as http://localhost:8283")
	}
	if u.User != nil {
		return nil, errors.New("letta: server address must not contain a user name or password; set the password separately")
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
