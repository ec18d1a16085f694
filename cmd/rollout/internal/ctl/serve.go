package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A Handler carries out requests. Its methods must be safe for concurrent use. For each client, the
// methods are called in the order of the client's requests. Before Serve returns, it cancels each
// ctx and waits until all methods have returned. If a method returns an error, the client receives
// the error with its hint and its code (see package exit).
type Handler interface {
	Status() Status
	Pause() error
	Resume() error
	Drain() error
	// SetVersion sets the policy version of every reply whose send starts after this call and ends
	// before the next call of SetVersion. The version is at least 0.
	SetVersion(version int32) error
	Acknowledge(ctx context.Context, c Cursor) error
	// LeaveOut drops only the group that ends at c. The effect is not durable, so the reader must
	// repeat the request after a restart.
	LeaveOut(c Cursor) error
	// Task adds a task, which is a JSON object as in a line of a task file. When Task returns, the
	// task has its place in the order of tasks. The returned function waits until the task is on
	// disk. Serve calls this function once.
	Task(ctx context.Context, task json.RawMessage) func() (Accepted, error)
}

const (
	// MaxLine is the maximum length of a line in bytes. It exceeds the maximum length of a line in
	// a task file.
	MaxLine = 65 << 20
	// MaxClients is the maximum number of clients that can be connected.
	MaxClients = 256

	longLine  = 1 << 20 // a longer line needs one of longLines slots
	longLines = 2
	queued    = 256 // limit on the number of unread answers per client
	patience  = 30 * time.Second
	lastWords = time.Second // time to write the remaining answers when Serve ends
	again     = 100 * time.Millisecond
)

// A server contains the state of one call of Serve.
type server struct {
	handler  Handler
	patience time.Duration
	places   chan struct{} // contains one value per client
	long     chan struct{} // contains one value per long line that is being read
}

// Serve answers clients until ctx is done or [Listener.Close] is called. Before it returns, it
// answers all requests that it has read, but each client has only one second to read the answers.
// When Serve returns, the goroutines of all clients have ended.
func (l *Listener) Serve(ctx context.Context, h Handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	s := &server{handler: h, patience: l.patience, places: make(chan struct{}, MaxClients), long: make(chan struct{}, longLines)}
	var running sync.WaitGroup
	s.accept(ctx, l.listener, &running)
	cancel()
	running.Wait()
}

func (s *server) accept(ctx context.Context, l *net.UnixListener, running *sync.WaitGroup) {
	for {
		conn, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && wait.For(ctx, again): // for example, no file descriptors are left; new clients wait
			continue
		case err != nil:
			return
		}
		c := &client{server: s, conn: conn, in: bufio.NewReader(conn), answers: make(chan func() any, queued)}
		select {
		case s.places <- struct{}{}:
		default:
			_ = conn.SetWriteDeadline(time.Now().Add(again))
			_ = c.write(refused(exit.Hint(exit.With(exit.Unusable, fmt.Errorf("%d clients are already connected", MaxClients)), "close a connection, or send several requests over one connection")))
			_ = conn.Close()
			continue
		}
		stop := context.AfterFunc(ctx, c.end)
		running.Go(func() { c.read(ctx) })
		running.Go(func() {
			c.answer()
			stop()
			<-s.places
		})
	}
}

// A client is one connection. One goroutine reads requests, carries them out and queues the
// answers. Another goroutine waits for the answers and writes them.
type client struct {
	server  *server
	conn    *net.UnixConn
	in      *bufio.Reader
	answers chan func() any // the method read closes this channel

	mu    sync.Mutex
	ended bool // true after end was called; the deadlines then stay unchanged
}

// end stops reading requests. It limits the time for writing the last answers.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_ = c.conn.SetReadDeadline(time.Now())
	_ = c.conn.SetWriteDeadline(time.Now().Add(lastWords))
}

// deadline calls the given method of the connection, such as SetReadDeadline, unless end has been
// called.
func (c *client) deadline(set func(time.Time) error, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		_ = set(t) // on failure, the next read or write fails
	}
}

