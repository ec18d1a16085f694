package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// readParquet yields the tasks in a Parquet file. It ignores unknown columns. A task's line is its
// row number, starting at 1. Rows are read without a Go type. Reading into a struct would silently
// convert a null to "" and a number to text, and would lose a nested struct.
func readParquet(f *os.File, name string, yield func(collector.Task, error) bool) {
	fail := func(err error) { yield(collector.Task{}, exit.Usagef("%s: %w", name, err)) }
	info, err := f.Stat()
	if err != nil {
		fail(err)
		return
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		fail(fmt.Errorf("not a Parquet file: %w", err))
		return
	}
	if err := checkTaskColumns(file.Schema()); err != nil {
		fail(err)
		return
	}

	rows := parquet.NewGenericReader[any](file)
	defer func() { _ = rows.Close() }() // read only
	batch := make([]any, 64)
	for n := 1; ; {
		got, err := rows.Read(batch)
		for _, row := range batch[:got] {
			t, bad := taskFromRow(row)
			t.Source, t.Line = name, n
			if bad != nil {
				bad = &BadError{fmt.Sprintf("%s:%d", name, n), bad}
			}
			if !yield(t, bad) {
				return
			}
			n++
		}
		clear(batch)
		if errors.Is(err, io.EOF) || err == nil && got == 0 {
			return
		}
		if err != nil {
			fail(err)
			return
		}
	}
}

// checkTaskColumns returns an error if a required column is missing or a column name occurs twice.
func checkTaskColumns(s *parquet.Schema) error {
	var have []string
	for _, f := range s.Fields() {
		have = append(have, f.Name())
	}
	for i, name := range have {
		if slices.Contains(taskFieldNames[:], name) && slices.Contains(have[:i], name) {
			return exit.Hint(exit.Usagef("two columns are named %s; the columns are: %s", name, strings.Join(have, ", ")), "drop or rename one of them")
		}
	}
	var missing []string
	if !slices.Contains(have, "id") {
		missing = append(missing, "id")
	}
	if !slices.Contains(have, "prompt") && !slices.Contains(have, "messages") {
		missing = append(missing, "prompt (or messages)")
	}
	if missing == nil {
		return nil
	}
	hint := "rename the columns: a task has id, prompt or messages, and optionally answer, metadata, samples, agent"
	for _, usual := range slices.Backward(usualNames["prompt"]) {
		if slices.Contains(have, usual) && slices.Contains(missing, "prompt (or messages)") {
			hint = "rename " + usual + " to prompt? A task has id, prompt or messages, and optionally answer, metadata, samples, agent"
		}
	}
	return exit.Hint(exit.Usagef("no column %s; the columns are: %s", strings.Join(missing, ", no column "), strings.Join(have, ", ")), hint)
}

// taskFromRow validates a row in the same way as a JSON line.
func taskFromRow(row any) (collector.Task, error) {
	columns, ok := row.(map[string]any)
	if !ok {
		return collector.Task{}, fmt.Errorf("unexpected row type %T", row)
	}
	var fields taskFields
	for i, name := range taskFieldNames {
		v, ok := columns[name]
		if !ok || v == nil || i == fieldDeadline || i == fieldRecorded { // a Parquet file cannot set the deadline or recorded field
			continue
		}
		v, err := plain(v)
		if err != nil {
			return collector.Task{}, fmt.Errorf("%s: %w", name, err)
		}
		// metadata and agent are objects. A file without nested columns contains them as JSON text.
		if s, ok := v.(string); ok && (i == fieldMetadata || i == fieldAgent) {
			s = strings.TrimSpace(s)
			err, bad := errors.AsType[*strictjson.Error](strictjson.Check(s, strictjson.Options{}))
			switch {
			case !bad:
				fields[i] = json.RawMessage(s)
				continue
			case err.Ambiguous:
				return collector.Task{}, fmt.Errorf("%s: %w", name, err)
			case i == fieldAgent:
				return collector.Task{}, errors.New("agent: must be a JSON object of agent settings")
			}
		}
		b, err := json.Marshal(v)
		if err != nil {
			return collector.Task{}, fmt.Errorf("%s: cannot convert type %T to JSON", name, v)
		}
		fields[i] = b
	}
	return fields.task()
}

// plain converts a value from parquet-go to a value that encoding/json can encode. It converts
// bytes to text, and returns an error if the bytes are not valid UTF-8. It removes the two levels
// of nesting that Parquet adds to a list.
func plain(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case []byte:
		return plain(string(v))
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("not UTF-8")
		}
		return v, nil
	case map[string]any:
		if list, ok := v["list"].([]any); ok && len(v) == 1 {
			out := make([]any, len(list))
			for i, e := range list {
				if m, ok := e.(map[string]any); ok && len(m) == 1 {
					for _, only := range m { // the only key is "element", "item" or "array_element"
						e = only
					}
				}
				if out[i], err = plain(e); err != nil {
					return nil, err
				}
			}
			return out, nil
		}
		for k, e := range v {
			if v[k], err = plain(e); err != nil {
				return nil, err
			}
		}
		return v, nil
	case []any:
		for i, e := range v {
			if v[i], err = plain(e); err != nil {
				return nil, err
			}
		}
		return v, nil
	default:
		return v, nil
	}
}
