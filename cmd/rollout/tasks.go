package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/collector"
)

// A badTaskError is a complaint about one task of a file; the ones after it can still
// be read.
type badTaskError struct {
	place string // tasks.jsonl:7
	err   error
}

func (e *badTaskError) Error() string { return e.place + ": " + e.err.Error() }
func (e *badTaskError) Unwrap() error { return e.err }

// readTasks yields the tasks of a file, by its name: .jsonl and anything else is
// JSON lines, perhaps under .gz or .zst, .parquet is Parquet, and "-" is standard
// input. After a *badTaskError the iteration may go on, after any other error not.
func readTasks(path string, stdin io.Reader) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		if path == "-" {
			taskLines(stdin, "stdin", yield)
			return
		}
		f, err := os.Open(path)
		if err != nil {
			yield(collector.Task{}, withHint(usageError("tasks: %w", err), "give a file of tasks with --tasks, one JSON object per line"))
			return
		}
		defer func() { _ = f.Close() }() // read only
		name := filepath.Base(path)
		switch ext := strings.ToLower(filepath.Ext(path)); ext {
		case ".parquet":
			parquetTasks(f, name, yield)
		case ".gz":
			z, err := gzip.NewReader(f)
			if err != nil {
				yield(collector.Task{}, usageError("%s: not gzip: %w", name, err))
				return
			}
			defer func() { _ = z.Close() }() // read only
			taskLines(z, name, yield)
		case ".zst":
			z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
			if err != nil {
				yield(collector.Task{}, usageError("%s: not zstd: %w", name, err))
				return
			}
			defer z.Close()
			taskLines(z, name, yield)
		default:
			taskLines(f, name, yield)
		}
	}
}

// maxTaskBytes is the longest line that can be a task. A longer one is more
// likely a file that is no JSON lines at all.
const maxTaskBytes = 64 << 20

// taskLines yields the tasks of JSON lines.
func taskLines(r io.Reader, name string, yield func(collector.Task, error) bool) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxTaskBytes)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		t, err := parseTask(line)
		t.Source, t.Line = name, n
		if err != nil {
			err = &badTaskError{fmt.Sprintf("%s:%d", name, n), err}
		}
		if !yield(t, err) {
			return
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line of more than %s: these are no JSON lines", showBytes(maxTaskBytes))
		}
		yield(collector.Task{}, usageError("%s: %w", name, err))
	}
}

