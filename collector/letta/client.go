package letta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Client talks to one server. Its methods may be called from many goroutines.
type Client struct {
	cfg       ClientConfig
	base      string
	userAgent string
	http      *http.Client

	// reading bounds the bytes of the replies that are being read, ReadBytes, so that
	// memory follows them and not the requests in flight. Bytes, and not replies: a
	// reply that comes slowly keeps others from being read by its size alone.
	reading *semaphore.Weighted
	// decoders between two replies, and buffers between two calls.
	decoders, buffers sync.Pool

	// large holds one element for each large answer to a call that is being read.
	large chan struct{}
	// unsized holds an element while a reply that does not say its length is being
	// read beyond chunkedBytes: one at a time, whatever it becomes.
	unsized chan struct{}

	secrets     scrubber
	version     atomic.Pointer[string]
	stepsBroken atomic.Bool
	traced      atomic.Bool  // a trace was there once
	untraced    atomic.Int64 // traces that were not there
	// ahead is by how much the server's clock is ahead of ours, to the second, by the
	// last answer with a date.
	ahead atomic.Pointer[time.Duration]

	mu      sync.Mutex
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

// transport follows what was measured with 1 MB replies: HTTP/2 costs 37 % of the
// throughput and six times the memory, gzip six times the decoding, and too few
// idle connections 20 % at 512 in flight.
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
		MaxIdleConns:        0, // no limit but the one per host
		MaxIdleConnsPerHost: cfg.InFlight,
		// Below uvicorn's keep-alive of 5 s: a POST on a connection that the server
		// has just closed dies with EOF, and no POST is ever repeated.
		IdleConnTimeout: 4 * time.Second,
		Protocols:       protocols,
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	return t
}

// CloseIdle closes the connections that are not in use.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// BaseURL is the address of the server.
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

// A request is one call of the API.
type request struct {
	op     string // in words, for errors
	method string
	target target
	query  url.Values
	id     string // x-api-request-log-id, or empty
	// body is JSON, or, with a contentType, something else.
	body        []byte
	contentType string
	// secrets are in the body, and must not be in an error.
	secrets []string
}

