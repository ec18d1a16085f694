package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

const (
	sentAhead    = 256      // maximum number of tasks that have been sent but not answered
	taskBuffer   = 64 << 10 // initial size of the read buffer
	mostRefusals = 20       // maximum number of refused tasks that are reported one by one
	sayWaiting   = 10 * time.Second
)

// addTasks sends tasks from a file, or from standard input as they arrive, and reports the results.
// If a task is refused, addTasks continues with the other tasks.
func (p *program) addTasks(c *ctl.Client, dir, path string, asJSON bool) error {
	from, name, err := p.openAdded(dir, path)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // read only
	a := &adding{p: p, client: c, json: asJSON, name: name}
	a.waits = sync.OnceFunc(func() {
		p.say("%s: the collector's queue is full; the collector accepts more tasks as it starts the queued tasks", dir)
	})
	c.Patience = 0 // no time limit, because the collector waits for room before it accepts a task
	lines := make(chan addedLine, sentAhead)
	sending := make(chan error, 1)
	go func() {
		defer close(lines)
		sending <- sendTasks(c, from, lines)
	}()
	lost := a.answers(lines)
	if err = <-sending; lost != nil {
		err = exit.Hint(lost, "add the same file again when a collector is running; tasks that have already been accepted are not duplicated")
	}
	known := ""
	if a.again > 0 {
		known = "; " + format.Plural(a.again, "task") + " had already been accepted"
	}
	p.say("%s: %s accepted (%s)%s", dir, format.Plural(a.accepted, "task"), format.Plural(a.samples, "sample"), known)
	return errors.Join(err, a.refused())
}

// openAdded opens the source of the tasks. The result name identifies the source in messages.
func (p *program) openAdded(dir, path string) (from io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(p.stdin), "stdin", nil
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet", ".gz", ".zst":
		return nil, "", exit.Hint(exit.Usagef("%s: add accepts only JSON Lines", path), "convert it to JSON Lines first: … | rollout ctl "+format.Shell(dir)+" add")
	}
	file, err := input.Open(path, input.Wait)
	if err != nil {
		return nil, "", exit.Usagef("ctl: add: %w", err)
	}
	return file, filepath.Base(path), nil
}

// An addedLine is a line that was sent as a task. If err is set, the line could not be sent.
type addedLine struct {
	number int
	err    error
}

// sendTasks sends every line of a file as a task. It reports each line on the channel lines, in
// order.
func sendTasks(c *ctl.Client, from io.Reader, lines chan<- addedLine) error {
	scan := bufio.NewScanner(from)
	scan.Buffer(make([]byte, taskBuffer), ctl.MaxLine-taskBuffer)
	n := 1
	for ; scan.Scan(); n++ {
		line := bytes.TrimSpace(scan.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		switch {
		case len(line) == 0:
			continue
		case line[0] != '{' || !json.Valid(line):
			lines <- addedLine{n, errors.New("not a JSON object")}
			continue
		}
		if err := c.Send(ctl.Request{Op: ctl.OpTask, Task: line}); err != nil {
			return err
		}
		lines <- addedLine{number: n}
	}
	switch err := scan.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return exit.Hint(exit.Usagef("ctl: add: line %d exceeds the limit of %s for a task", n, format.Size(tasks.MaxTaskBytes)), "put one task on each line; the earlier lines were added, and adding them again has no effect")
	default:
		return exit.Usagef("ctl: add: line %d: %w", n, err)
	}
}

// An adding contains the state of one rollout ctl add.
type adding struct {
	p      *program
	client *ctl.Client
	json   bool
	name   string // name of the file in messages
	waits  func() // prints a message about the collector's full queue

	accepted, again, samples int64
	refusals                 int64
	first                    error
}

// answers receives the answer to each line. After a connection error, it closes the client, so that
// sendTasks ends. It then skips the remaining lines.
func (a *adding) answers(lines <-chan addedLine) (lost error) {
	for line := range lines {
		switch {
		case line.err != nil:
			a.refuse(line.number, line.err)
		case lost == nil:
			if lost = a.answer(line.number); lost != nil {
				_ = a.client.Close()
			}
		}
	}
	return lost
}

// answer receives the answer to the given line.
func (a *adding) answer(line int) error {
	var raw json.RawMessage
	slow := time.AfterFunc(sayWaiting, a.waits)
	err := a.client.Receive(&raw)
	slow.Stop()
	no, refused := errors.AsType[*ctl.RefusedError](err)
	if refused {
		a.refuse(line, no.Exit())
		raw, err = json.Marshal(no.Answer)
	}
	if err == nil && a.json {
		err = a.p.printJSON(raw) // fails if, for example, standard output is closed
	}
	if err != nil || refused {
		return err
	}
	var to ctl.Accepted
	if err := json.Unmarshal(raw, &to); err != nil {
		return err
	}
	if to.Again {
		a.again++
	} else {
		a.accepted, a.samples = a.accepted+1, a.samples+int64(to.Samples)
	}
	return nil
}

// refuse counts a refused task. It reports the first mostRefusals refused tasks.
func (a *adding) refuse(line int, err error) {
	if a.first == nil {
		a.first = err
	}
	if a.refusals++; a.refusals <= mostRefusals {
		a.p.say("%s:%d: %v", a.name, line, err)
	}
}

// refused returns the error for the refused tasks. The error has the exit code and the hint of the
// first refusal.
func (a *adding) refused() error {
	if a.first == nil {
		return nil
	}
	err := fmt.Errorf("%s refused; all other tasks were accepted", format.Plural(a.refusals, "task"))
	return exit.Refuse(exit.Code(exit.With(exit.Usage, a.first)), err, exit.HintOf(a.first))
}
