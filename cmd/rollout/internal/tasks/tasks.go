// Package tasks reads task files in JSON Lines, optionally compressed, or in Parquet. It validates
// each task on its own. A [Fit] validates tasks against the settings of a run.
package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A BadError reports one bad task in a file. The tasks after it can still be read.
type BadError struct {
	Place string // location of the task, such as tasks.jsonl:7
	Err   error
}

func (e *BadError) Error() string { return e.Place + ": " + e.Err.Error() }
func (e *BadError) Unwrap() error { return e.Err }

// FileHint is the hint for a task file that cannot be opened.
const FileHint = "pass a task file with --tasks (one JSON object per line)"

// Read yields the tasks in a file. The file name extension determines the format. A .parquet file
// is Parquet. A .gz or .zst file is compressed JSON Lines. Any other file is JSON Lines. "-" is
// standard input. The iteration can continue after a *BadError, but not after any other error.
func Read(path string, stdin io.Reader) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		if path == "-" {
			readLines(stdin, "stdin", yield)
			return
		}
		in, err := input.Open(path, input.Wait)
		if err != nil {
			yield(collector.Task{}, exit.Hint(exit.Usagef("tasks: %w", err), FileHint))
			return
		}
		defer func() { _ = in.Close() }() // read only
		name := filepath.Base(path)
		var lines io.Reader = in
		switch strings.ToLower(filepath.Ext(path)) {
		case ".parquet":
			readParquet(in.F, name, yield)
			return
		case ".gz":
			z, err := gzip.NewReader(in)
			if err != nil {
				yield(collector.Task{}, exit.Usagef("%s: not a gzip file: %w", name, err))
				return
			}
			defer func() { _ = z.Close() }() // read only
			lines = z
		case ".zst":
			z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxTaskBytes))
			if err != nil {
				yield(collector.Task{}, exit.Usagef("%s: not a zstd file: %w", name, err))
				return
			}
			defer z.Close()
			lines = z
		}
		readLines(lines, name, yield)
	}
}

// MaxTaskBytes is the maximum length of a task's line. A file with a longer line is probably not a
// JSON Lines file.
const MaxTaskBytes = 64 << 20

// ReadLines is like [Read], but reads JSON Lines from r. The name identifies the source in
// messages.
func ReadLines(r io.Reader, name string) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) { readLines(r, name, yield) }
}

func readLines(r io.Reader, name string, yield func(collector.Task, error) bool) {
	lines := bufio.NewReaderSize(r, 64<<10)
	// Binary files and UTF-16 text contain zero bytes near the beginning.
	head, err := lines.Peek(1)
	if err == nil {
		head, _ = lines.Peek(min(lines.Buffered(), 4096))
	}
	if bytes.IndexByte(head, 0) >= 0 {
		yield(collector.Task{}, exit.Usagef("%s: contains NUL bytes (a binary file or UTF-16); want JSON Lines in UTF-8", name))
		return
	}
	scan := bufio.NewScanner(lines)
	scan.Buffer(make([]byte, 64<<10), MaxTaskBytes)
	for n := 1; scan.Scan(); n++ {
		line := bytes.TrimSpace(scan.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		t, err := ParseTask(line)
		t.Source, t.Line = name, n
		if err != nil {
			err = &BadError{fmt.Sprintf("%s:%d", name, n), err}
		}
		if !yield(t, err) {
			return
		}
	}
	if err := scan.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("not JSON Lines: a line is longer than %s", format.Size(MaxTaskBytes))
		}
		yield(collector.Task{}, exit.Usagef("%s: %w", name, err))
	}
}