func (c *client) read(ctx context.Context) {
	defer close(c.answers)
	for {
		line, err := c.line(ctx)
		if len(bytes.TrimSpace(line)) > 0 {
			c.answers <- c.do(ctx, line) // never blocks forever: answer receives until read closes the channel
		}
		if err != nil {
			if exit.HintOf(err) != "" {
				c.answers <- func() any { return refused(err) }
			}
			return
		}
	}
}

func tooLong() error {
	return exit.Hint(exit.Usagef("the line is longer than %d bytes", MaxLine), "end every request with a line break")
}

// slow returns the error for a line that was not completed in time.
func (c *client) slow() error {
	return exit.Hint(exit.Usagef("the line was still incomplete %v after its first byte", c.server.patience), "end every request with a line break")
}

// line reads a line. The last line can lack a line break; err is then io.EOF.
func (c *client) line(ctx context.Context) (line []byte, err error) {
	c.deadline(c.conn.SetReadDeadline, time.Time{})
	if _, err := c.in.Peek(1); err != nil { // there is no deadline for an idle client
		return nil, err
	}
	c.deadline(c.conn.SetReadDeadline, time.Now().Add(c.server.patience))
	long := false
	defer func() {
		if long {
			<-c.server.long
		}
	}()
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return nil, tooLong()
		}
		if line == nil && err == nil {
			return part, nil // do no longer needs the line when the next line is read
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
			return nil, c.slow()
		case err == nil, err == io.EOF:
			return line, err
		default:
			return nil, err
		}
		if len(line) > longLine && !long {
			select {
			case c.server.long <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			long = true
			c.deadline(c.conn.SetReadDeadline, time.Now().Add(c.server.patience))
		}
	}
}

// do carries out a request. The returned function waits for the answer and returns it.
func (c *client) do(ctx context.Context, line []byte) func() any {
	r, err := parse(line)
	if err != nil {
		return func() any { return refused(err) }
	}
	h := c.server.handler
	switch r.Op {
	case OpStatus:
		answer := struct {
			Answer
			Status
		}{Answer{OK: true}, h.Status()}
		return func() any { return answer }
	case OpTask:
		wait := h.Task(ctx, r.Task)
		return func() any {
			accepted, err := wait()
			if err != nil {
				return refused(err)
			}
			return struct {
				Answer
				Accepted
			}{Answer{OK: true}, accepted}
		}
	case OpPause:
		err = h.Pause()
	case OpResume:
		err = h.Resume()
	case OpDrain:
		err = h.Drain()
	case OpSetVersion:
		err = h.SetVersion(*r.Version)
	case OpAck:
		if c := (Cursor{r.RunID, *r.Seq, *r.Groups}); r.Only {
			err = h.LeaveOut(c)
		} else {
			err = h.Acknowledge(ctx, c)
		}
	default:
		err = fmt.Errorf("internal error: operation %q", r.Op)
	}
	return func() any {
		if err != nil {
			return refused(err)
		}
		return Answer{OK: true}
	}
}

// answer writes the answers in the order of the requests, and then closes the connection.
func (c *client) answer() {
	defer c.conn.Close() //nolint:errcheck // write already reported the failure
	dead := false
	for wait := range c.answers {
		a := wait() // wait even if the client has disconnected, because a task can depend on it
		if dead {
			continue
		}
		c.deadline(c.conn.SetWriteDeadline, time.Now().Add(c.server.patience))
		if c.write(a) != nil {
			dead = true
			_ = c.conn.Close() // ends read, which closes the queue of answers
		}
	}
}

func (c *client) write(answer any) error {
	line, err := format.JSONLine(answer)
	if err != nil { // for example, JSON cannot represent a number in the answer
		line, err = format.JSONLine(refused(fmt.Errorf("internal error: %w", err)))
	}
	if err != nil {
		return err
	}
	_, err = c.conn.Write(append(line, '\n'))
	return err
}
