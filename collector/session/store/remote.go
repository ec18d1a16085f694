package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/sink/frame"
)

// RemoteConfig configures a Remote. URL is required.
type RemoteConfig struct {
	// URL is the listen address of the tap, such as http://tap:8484.
	URL string
	// Token is the tap's token, or empty. It is a secret.
	Token string
	// Patience is how long a request is retried while the tap is not reachable or answers with a
	// transient error. Default 2 minutes.
	Patience time.Duration
	// Client sends the requests. Default: a client without a timeout.
	Client *http.Client
}

// A Remote is a Source that reads the sessions of a tap over HTTP. It retries transient errors:
// a connection that fails or is cut off, and the statuses 408, 429, 500, 502, 503 and 504.
type Remote struct {
	base     *url.URL
	token    string
	patience time.Duration
	client   *http.Client
}

// These are the timeouts and limits of a Remote.
const (
	askWait      = 20 * time.Second // how long a request asks the tap to wait
	askMore      = 60 * time.Second // the timeout of a request, in addition to askWait
	firstPause   = 100 * time.Millisecond
	maxPause     = 5 * time.Second
	maxListBytes = 16 << 20
	maxFileBytes = 2 << 30
)

// OpenRemote connects to a tap. It returns an error if the URL does not belong to a tap with
// sessions, or if the tap refuses the token. It does not retry.
func OpenRemote(ctx context.Context, cfg RemoteConfig) (*Remote, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("sessions: invalid URL (want http://HOST:PORT)") // the URL can contain a password
	}
	r := &Remote{base: u, token: cfg.Token, patience: cmp.Or(cfg.Patience, 2*time.Minute), client: cfg.Client}
	if r.client == nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			transport = &http.Transport{}
		}
		transport = transport.Clone()
		transport.DisableCompression = true // token ids are not worth compressing
		r.client = &http.Client{Transport: transport}
	}
	if _, err := r.list(ctx, "", 0); err != nil {
		r.Close()
		return nil, fmt.Errorf("sessions: %w", err)
	}
	return r, nil
}

// Close implements Source.
func (r *Remote) Close() { r.client.CloseIdleConnections() }

// Sealed implements Source. It returns at most 10,000 sessions.
func (r *Remote) Sealed(ctx context.Context, after string) (entries []Entry, err error) {
	err = r.retry(ctx, func() error {
		entries, err = r.list(ctx, after, 0)
		return err
	})
	return entries, err
}

// Wait implements Source.
func (r *Remote) Wait(ctx context.Context, after string) error {
	for {
		var entries []Entry
		asked := time.Now()
		err := r.retry(ctx, func() (err error) {
			entries, err = r.list(ctx, after, askWait)
			return err
		})
		if err != nil || len(entries) > 0 {
			return err
		}
		// A tap that is shutting down answers at once.
		if !wait.For(ctx, max(0, firstPause-time.Since(asked))) {
			return context.Cause(ctx)
		}
	}
}

// Read implements Source.
func (r *Remote) Read(ctx context.Context, id string) (rec *session.Record, err error) {
	if !isID(id) {
		return nil, fmt.Errorf("session %q: %w", id, ErrUnknown)
	}
	err = r.retry(ctx, func() error {
		rec, err = r.read(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rec, nil
}

func (r *Remote) read(ctx context.Context, id string) (rec *session.Record, err error) {
	err = r.get(ctx, listPath+"/"+id, 0, url.Values{}, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusNotFound {
			return fmt.Errorf("session %s: %w", id, ErrUnknown)
		}
		if err := r.check(resp); err != nil {
			return err
		}
		if resp.ContentLength > maxFileBytes {
			return fmt.Errorf("session %s: the file has %d bytes, but the limit is %d", id, resp.ContentLength, maxFileBytes)
		}
		var file bytes.Buffer
		file.Grow(int(max(resp.ContentLength, 0)))
		if _, err := io.Copy(&file, io.LimitReader(resp.Body, maxFileBytes)); err != nil {
			return &transientError{r.failed(err)}
		}
		rec, err = readRecord(bytes.NewReader(file.Bytes()), int64(file.Len()), id, true)
		return err
	})
	return rec, err
}

func (r *Remote) list(ctx context.Context, after string, wait time.Duration) (entries []Entry, err error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	err = r.get(ctx, listPath, wait, query, func(resp *http.Response) error {
		if err := r.check(resp); err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes))
		if err != nil {
			return &transientError{r.failed(err)}
		}
		var l listing
		if err := json.Unmarshal(text, &l); err != nil || l.Version < 1 {
			return r.notTap("its answer is not a list of sessions")
		}
		if l.Version > Version {
			return fmt.Errorf("%s: %w: the tap writes version %d, but this program reads versions up to %d; upgrade rollout",
				r.base.Redacted(), frame.ErrNewer, l.Version, Version)
		}
		last := after
		for _, e := range l.Sessions {
			if e.Name <= last || !isName(e.Name) || e.ID != e.Name[numberLen+1:] {
				return r.notTap("its sessions are not in order")
			}
			last = e.Name
			entries = append(entries, Entry(e))
		}
		return nil
	})
	return entries, err
}

// get sends a GET request, passes the response to the function read, and closes the body.
func (r *Remote) get(
	ctx context.Context, path string, wait time.Duration, query url.Values, read func(*http.Response) error,
) error {
	timed, cancel := context.WithTimeout(ctx, wait+askMore)
	defer cancel()
	if wait > 0 {
		query.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	u := r.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(timed, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &transientError{r.failed(err)}
	}
	defer func() { _ = resp.Body.Close() }() // read only
	return read(resp)
}

// failed describes a failed request without the user name and password of the URL.
func (r *Remote) failed(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s: %w", r.base.Redacted(), err)
}

// check returns an error unless the status is 200.
func (r *Remote) check(resp *http.Response) error {
	err := fmt.Errorf("%s: GET %s: %s", r.base.Redacted(), resp.Request.URL.Path, resp.Status)
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return r.notTap("GET " + listPath + ": " + resp.Status)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: pass the tap's token", err)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &transientError{err}
	}
	return err
}

func (r *Remote) notTap(why string) error {
	return fmt.Errorf("%s is not a tap with sessions (%s); use the listen address of rollout tap --sessions",
		r.base.Redacted(), why)
}

// A transientError means that a retry can succeed.
type transientError struct{ error }

func (e *transientError) Unwrap() error { return e.error }

// retry calls ask until it succeeds, fails with an error that is not transient, or the patience is
// over. The pause between two tries grows.
func (r *Remote) retry(ctx context.Context, ask func() error) error {
	began, pause := time.Now(), firstPause
	for {
		err := ask()
		if _, transient := errors.AsType[*transientError](err); !transient {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began)+pause > r.patience {
			return fmt.Errorf("%w (retried for %v)", err, r.patience)
		}
		if !wait.For(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}
