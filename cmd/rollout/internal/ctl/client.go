package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
)

// Patience is the default value of [Client.Patience].
const Patience = 30 * time.Second

const maxAnswer = 16 << 20

// A Client is a connection to the collector of a run. One goroutine can call Send while another
// goroutine calls Receive.
type Client struct {
	// Patience is the maximum time that Send and Receive wait. 0 means no limit, which suits
	// clients that send more tasks than the collector accepts at once. Dial sets Patience to
	// [Patience].
	Patience time.Duration

	dir  string
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
}

// Dial connects to the collector of the run in dir. When ctx is done, the connection is closed. If
// no collector is running, the hint of the error shows how to start one.
func Dial(ctx context.Context, dir string) (*Client, error) {
	var conn net.Conn
	err := within(dir, Name, func(address string) (err error) {
		conn, err = (&net.Dialer{Timeout: Patience}).DialContext(ctx, "unix", address)
		return err
	})
	if err != nil {
		return nil, unreached(dir, err)
	}
	c := &Client{Patience: Patience, dir: dir, conn: conn, in: bufio.NewReader(conn)}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return c, nil
}

// unreached returns the error for a run whose collector cannot be reached.
func unreached(dir string, err error) error {
	h, held := runfolder.Locked(dir)
	who := ""
	if name := h.String(); name != "" {
		who = " (" + name + ")"
	}
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case gone && held:
		return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("%s: the run's collector has no %s%s", dir, Name, who)), "start the run with --stream, or try again if its collector is starting or shutting down")
	case gone:
		return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("%s: no collector is running", dir)), "continue the run with: "+runfolder.ResumeCommand(dir)+" --stream")
	case errors.Is(err, fs.ErrPermission):
		return exit.Hint(exit.With(exit.Storage, fmt.Errorf("%s: permission denied%s", Path(dir), who)), "run rollout ctl as the user who runs the collector")
	case errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.ENOTSOCK):
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not the socket of a run", Path(dir))), "move this file out of the run folder, so that the next collector can create its socket")
	}
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		err = inner.Err // the outer error contains the short address instead of the path
	}
	return exit.With(exit.Unusable, fmt.Errorf("%s: %w", Path(dir), err))
}

// Do sends a request and decodes the JSON of the answer into the parameter answer, unless answer is
// nil. A *[json.RawMessage] receives the line unchanged. If the collector refuses the request, the
// error is a [*RefusedError].
func (c *Client) Do(r Request, answer any) error {
	if err := c.Send(r); err != nil {
		return err
	}
	return c.Receive(answer)
}

// Send sends a request without waiting for the answer. A caller that sends many requests must call
// Receive in the meantime, because the collector stops reading requests after about 256 unread
// answers.
func (c *Client) Send(r Request) error {
	line, err := format.JSONLine(r)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	if len(line) >= MaxLine {
		return tooLong()
	}
	_ = c.conn.SetWriteDeadline(c.until())
	if _, err = c.conn.Write(append(line, '\n')); err != nil {
		return c.lost(err)
	}
	return nil
}

// Receive reads the answer to the oldest unanswered request. If the collector refuses the request,
// the error is a [*RefusedError]. After any other error, the connection is unusable.
func (c *Client) Receive(answer any) error {
	_ = c.conn.SetReadDeadline(c.until())
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > maxAnswer {
			return exit.With(exit.Unusable, fmt.Errorf("%s: the answer is longer than %d bytes", Path(c.dir), maxAnswer))
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return c.lost(err)
		}
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return exit.With(exit.Unusable, fmt.Errorf("%s: the answer is not JSON: %w", Path(c.dir), err))
	}
	if !a.OK {
		return &RefusedError{a}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return exit.With(exit.Unusable, fmt.Errorf("%s: unexpected answer: %w", Path(c.dir), err))
	}
	return nil
}

func (c *Client) until() time.Time {
	if c.Patience == 0 {
		return time.Time{}
	}
	return time.Now().Add(c.Patience)
}

// A RefusedError reports that the collector refused a request.
type RefusedError struct{ Answer Answer }

func (r *RefusedError) Error() string { return r.Answer.Error }

// Exit returns the refusal with the exit code for the program.
func (r *RefusedError) Exit() error {
	code := r.Answer.Code
	if code <= exit.OK || code > exit.Interrupted {
		code = exit.Internal
	}
	return exit.Refuse(code, r, r.Answer.Hint)
}

func (c *Client) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		who := "the collector"
		if h, held := runfolder.Locked(c.dir); held && h.String() != "" {
			who = h.String()
		}
		return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("%s: no answer within %v from %s", Path(c.dir), c.Patience, who)), "the collector might be suspended or overloaded; the request might still take effect")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return exit.Hint(exit.With(exit.Unusable, fmt.Errorf("%s: the collector closed the connection", Path(c.dir))), "the collector might have exited; to see the result of the run, use rollout report "+format.Shell(c.dir))
	}
	return exit.With(exit.Unusable, fmt.Errorf("%s: %w", Path(c.dir), err))
}

// Close closes the connection.
func (c *Client) Close() error {
	c.stop()
	if err := c.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
