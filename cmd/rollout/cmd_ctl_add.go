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
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

const (
	sentAhead  = 256      // tasks whose answers may be awaited
	taskBuffer = 64 << 10 // read at a time
	refusals   = 20       // that are told one by one
	sayWaiting = 10 * time.Second
)

// addTasks sends the tasks of a file, or of standard input as they come, and says what became
// of them. One that is refused does not keep the others.
func (p *program) addTasks(c *ctl.Client, dir, path string, asJSON bool) error {
	from, name := p.stdin, "stdin"
	if path != "-" {
		name = filepath.Base(path)
		switch strings.ToLower(filepath.Ext(path)) {
		case ".parquet", ".gz", ".zst":
			return exit.Hint(exit.Usagef("%s: add takes JSON lines", path), "decompress it before: … | rollout ctl "+human.Shell(dir)+" add")
		}
		file, err := input.Open(path, input.Wait)
		if err != nil {
			return exit.Usagef("ctl: add: %w", err)
		}
		defer file.Close() //nolint:errcheck // read only
		from = file
	}
	c.Patience = 0 // the collector takes no more than it can begin soon
	waits := sync.OnceFunc(func() {
		p.say("%s: the collector has tasks enough for now, and takes further ones as it begins them", dir)
	})
	sent := make(chan int, sentAhead) // the lines of the tasks that were sent, in order
	sending := make(chan error, 1)
	refused := &refusedTasks{p: p, name: name}
	bad := make(chan badTask, sentAhead)
	go func() {
		defer close(bad)
		defer close(sent)
		sending <- sendTasks(c, from, sent, bad)
	}()
	var accepted, again, samples int64
	var lost error
	for sent != nil || bad != nil {
		select {
		case b, ok := <-bad:
			if !ok {
				bad = nil
				continue
			}
			refused.add(b.line, b.err)
		case line, ok := <-sent:
			switch {
			case !ok:
				sent = nil
				continue
			case lost != nil:
				continue // none of the answers comes
			}
			var raw json.RawMessage
			slow := time.AfterFunc(sayWaiting, waits)
			err := c.Receive(&raw)
			slow.Stop()
			no, isRefusal := errors.AsType[*ctl.RefusedError](err)
			switch {
			case isRefusal:
				if raw, _ = json.Marshal(no.Answer); asJSON {
					err = p.printJSON(raw)
				}
				refused.add(line, no.Exit())
			case err != nil:
				lost = err
				_ = c.Close() // ends the sending
				continue
			case asJSON:
				err = p.printJSON(raw)
			}
			if isRefusal {
				continue
			}
			var a ctl.Accepted
			if err := errors.Join(err, json.Unmarshal(raw, &a)); err != nil {
				lost = err // standard output is closed, say
				_ = c.Close()
				continue
			}
			if a.Again {
				again++
			} else {
				accepted, samples = accepted+1, samples+int64(a.Samples)
			}
		}
	}
	err := <-sending
	if lost != nil {
		err = exit.Hint(lost, "add the same again when a collector is at work: what was accepted is not taken twice")
	}
	said := fmt.Sprintf("%s accepted, %s", human.Plural(accepted, "task"), human.Plural(samples, "sample"))
	if again > 0 {
		said += fmt.Sprintf("; %s known already", human.Plural(again, "task"))
	}
	p.say("%s: %s", dir, tame.Own(said))
	return errors.Join(err, refused.err())
}

// A badTask is a line that cannot be sent.
type badTask struct {
	line int
	err  error
}

// sendTasks sends every line of a file as a task, and tells the numbers of those sent.
func sendTasks(c *ctl.Client, from io.Reader, sent chan<- int, bad chan<- badTask) error {
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
			bad <- badTask{n, errors.New("is not a JSON object")}
			continue
		}
		if err := c.Send(ctl.Request{Op: ctl.OpTask, Task: line}); err != nil {
			return err
		}
		sent <- n
	}
	switch err := scan.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return exit.Hint(exit.Usagef("ctl: add: line %d is longer than a task may be, %s", n, human.Size(tasks.MaxTaskBytes)), "one task per line; those before it are added, and may be added again")
	default:
		return exit.Usagef("ctl: add: line %d: %w", n, err)
	}
}

// refusedTasks tells which tasks were refused.
type refusedTasks struct {
	p     *program
	name  string
	count int64
	first error
}

func (r *refusedTasks) add(line int, err error) {
	if r.first == nil {
		r.first = err
	}
	if r.count++; r.count <= refusals {
		r.p.say("%s:%d: %v", r.name, line, err)
	}
}

// err is the end of a program that was refused some; nil where none was.
func (r *refusedTasks) err() error {
	if r.count == 0 {
		return nil
	}
	err := exit.With(exit.Code(exit.With(exit.Usage, r.first)), fmt.Errorf("%s refused; the others are accepted", human.Plural(r.count, "task")))
	if hint := exit.HintOf(r.first); hint != "" {
		err = exit.Hint(err, hint)
	}
	return err
}