// once sends r and returns the answer, whose body the caller closes. It never
// repeats: the body cannot be rewound (no GetBody) and there is no
// Idempotency-Key, so net/http does not either.
func (c *Client) once(ctx context.Context, r *request) (*http.Response, error) {
	address := c.base + r.target.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = &unrewindable{r.body}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, err
	}
	if c.cfg.Inject != nil {
		c.cfg.Inject(ctx, req.Header)
	}
	for name, values := range c.cfg.Headers {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if r.body != nil {
		req.ContentLength = int64(len(r.body))
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

// Clock is by how much the server's clock is ahead of ours, where that is known.
func (c *Client) Clock() (ahead time.Duration, ok bool) {
	if p := c.ahead.Load(); p != nil {
		return *p, true
	}
	return 0, false
}

// unrewindable is a body of a kind for which http.NewRequest sets no GetBody.
type unrewindable struct{ rest []byte }

func (u *unrewindable) Read(p []byte) (int, error) {
	if len(u.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// transportError is an APIError without an answer.
func (c *Client) transportError(ctx context.Context, r *request, err error) *APIError {
	return &APIError{Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Err: classifyTransport(ctx, err)}
}

// statusError makes an APIError of an answer and reads its body, as far as a
// person would.
func (c *Client) statusError(r *request, resp *http.Response, body io.Reader) *APIError {
	text, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // what came before a failure still says something
	_, _ = io.CopyN(io.Discard, body, 256<<10)          // so that the connection can be used again
	e := &APIError{
		Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id,
		Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, time.Now()),
	}
	secrets := c.secrets.with(r.secrets)
	e.Code, e.Detail = parseErrorBody(secrets.scrub(string(text)), secrets)
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		e.Detail = oneLine(secrets.scrub("redirected to " + withoutParameters(to) + "; give that address, without the path from /v1 on"))
	}
	e.Err = classifyStatus(e)
	return e
}

// withoutParameters leaves out of an address what may be a secret of the one who sent
// it: user, query and fragment.
func withoutParameters(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is not a URL"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// call sends a small request and gives the answer to out, unless out is nil. GET and DELETE are repeated a few times where that may help.
func (c *Client) call(ctx context.Context, r *request, in any, out out) error {
	if r.target.err != nil {
		return fmt.Errorf("%s: %w", r.op, r.target.err)
	}
	if in != nil {
		b, err := Marshal(in)
		if err != nil {
			return fmt.Errorf("%s: encode: %w", r.op, err)
		}
		r.body = b
	}
	pause := 100 * time.Millisecond
	for try := 0; ; try++ {
		err := c.callOnce(ctx, r, out)
		if err == nil || try >= c.cfg.ReadRetries || !mayRepeat(r, err) || ctx.Err() != nil {
			return err
		}
		wait := pause << (2 * try)
		if e := (*APIError)(nil); errors.As(err, &e) && e.RetryAfter > wait {
			wait = min(e.RetryAfter, 5*time.Second)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// mayRepeat says that the request changes nothing, or nothing more, when it comes
// twice, and that the failure may pass.
func mayRepeat(r *request, err error) bool {
	if r.method != http.MethodGet && r.method != http.MethodDelete {
		return false
	}
	return errors.Is(err, ErrConnection) || errors.Is(err, ErrUnavailable) ||
		errors.Is(err, ErrBusy) || errors.Is(err, ErrServer)
}

func (c *Client) callOnce(ctx context.Context, r *request, out out) (err error) {
	ctx, seen := c.observe(ctx, r)
	defer func() { seen.done(err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := c.once(ctx, r) //nolint:bodyclose // the watched body closes it
	if err != nil {
		return c.transportError(ctx, r, err)
	}
	body := c.watch(resp.Body, stop)
	defer body.close()
	seen.answered(resp)
	seen.reads(body)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.statusError(r, resp, body)
	}
	undecoded := error(nil)
	if list, ok := out.(list); ok {
		undecoded, err = list.decode(body)
	} else if err = checkLength(resp, c.cfg.MaxCallBytes); err == nil {
		whole, _ := out.(whole)
		undecoded, err = c.decodeWhole(ctx, body, resp.ContentLength, whole)
	}
	switch {
	case err != nil:
		return c.transportError(ctx, r, err)
	case undecoded != nil:
		return &APIError{
			Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Status: resp.StatusCode,
			Detail: oneLine(c.secrets.with(r.secrets).scrub("answer cannot be decoded: " + undecoded.Error())),
			Err:    &classed{ErrServer, undecoded},
		}
	}
	return nil
}

// Answers to calls above largeCall bytes are read a few at a time.
const (
	largeCall  = 1 << 20
	largeCalls = 2
)

// An out takes an answer: nil, a whole, or a list.
type out any

// A whole takes the text of an answer.
type whole func(text string) error

// plain decodes with encoding/json.
func plain(v any) whole {
	return func(text string) error { return json.Unmarshal([]byte(text), v) }
}

// fetch makes a call that is answered with an object.
func fetch[T any, P reader[T]](ctx context.Context, c *Client, r *request, in any) (*T, error) {
	var v *T
	err := c.call(ctx, r, in, whole(func(text string) (err error) {
		v, err = Read[T, P](text)
		return err
	}))
	return v, err
}

// fetchList gets a list of objects.
func fetchList[T any, P reader[T]](ctx context.Context, c *Client, r *request) ([]T, error) {
	var v []T
	err := c.call(ctx, r, nil, whole(func(text string) (err error) {
		v, err = ReadList[T, P](text)
		return err
	}))
	return v, err
}

// decodeWhole reads an answer of length bytes, -1 where that is not known, and gives it to
// decode, unless that is nil. err is why it could not be read, undecoded why it could not
// be decoded.
func (c *Client) decodeWhole(ctx context.Context, body *watchedBody, length int64, decode whole) (undecoded, err error) {
	most := c.cfg.MaxCallBytes
	var text strings.Builder
	text.Grow(int(min(max(length, 512), largeCall)))
	read, _ := c.buffers.Get().(*[]byte)
	if read == nil {
		read = new(make([]byte, 16<<10))
	}
	defer c.buffers.Put(read)
	large := false
	for err == nil {
		var n int
		n, err = body.Read(*read)
		if int64(text.Len()+n) > most {
			return nil, tooLong(most)
		}
		text.Write((*read)[:n])
		if err == nil && !large && text.Len() >= largeCall {
			// Few need as much; a server that gives it to all must not fill the memory.
			large = true
			body.pause()
			select {
			case c.large <- struct{}{}:
				defer func() { <-c.large }()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if length > largeCall {
				text.Grow(int(length) - text.Len())
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if decode == nil {
		return nil, nil
	}
	return decode(text.String()), nil
}

func tooLong(most int64) error {
	return &tokenize.DecodeError{Offset: most, Err: fmt.Errorf("answer of more than %d bytes: %w", most, tokenize.ErrTooLarge)}
}

// checkLength refuses an answer that says itself that it is too long, before any
// of it is read.
func checkLength(resp *http.Response, most int64) error {
	if resp.ContentLength <= most {
		return nil
	}
	return &tokenize.DecodeError{Err: fmt.Errorf("answer of %d bytes, more than the %d allowed: %w",
		resp.ContentLength, most, tokenize.ErrTooLarge)}
}

// watch returns the body under a timer: stop is called with errStalled when no
// byte came for IdleBodyTimeout.
func (c *Client) watch(body io.ReadCloser, stop context.CancelCauseFunc) *watchedBody {
	idle := c.cfg.IdleBodyTimeout
	return &watchedBody{body: body, idle: idle, timer: time.AfterFunc(idle, func() {
		stop(fmt.Errorf("%w: no byte for %v", errStalled, idle))
	})}
}

type watchedBody struct {
	body  io.ReadCloser
	idle  time.Duration
	timer *time.Timer
	read  int64
}

func (w *watchedBody) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	n, err := w.body.Read(p)
	w.read += int64(n)
	return n, err
}

// pause ends the watch until the next Read: what waits for others to be read waits for
// nothing that the server does.
func (w *watchedBody) pause() { w.timer.Stop() }

// close ends the watch. What closing a body for reading says concerns nobody.
func (w *watchedBody) close() {
	w.timer.Stop()
	_ = w.body.Close()
}

// formFile encodes a form with one file.
func formFile(name string, content []byte, fields map[string]string) (body []byte, contentType string, err error) {
	var buf writeBuffer
	w := multipart.NewWriter(&buf)
	for k, v := range fields {
		if err := w.WriteField(k, v); err != nil {
			return nil, "", err
		}
	}
	part, err := w.CreateFormFile("file", name)
	if err != nil {
		return nil, "", err
	}
	if _, err := part.Write(content); err != nil {
		return nil, "", err
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return buf.b, w.FormDataContentType(), nil
}

type writeBuffer struct{ b []byte }

func (w *writeBuffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
