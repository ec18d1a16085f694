package letta

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

type request struct {
	op     string // the operation in words, for errors
	method string
	target target
	query  url.Values
	id     string // the header x-api-request-log-id, or empty
	// body is JSON unless contentType is set.
	body        []byte
	contentType string
	// secrets are strings in the body that must not appear in an error.
	secrets []string
	only200 bool // only status 200 counts as success, instead of any 2xx status
}

func (r *request) maxStatus() int {
	if r.only200 {
		return http.StatusOK
	}
	return 299
}

// The method once sends r without retries and returns the answer. The caller must close the body of
// the answer. The body cannot be rewound (GetBody is nil), and the request has no Idempotency-Key.
// So net/http cannot repeat the request. The body is a [bytes.Reader], because net/http sends the
// headers in a separate packet if reading the body could block.
func (c *Client) once(ctx context.Context, r *request) (*http.Response, error) {
	address := c.base + r.target.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	if c.cfg.Inject != nil {
		c.cfg.Inject(ctx, req.Header)
	}
	for name, values := range c.cfg.Headers {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
		if r.contentType != "" {
			req.Header.Set("Content-Type", r.contentType)
		}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.userAgent)
	if c.cfg.Password != "" {
		req.Header.Set("Authorization", "Bearer "+string(c.cfg.Password))
	}
	if r.id != "" {
		req.Header.Set("x-api-request-log-id", r.id)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		ahead := time.Until(at)
		c.ahead.Store(&ahead)
	}
	return resp, nil
}

// transport returns the client's transport. Its settings are based on measurements with 1 MB
// replies. HTTP/2 costs 37% of the throughput and needs six times the memory. With gzip, decoding
// takes six times as long. With 512 requests in flight, too few idle connections cost 20% of the
// throughput.
func (c *Client) transport() *http.Transport {
	cfg := &c.cfg
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	if n := cfg.ReceiveBufferBytes; n > 0 {
		plain := dial
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := plain(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
				err = tcp.SetReadBuffer(n)
				if err != nil {
					_ = conn.Close()
					return nil, err
				}
			}
			return conn, err
		}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy:               proxyOf(cfg.Proxy),
		DialContext:         dial,
		TLSHandshakeTimeout: cfg.ConnectTimeout,
		DisableCompression:  true,
		MaxIdleConns:        0, // no limit except MaxIdleConnsPerHost
		MaxIdleConnsPerHost: cfg.IdleConns,
		// IdleConnTimeout is below uvicorn's keep-alive timeout of 5 s. A POST fails with EOF if
		// the server has just closed the connection, and a POST is never repeated.
		IdleConnTimeout: 4 * time.Second,
		Protocols:       protocols,
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	return t
}
