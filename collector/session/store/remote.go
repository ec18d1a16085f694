package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/taphttp"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A Remote is a Source that reads the sessions of a tap over HTTP. It retries transient errors for 2
// minutes: a connection that fails or is cut off, and the statuses 408, 429, 500, 502, 503 and 504.
type Remote struct {
	client *taphttp.Client
	most   int64 // maximum size of the file of a session, in bytes
}

// These are the timeouts and limits of a Remote.
const (
	patience     = 2 * time.Minute            // how long a request is retried after transient errors
	askWait      = 20 * time.Second           // how long a request asks the tap to wait
	askMore      = 60 * time.Second           // the timeout of a request, in addition to askWait
	atLeast      = 100 * time.Millisecond     // minimum time between two requests of Wait
	maxFileBytes = min(2<<30, math.MaxInt>>2) // a 32-bit program cannot use more memory
	growAtOnce   = 64 << 20                   // memory for a file is allocated in larger steps only as it arrives
)

// OpenRemote connects to the tap at a URL, such as http://tap:8484. The token is the tap's token, or
// empty. OpenRemote returns an error if the URL does not belong to a tap with sessions, or if the tap
// refuses the token. It does not retry.
func OpenRemote(ctx context.Context, url, token string) (*Remote, error) {
	client, err := taphttp.New(taphttp.Config{
		URL: url, Token: token, Path: listPath, Version: Version, Timeout: askMore,
		Tap: "a tap with sessions", Command: "rollout tap --sessions",
	})
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	r := &Remote{client, maxFileBytes}
	if _, err := r.list(ctx, "", 0); err != nil {
		r.Close()
		return nil, fmt.Errorf("sessions: %w", err)
	}
	client.Patience = patience
	return r, nil
}

// Close implements Source.
func (r *Remote) Close() { r.client.Close() }

// Sealed implements Source.
func (r *Remote) Sealed(ctx context.Context, after string) ([]Entry, error) {
	return r.list(ctx, after, 0)
}

// Wait implements Source.
func (r *Remote) Wait(ctx context.Context, after string) error {
	for {
		asked := time.Now()
		entries, err := r.list(ctx, after, askWait)
		if err != nil || len(entries) > 0 {
			return err
		}
		// A tap that is shutting down answers at once.
		if !wait.For(ctx, max(0, atLeast-time.Since(asked))) {
			return context.Cause(ctx)
		}
	}
}

// Read implements Source.
func (r *Remote) Read(ctx context.Context, id string) (rec *session.Record, err error) {
	if !isID(id) {
		return nil, fmt.Errorf("session %q: %w", id, ErrUnknown)
	}
	err = r.client.Get(ctx, id, 0, nil, func(resp *http.Response) error {
		switch resp.StatusCode {
		case http.StatusOK:
		case http.StatusNotFound:
			return fmt.Errorf("session %s: %w", id, ErrUnknown)
		default:
			return r.client.Refused(resp)
		}
		tooLarge := fmt.Errorf("session %s: the file has more than %d bytes, the limit; read the folder of the tap instead", id, r.most)
		if resp.ContentLength > r.most {
			return tooLarge
		}
		var file bytes.Buffer
		file.Grow(int(min(max(resp.ContentLength, 0), growAtOnce)) + bytes.MinRead)
		n, err := io.Copy(&file, io.LimitReader(resp.Body, r.most+1))
		if err != nil {
			return r.client.Failed(err)
		}
		if n > r.most {
			return tooLarge
		}
		rec, err = readRecord(bytes.NewReader(file.Bytes()), int64(file.Len()), id, true)
		return err
	})
	return rec, err
}

func (r *Remote) list(ctx context.Context, after string, wait time.Duration) ([]Entry, error) {
	var l listing
	if err := r.client.List(ctx, after, wait, &l); err != nil {
		return nil, err
	}
	for _, e := range l.Sessions {
		if e.Name <= after || !isName(e.Name) || e.ID != e.Name[numberLen+1:] {
			return nil, r.client.NotTap("its sessions are not in order")
		}
		after = e.Name
	}
	return l.Sessions, nil
}
