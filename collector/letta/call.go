package letta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/tokenize"
)

// call sends a small request and passes the answer to out. It retries only GET and DELETE.
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
		delay := pause << (2 * try)
		if e := (*APIError)(nil); errors.As(err, &e) && e.RetryAfter > delay {
			delay = min(e.RetryAfter, 5*time.Second)
		}
		if !wait.For(ctx, delay) {
			return err
		}
	}
}

// mayRepeat reports whether a retry is harmless and can succeed.
func mayRepeat(r *request, err error) bool {
	if r.method != http.MethodGet && r.method != http.MethodDelete {
		return false
	}
	return errors.Is(err, ErrConnection) || errors.Is(err, ErrUnavailable) ||
		errors.Is(err, ErrBusy) || errors.Is(err, ErrServer)
}

func (c *Client) callOnce(ctx context.Context, r *request, out out) error {
	return c.exchange(ctx, r, c.cfg.CallTimeout, errCallTimeout, func(ctx context.Context, resp *http.Response, body *watchedBody) (undecoded, err error) {
		if list, ok := out.(list); ok {
			undecoded, err = list.decode(body)
		} else if err = checkLength(resp, c.cfg.MaxCallBytes); err == nil {
			whole, _ := out.(whole)
			undecoded, err = c.decodeWhole(ctx, body, resp.ContentLength, whole)
		}
		if undecoded != nil {
			undecoded = &classed{ErrServer, undecoded}
		}
		return undecoded, err
	})
}

// exchange sends a request once and passes the answer to the function read. This function returns a
// read error as err, or a decode error as undecoded. If the exchange exceeds the limit, its context
// is canceled, and the parameter late is the cause.
func (c *Client) exchange(ctx context.Context, r *request, limit time.Duration, late error,
	read func(context.Context, *http.Response, *watchedBody) (undecoded, err error),
) (err error) {
	ctx, seen := c.observe(ctx, r)
	defer func() { seen.done(err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := c.once(ctx, r) //nolint:bodyclose // the watched body closes it
	if err != nil {
		return c.transportError(ctx, r, err)
	}
	body := c.watch(resp.Body, stop)
	defer body.close()
	seen.answered(resp, body)
	if resp.StatusCode < 200 || resp.StatusCode > r.maxStatus() {
		return c.statusError(r, resp, body)
	}
	undecoded, err := read(ctx, resp, body)
	switch {
	case err != nil:
		return c.transportError(ctx, r, err)
	case undecoded != nil:
		return &APIError{
			Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Status: resp.StatusCode,
			Detail: oneLine(c.secrets.withSecrets(r.secrets).scrub("cannot decode the answer: " + undecoded.Error())),
			Err:    undecoded,
		}
	}
	return nil
}

// The client reads at most largeCalls answers of more than largeCall bytes at the same time.
const (
	largeCall  = 1 << 20
	largeCalls = 2
)

type out any

type whole func(text string) error

func plain(v any) whole {
	return func(text string) error { return json.Unmarshal([]byte(text), v) }
}

func fetch[T any](ctx context.Context, c *Client, r *request, in any) (*T, error) {
	var v *T
	err := c.call(ctx, r, in, whole(func(text string) (err error) {
		v, err = Read[T](text)
		return err
	}))
	return v, err
}

func fetchList[T any](ctx context.Context, c *Client, r *request) ([]T, error) {
	list, err := fetch[[]T](ctx, c, r, nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// decodeWhole reads a whole answer and passes it to decode, unless decode is nil. The parameter
// length is the size of the answer in bytes, or -1 if unknown. The result err is a read error, and
// undecoded is a decode error.
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
			// Limit the number of large answers that are read concurrently, so that they cannot
			// fill the memory.
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
	return &tokenize.DecodeError{Offset: most, Err: fmt.Errorf("the answer is longer than %d bytes: %w", most, tokenize.ErrTooLarge)}
}

func checkLength(resp *http.Response, most int64) error {
	if resp.ContentLength <= most {
		return nil
	}
	return &tokenize.DecodeError{Err: fmt.Errorf("the answer has %d bytes, but the limit is %d: %w",
		resp.ContentLength, most, tokenize.ErrTooLarge)}
}