// A taskLine is a task as the snapshot of a run holds it: one line, always with
// messages, never with prompt.
type taskLine struct {
	ID       string          `json:"id"`
	Messages []string        `json:"messages"`
	Answer   *string         `json:"answer,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Samples  int             `json:"samples,omitempty"`
	Agent    json.RawMessage `json:"agent,omitempty"`
}

// A taskSet is the checked tasks of a run, spooled to a file of its own so that
// standard input and huge files need no memory.
type taskSet struct {
	path   string
	digest string // sha256 of the snapshot, hex
	// Tasks and Samples count what is to be done; Skipped the samples beyond the
	// limit and Bad the lines that were left out.
	tasks, samples, bad int
}

// maxComplaints is how many bad tasks are named; the others are counted.
const maxComplaints = 20

// checkTasks reads all tasks, checks them and spools them. Bad ones are an error
// with a line for each, or, with skipBad, are handed to skipped and left out.
// close removes the spool.
func checkTasks(tasks iter.Seq2[collector.Task, error], samples int, skipBad bool, skipped func(error)) (*taskSet, error) {
	spool, err := newSpool()
	if err != nil {
		return nil, err
	}
	defer spool.discard()
	set := &spool.set
	first := map[string]string{}
	var bad complaints
	for t, err := range tasks {
		if err == nil {
			place := fmt.Sprintf("%s:%d", t.Source, t.Line)
			if before, ok := first[t.ID]; ok {
				err = &badTaskError{place, fmt.Errorf("id %q was used before, at %s", t.ID, before)}
			} else {
				first[t.ID] = place
			}
		}
		if err != nil {
			if _, ok := errors.AsType[*badTaskError](err); !ok {
				return nil, err
			}
			set.bad++
			if skipBad {
				skipped(err)
			} else if set.bad <= maxComplaints {
				bad = append(bad, err)
			}
			continue
		}
		if err := spool.add(&t, samples); err != nil {
			return nil, err
		}
	}
	if set.bad > maxComplaints && !skipBad {
		bad = append(bad, fmt.Errorf("and %d more bad tasks", set.bad-maxComplaints))
	}
	switch {
	case len(bad) > 0:
		return nil, &exitError{code: exitUsage, err: bad, hint: "mend the tasks, or leave the bad ones out with --skip-bad-tasks"}
	case set.tasks == 0:
		return nil, &exitError{code: exitUsage, err: errors.New("there is no task in what tasks.file names"), hint: "give a file with at least one task a line, as {\"id\": \"t1\", \"prompt\": \"…\"}"}
	}
	return spool.finish()
}

// close removes the spool.
func (s *taskSet) close() { _ = os.Remove(s.path) } // what stays is in the temporary folder

// parseTask reads one task object. It says which field is wrong.
func parseTask(line []byte) (collector.Task, error) {
	// Decoding would replace what is broken in a prompt and keep it in metadata, which
	// no column can hold.
	if !utf8.Valid(line) {
		return collector.Task{}, errors.New("not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return collector.Task{}, fmt.Errorf("no JSON object: %s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)
		}
		return collector.Task{}, errors.New("no JSON object")
	}
	if fields == nil {
		return collector.Task{}, errors.New("no JSON object")
	}
	return taskFromFields(fields, true)
}

// taskFields are the names that a task may use.
var taskFields = [...]string{"id", "prompt", "messages", "answer", "metadata", "samples", "agent"}

// taskFromFields builds a task. A null field is as good as none. With strict, a
// name that is no field is an error.
func taskFromFields(fields map[string]json.RawMessage, strict bool) (collector.Task, error) {
	var t collector.Task
	get := func(name string) json.RawMessage {
		if v := fields[name]; len(v) > 0 && string(v) != "null" {
			return v
		}
		return nil
	}
	if strict {
		for name := range fields {
			if err := knownField(name); err != nil {
				return t, err
			}
		}
	}

	id := get("id")
	if id == nil {
		return t, errors.New("id: is missing")
	}
	text, ok := scalarText(id)
	if !ok || text == "" {
		return t, errors.New("id: must be a text or a whole number, and not empty")
	}
	t.ID = text

	prompt, messages := get("prompt"), get("messages")
	switch {
	case prompt != nil && messages != nil:
		return t, errors.New("prompt and messages: give one of them")
	case prompt != nil:
		var s string
		if err := json.Unmarshal(prompt, &s); err != nil || s == "" {
			return t, errors.New("prompt: must be a text, and not empty")
		}
		t.Messages = []string{s}
	case messages != nil:
		var list []json.RawMessage
		if err := json.Unmarshal(messages, &list); err != nil || len(list) == 0 {
			return t, errors.New("messages: must be a list of the user's messages, at least one")
		}
		for i, m := range list {
			var s *string
			if err := json.Unmarshal(m, &s); err != nil || s == nil || *s == "" {
				return t, fmt.Errorf("messages[%d]: must be a text, and not empty", i)
			}
			t.Messages = append(t.Messages, *s)
		}
	default:
		return t, errors.New("prompt: is missing (or messages)")
	}

	if v := get("answer"); v != nil {
		s, ok := scalarText(v)
		if !ok {
			return t, errors.New("answer: must be a text, a number or a boolean")
		}
		t.Answer = &s
	}
	if v := get("samples"); v != nil {
		if err := json.Unmarshal(v, &t.Samples); err != nil || t.Samples < 1 || t.Samples > 1<<20 {
			return t, errors.New("samples: must be a whole number ≥ 1")
		}
	}
	t.Metadata = compact(get("metadata"))
	if v := get("agent"); v != nil {
		if v[0] != '{' {
			return t, errors.New("agent: must be an object of overrides")
		}
		t.Agent = compact(v)
	}
	return t, nil
}

func knownField(name string) error {
	for _, f := range taskFields {
		if f == name {
			return nil
		}
	}
	if near := nearest(name, taskFields[:]); near != "" {
		return fmt.Errorf("%s: unknown field; did you mean %s?", name, near)
	}
	return fmt.Errorf("%s: unknown field; what is your own belongs into metadata", name)
}

// scalarText is the text of a JSON string, number or boolean.
func scalarText(v json.RawMessage) (string, bool) {
	switch v[0] {
	case '{', '[':
		return "", false
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err == nil
	default:
		return string(v), true
	}
}

// compact copies a JSON value without the spaces, so that a snapshot has one line
// per task.
func compact(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, v) != nil {
		return v // cannot be: v came out of a decoder
	}
	return out.Bytes()
}
