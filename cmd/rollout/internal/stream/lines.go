package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// One sync makes a batch of tasks durable. These are the maximum number of tasks in a batch and the
// approximate maximum size of a batch in bytes.
const (
	batchMost  = 256
	batchBytes = 4 << 20
)

// Told is called with the result for each task and each bad line, in order. For a bad line, the
// task contains only the fields that could be parsed.
type Told func(task *collector.Task, r Receipt)

// Take adds the tasks from a source until the source ends or fails, or until tasks are no longer
// accepted. It reports a bad task through told and continues. The function ready reports whether
// the source can yield another task without blocking. If ready is nil, the source never blocks.
func (in *Intake) Take(source iter.Seq2[collector.Task, error], ready func() bool, told Told) error {
	var batch []*collector.Task
	size := 0
	flush := func() {
		for i, r := range in.Add(batch...)() {
			told(batch[i], r)
		}
		batch, size = nil, 0
	}
	for t, err := range source {
		bad, isBad := errors.AsType[*tasks.BadError](err)
		if err != nil {
			flush() // report the earlier results first, in the order of the lines
		}
		switch {
		case errors.Is(err, errBlank):
		case isBad:
			told(&t, Receipt{Err: bad.Err})
		case err != nil:
			return err
		default:
			batch = append(batch, &t)
			for _, m := range t.Messages {
				size += len(m)
			}
			size += len(t.Metadata) + len(t.Agent)
		}
		if in.Why() != "" {
			break
		}
		if len(batch) > 0 && (len(batch) == batchMost || size >= batchBytes || ready != nil && !ready()) {
			flush()
		}
	}
	flush()
	return nil
}

// Read is like Take, for a reader with one JSON object per line. The name identifies the reader in
// messages.
func (in *Intake) Read(from io.Reader, name string, told Told) error {
	lines := &lineReader{from: bufio.NewReaderSize(from, 64<<10)}
	return in.Take(lines.tasks(name), lines.ready, told)
}

// errTooLong is the error for a line that is too long to be a task.
var errTooLong = fmt.Errorf("the line is longer than %s", format.Size(tasks.MaxTaskBytes))

// errBlank is yielded for a blank line if the buffer does not contain another whole line. Otherwise
// the result of the last task would be delayed until the producer sends another task.
var errBlank = errors.New("a blank line")

// A lineReader reads lines of any length. It keeps at most the maximum size of a task in memory.
type lineReader struct {
	from *bufio.Reader
	line []byte
}

// tasks yields the tasks in the lines, and a *tasks.BadError for each bad line.
func (l *lineReader) tasks(name string) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		for n := 1; ; n++ {
			line, err := l.next()
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			var t collector.Task
			switch line = bytes.TrimSpace(line); {
			case errors.Is(err, io.EOF):
				return
			case err == nil && len(line) == 0:
				if l.ready() {
					continue
				}
				err = errBlank
			case err == nil:
				t, err = tasks.ParseTask(line)
			case !errors.Is(err, errTooLong):
				yield(t, fmt.Errorf("%s: %w", name, err))
				return
			}
			t.Source, t.Line = name, n
			if err != nil && !errors.Is(err, errBlank) {
				err = &tasks.BadError{Place: fmt.Sprintf("%s:%d", name, n), Err: err}
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// next returns the next line, which is valid until the next call. It can be called again after it
// has returned errTooLong. Text after the last line feed is also returned as a line.
func (l *lineReader) next() ([]byte, error) {
	if cap(l.line) > 1<<20 {
		l.line = nil
	}
	l.line = l.line[:0]
	for long := false; ; {
		part, err := l.from.ReadSlice('\n')
		if long = long || len(l.line)+len(part) > tasks.MaxTaskBytes; long {
			l.line = nil
		} else {
			l.line = append(l.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errTooLong
		case err != nil && (!errors.Is(err, io.EOF) || len(l.line) == 0):
			return nil, err
		}
		return l.line, nil
	}
}

// ready reports whether the buffer contains a whole line.
func (l *lineReader) ready() bool {
	have, _ := l.from.Peek(l.from.Buffered()) // cannot fail, because the bytes are buffered
	return bytes.IndexByte(have, '\n') >= 0
}
