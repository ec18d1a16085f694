// Package taphttp contains what the two HTTP services of a tap share: the segments of its spool
// (package tap) and its sealed sessions (package session/store). A service has a list, such as
// GET /tap/segments, and items, such as GET /tap/segments/7.
package taphttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/sink/frame"
)

// Config configures a Client. Token and Answered are optional.
type Config struct {
	URL     string        // the listen address of the tap, such as http://tap:8484
	Token   string        // the tap's token, a secret
	Path    string        // the path of the list
	Version int           // the highest version of the list that the caller can read
	Timeout time.Duration // of a request, in addition to the time that it asks the tap to wait
	// Tap and Command describe the server in errors, such as "a tap" and "rollout tap".
	Tap, Command string
	// Answered is called with the header of each response and the time when the request was sent.
	Answered func(sent time.Time, h http.Header)
}

// A Client sends requests to one service of a tap. Its methods block until the tap answers. If ctx
// ends first, they return the cause. No error contains the token or the password in the URL.
type Client struct {
	// Patience is how long a request is retried after a transient error: a connection that fails or
	// is cut off, and the statuses 408, 429, 500, 502, 503 and 504. Default: not at all.
	Patience time.Duration

	cfg  Config
	base *url.URL
	http *http.Client
}

const (
	maxWait    = 30 * time.Second
	firstPause = 100 * time.Millisecond // the pause before a retry grows from firstPause to maxPause
	maxPause   = 5 * time.Second
	maxList    = 16 << 20 // maximum size of a list, in bytes
)

// New returns a Client. It sends no request.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("invalid URL (want http://HOST:PORT)") // the URL can contain a password
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		transport = &http.Transport{}
	}
	transport = transport.Clone()
	transport.DisableCompression = true // token ids are not worth compressing
	return &Client{cfg: cfg, base: u, http: &http.Client{Transport: transport}}, nil
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// List decodes the list of the items after the item with the given name into list. If there is no
// such item, the tap waits for one. If the version is too high, the error wraps [frame.ErrNewer].
func (c *Client) List(ctx context.Context, after string, wait time.Duration, list any) error {
	query := url.Values{"after": {after}}
	return c.get(ctx, c.cfg.Path, query, wait, nil, func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return c.Refused(resp)
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxList))
		if err != nil {
			return c.Failed(err)
		}
		var head struct{ Version int }
		if err := json.Unmarshal(text, &head); err == nil && head.Version > c.cfg.Version {
			return fmt.Errorf("%s: %w: the tap writes version %d, but this program reads versions up to %d; upgrade rollout",
				c.base.Redacted(), frame.ErrNewer, head.Version, c.cfg.Version)
		}
		if err := json.Unmarshal(text, list); err != nil || head.Version < 1 {
			return c.NotTap("its answer is not a list of " + path.Base(c.cfg.Path))
		}
		return nil
	})
}

// Get requests an item, passes the response to the function read, whatever its status, and closes
// the body. If the item has nothing to send, the tap waits. header can be nil.
func (c *Client) Get(ctx context.Context, item string, wait time.Duration, header http.Header, read func(*http.Response) error) error {
	return c.get(ctx, c.cfg.Path+"/"+item, url.Values{}, wait, header, read)
}

// get retries a request until it succeeds, fails with another error, or the patience is over.
func (c *Client) get(
	ctx context.Context, path string, query url.Values, delay time.Duration, header http.Header, read func(*http.Response) error,
) error {
	if delay > 0 {
		query.Set("wait", strconv.FormatFloat(delay.Seconds(), 'f', -1, 64))
	}
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := c.try(ctx, u.String(), delay+c.cfg.Timeout, header, read)
		_, transient := errors.AsType[*transientError](err)
		switch {
		case !transient:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.Patience == 0:
			return err
		case time.Since(began)+pause > c.Patience:
			return fmt.Errorf("%w (retried for %v)", err, c.Patience)
		case !wait.For(ctx, pause):
			return context.Cause(ctx)
		}
	}
}

func (c *Client) try(ctx context.Context, u string, timeout time.Duration, header http.Header, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return c.Failed(err)
	}
	maps.Copy(req.Header, header)
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	sent := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return c.Failed(err)
	}
	defer func() { _ = resp.Body.Close() }() // read only
	if c.cfg.Answered != nil {
		c.cfg.Answered(sent, resp.Header)
	}
	return read(resp)
}

// Failed returns the error for a request or a body that could not be read. It is transient.
func (c *Client) Failed(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &transientError{fmt.Errorf("%s: %w", c.base.Redacted(), err)}
}

// Refused returns the error for a response with an unexpected status.
func (c *Client) Refused(resp *http.Response) error {
	err := fmt.Errorf("%s: GET %s: %s", c.base.Redacted(), resp.Request.URL.Path, resp.Status)
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return c.NotTap("GET " + c.cfg.Path + ": " + resp.Status)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: pass the tap's token", err)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &transientError{err}
	}
	return err
}

// NotTap returns the error for a server that is not a tap.
func (c *Client) NotTap(why string) error {
	return fmt.Errorf("%s is not %s (%s); use the listen address of %s", c.base.Redacted(), c.cfg.Tap, why, c.cfg.Command)
}

// A transientError means that a retry can succeed.
type transientError struct{ error }

func (e *transientError) Unwrap() error { return e.error }

// Wait returns how long a request asks the server to wait, at most 30 s. Default 0.
func Wait(r *http.Request) (time.Duration, error) {
	text := r.FormValue("wait")
	if text == "" {
		return 0, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0) {
		return 0, fmt.Errorf("wait: %q is not a number of seconds", text)
	}
	return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second)), nil
}