// A Line is a task in a run's tasks.jsonl, in which each task takes one line. A Line always has
// messages instead of a prompt.
type Line struct {
	ID       string          `json:"id"`
	Messages []string        `json:"messages,omitempty"`
	Recorded *RecordedLine   `json:"recorded,omitempty"`
	Answer   *string         `json:"answer,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Samples  int             `json:"samples,omitempty"`
	Agent    json.RawMessage `json:"agent,omitempty"`
	// Deadline is an RFC 3339 time, or empty if there is no deadline.
	Deadline string `json:"deadline,omitempty"`
}

// A RecordedLine marks a task that is a server run or a session. The id of the task is the id of the
// server run or session. Only the task of a session can have messages, an answer and metadata.
type RecordedLine struct {
	Server  string `json:"server,omitempty"` // empty for a session
	Session bool   `json:"session,omitempty"`
	TaskID  string `json:"task_id,omitempty"` // the task that the program stated for a session
}

// LineOf returns the Line for a task that a run accepts now. It converts a deadline in seconds to a
// time.
func LineOf(t *collector.Task, now time.Time) Line {
	l := Line{ID: t.ID, Messages: t.Messages, Answer: t.Answer, Metadata: t.Metadata, Samples: t.Samples, Agent: t.Agent}
	if t.Recorded != nil {
		l.Recorded = &RecordedLine{Server: t.Recorded.Server, Session: t.Recorded.Server == "", TaskID: t.Recorded.TaskID}
	}
	at := t.Deadline
	if t.Within > 0 {
		at = now.Add(t.Within)
	}
	if !at.IsZero() {
		l.Deadline = at.UTC().Format(time.RFC3339Nano)
	}
	return l
}

// ParseTask parses one task, a JSON object without surrounding white space. Its errors name the bad
// field.
func ParseTask(line []byte) (collector.Task, error) {
	if len(line) == 0 || line[0] != '{' {
		if err := strictjson.Check(string(line), strictjson.Options{}); err != nil {
			return collector.Task{}, notObject(err)
		}
		if line[0] == '[' {
			return collector.Task{}, errors.New("a JSON list, not a JSON object: put each task on its own line")
		}
		return collector.Task{}, errors.New("not a JSON object")
	}
	var fields taskFields
	var unknown []string
	var s strictjson.Scanner
	s.Reset(string(line), strictjson.Options{})
	for name := range s.Members {
		from := s.Offset()
		if s.Skip(); s.Err() != nil {
			break
		}
		if i := slices.Index(taskFieldNames[:], name); i >= 0 {
			fields[i] = line[from:s.Offset():s.Offset()]
		} else {
			unknown = append(unknown, name)
		}
	}
	switch err := s.End(); {
	case err != nil:
		return collector.Task{}, notObject(err)
	case unknown != nil:
		return collector.Task{}, fields.unknown(unknown)
	}
	return fields.task()
}

// notObject adds to a syntax error that a task must be a JSON object.
func notObject(err error) error {
	if bad, ok := errors.AsType[*strictjson.Error](err); ok && bad.Ambiguous {
		return err
	}
	return fmt.Errorf("not a JSON object: %w", err)
}

var taskFieldNames = [...]string{"id", "prompt", "messages", "answer", "metadata", "samples", "agent", "deadline", "recorded"}

// Indexes into taskFieldNames.
const (
	fieldID = iota
	fieldPrompt
	fieldMessages
	fieldAnswer
	fieldMetadata
	fieldSamples
	fieldAgent
	fieldDeadline
	fieldRecorded
)

// taskFields contains the JSON values of a task's fields. A null counts as missing.
type taskFields [len(taskFieldNames)]json.RawMessage

// maxIDBytes is the maximum length of a task id. Every row contains the id, and so do logs and
// messages.
const maxIDBytes = 1024

// maxSamples is the maximum number of samples that a task can request.
const maxSamples = 1 << 20

func (f *taskFields) task() (collector.Task, error) {
	var t collector.Task
	for i, v := range f {
		if string(v) == "null" {
			f[i] = nil
		}
	}
	if f[fieldID] == nil {
		return t, errors.New("id is missing")
	}
	var ok bool
	if t.ID, ok = scalarText(f[fieldID]); !ok || t.ID == "" || f[fieldID][0] != '"' && strings.Trim(t.ID, "-0123456789") != "" {
		return t, errors.New("id: must be a string or a whole number, and not empty")
	}
	if len(t.ID) > maxIDBytes {
		return t, fmt.Errorf("id: must be at most %d bytes, got %d", maxIDBytes, len(t.ID))
	}
	if strings.IndexFunc(t.ID, unicode.IsControl) >= 0 {
		return t, errors.New("id: must not contain a control character")
	}

	if f[fieldRecorded] != nil {
		if done, err := f.recorded(&t); done || err != nil {
			return t, err
		}
	}
	prompt, messages := f[fieldPrompt], f[fieldMessages]
	switch {
	case prompt != nil && messages != nil:
		return t, errors.New("prompt and messages: set only one")
	case prompt != nil:
		s, _ := text(prompt)
		if err := checkMessage(s); err != nil {
			return t, fmt.Errorf("prompt: %w", err)
		}
		t.Messages = []string{s}
	case messages != nil:
		var s strictjson.Scanner
		if s.Reset(string(messages), strictjson.Options{}); s.Kind() == '[' {
			for i := range s.Elements {
				text := ""
				if s.Kind() == '"' {
					text = s.Text()
				}
				if err := checkMessage(text); err != nil {
					return t, fmt.Errorf("messages[%d]: %w", i, err)
				}
				t.Messages = append(t.Messages, text)
			}
		}
		if len(t.Messages) == 0 {
			return t, errors.New("messages: must be a list of at least one user message")
		}
	case t.Recorded == nil:
		return t, errors.New("prompt and messages are both missing; set one of them")
	}

	if v := f[fieldAnswer]; v != nil {
		s, ok := scalarText(v)
		if !ok {
			return t, errors.New("answer: must be a string, a number or a boolean")
		}
		t.Answer = &s
	}
	if v := f[fieldSamples]; v != nil {
		if err := json.Unmarshal(v, &t.Samples); err != nil || t.Samples < 1 || t.Samples > maxSamples {
			return t, fmt.Errorf("samples: must be a whole number from 1 to %d", maxSamples)
		}
	}
	t.Metadata = format.CompactJSON(f[fieldMetadata])
	if v := f[fieldAgent]; v != nil {
		if v[0] != '{' {
			return t, errors.New("agent: must be a JSON object of agent settings")
		}
		t.Agent = format.CompactJSON(v)
	}
	if v := f[fieldDeadline]; v != nil {
		var err error
		if t.Deadline, t.Within, err = deadline(v); err != nil {
			return t, err
		}
	}
	return t, nil
}

// recorded sets t.Recorded from a RecordedLine. Only a run's own tasks.jsonl can contain such a
// line. For a server run, recorded returns true, because its task has no other fields.
func (f *taskFields) recorded(t *collector.Task) (done bool, err error) {
	var line RecordedLine
	if err := json.Unmarshal(f[fieldRecorded], &line); err != nil || (line.Server == "") != line.Session {
		return false, errors.New("recorded: must be an object that names a server or marks a session")
	}
	for i, v := range f {
		allowed := i == fieldID || i == fieldRecorded || i == fieldSamples ||
			line.Session && (i == fieldMessages || i == fieldAnswer || i == fieldMetadata)
		if v != nil && !allowed {
			return false, fmt.Errorf("%s: not allowed in a task with recorded", taskFieldNames[i])
		}
	}
	t.Samples, t.Recorded = 1, &collector.Recorded{Server: line.Server, Run: t.ID, TaskID: line.TaskID}
	return !line.Session, nil
}

const maxDeadline = 10 * 365 * 24 * time.Hour

// deadline parses an RFC 3339 time, or a number of seconds after the task is accepted.
func deadline(v json.RawMessage) (at time.Time, within time.Duration, err error) {
	if text, ok := text(v); ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || at.Year() < 1970 || at.Year() > 9998 {
			return at, 0, fmt.Errorf("deadline: %q is not a time such as 2026-01-02T15:04:05Z", termsafe.Text(text, 60))
		}
		return at, 0, nil
	}
	seconds, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(seconds > 0 && seconds <= maxDeadline.Seconds()) {
		return at, 0, errors.New("deadline: must be a number of seconds > 0, or a time such as 2026-01-02T15:04:05Z")
	}
	return at, max(1, time.Duration(seconds*float64(time.Second))), nil
}

func checkMessage(text string) error {
	switch {
	case text == "":
		return errors.New("must be a non-empty string")
	case strings.IndexByte(text, 0) >= 0:
		return errors.New("must not contain a NUL character, because the server does not store it")
	}
	return nil
}

// usualNames maps a task field to the names that other task files use for it.
var usualNames = map[string][]string{
	"prompt": {"question", "problem", "input", "query", "instruction", "text", "user", "content", "goal"},
	"answer": {"solution", "ground_truth", "label", "target", "reference", "expected", "output", "gold"},
	"id":     {"task_id", "uid", "uuid", "name", "key", "index"},
}

// unknown returns the error for a task that has unknown fields.
func (f *taskFields) unknown(names []string) error {
	if f[fieldPrompt] == nil && f[fieldMessages] == nil {
		for _, usual := range usualNames["prompt"] {
			if slices.Contains(names, usual) {
				return fmt.Errorf("prompt is missing; rename %s to prompt?", usual)
			}
		}
	}
	name := names[0]
	near := format.Nearest(name, taskFieldNames[:fieldRecorded])
	for i, field := range taskFieldNames {
		if f[i] == nil && slices.Contains(usualNames[field], name) {
			near = field
		}
	}
	if near != "" {
		return fmt.Errorf("%s: unknown field; did you mean %s?", termsafe.Text(name, 60), near)
	}
	return fmt.Errorf("%s: unknown field; put your own fields into metadata", termsafe.Text(name, 60))
}

// text decodes a JSON string. ok is false for any other value.
func text(v json.RawMessage) (text string, ok bool) {
	var s strictjson.Scanner
	if s.Reset(string(v), strictjson.Options{}); s.Kind() == '"' {
		if text = s.Text(); s.Err() == nil {
			return text, true
		}
	}
	return "", false
}

// scalarText returns the text of a JSON string, number or Boolean.
func scalarText(v json.RawMessage) (string, bool) {
	switch v[0] {
	case '{', '[':
		return "", false
	case '"':
		return text(v)
	default:
		return string(v), true
	}
}
