package view

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/sink"
)

// A hit is a part of the answer to a search: the numbers of samples with the text. Done of Of
// samples have been searched.
type hit struct {
	Done  int     `json:"done"`
	Of    int     `json:"of"`
	Found []int32 `json:"found"`
	// Note describes what was not searched, and is otherwise empty.
	Note string `json:"note,omitempty"`
}

// every is the number of rows after which search reports its progress.
const every = 512

// search calls found for the samples that contain the text, in any case: in the task, in an error,
// in the messages, or in the tokens of one row. It reads all rows, and skips damaged shards.
func (v *View) search(ctx context.Context, text string, found func(hit) error) error {
	want := bytes.ToLower([]byte(text))
	logs, h := v.searchTasks(string(want))
	if v.tokens == nil {
		h.Note = "without the run's tokenizer, only tasks, errors and messages were searched"
	}
	if err := found(h); err != nil {
		return err
	}
	h.Found, h.Note = []int32{}, ""
	rows, last := 0, ""
	progress := func(key string, has bool) error {
		if key != last {
			h.Done, last = h.Done+1, key
		}
		if has {
			h.Found = v.appendNumber(h.Found, key)
		}
		if rows++; rows%every != 0 {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := found(h)
		h.Found = []int32{}
		return err
	}
	damaged, err := eachText(logs, v.tokens, want, progress)
	if err != nil {
		return v.run.Error(err)
	}
	if h.Done = h.Of; damaged {
		h.Note = "damaged shards were not searched"
	}
	return found(h)
}

// searchTasks returns the logs to search, and the samples whose task contains the text.
func (v *View) searchTasks(want string) (logs []*runs.Log, h hit) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := &v.state.index
	h = hit{Of: len(x.order), Found: []int32{}}
	tasks := make([]bool, len(x.task.List))
	for i, w := range x.task.List {
		tasks[i] = strings.Contains(strings.ToLower(w), want)
	}
	for n := range x.order {
		if tasks[x.taskOf[n]] {
			h.Found = append(h.Found, int32(n)) //nolint:gosec // a number of the index
		}
	}
	return v.state.logs, h
}

func (v *View) appendNumber(dst []int32, key string) []int32 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if n, ok := v.state.index.keys[key]; ok {
		dst = append(dst, n)
	}
	return dst
}

// eachText calls each for every failure and every row, with whether it contains the text. It reports whether it
// skipped damaged shards.
func eachText(logs []*runs.Log, tokens *decoder, want []byte, each func(key string, has bool) error) (damaged bool, err error) {
	var buf []byte
	contains := func(ids []int32, texts ...string) bool {
		for _, t := range texts {
			if bytes.Contains(bytes.ToLower([]byte(t)), want) {
				return true
			}
		}
		if tokens == nil {
			return false
		}
		buf = tokens.appendLower(buf[:0], ids)
		return bytes.Contains(buf, want)
	}
	damaged, err = eachIn(logs, sink.KindFailures, (*runs.Log).Failures, func(f *sink.StoredFailure) error {
		return each(f.SampleKey, contains(f.OutputIDs, f.Error, f.Text))
	})
	if err != nil {
		return damaged, err
	}
	more, err := eachIn(logs, sink.KindData, (*runs.Log).Rows, func(r *sink.StoredRow) error {
		messages := ""
		if r.Messages != nil {
			messages = *r.Messages
		}
		return each(r.SampleKey, contains(r.InputIDs, messages))
	})
	return damaged || more, err
}

// eachIn calls each for the rows in all shards of a kind, until it returns an error. It reports whether it skipped
// damaged shards.
func eachIn[T any](logs []*runs.Log, kind sink.Kind, read func(*runs.Log, sink.Shard) iter.Seq2[*T, error], each func(*T) error) (damaged bool, err error) {
	for log, shard := range runs.Shards(logs, kind) {
		for row, err := range read(log, shard) {
			if errors.Is(err, sink.ErrCorrupt) {
				damaged = true
				break
			}
			if err == nil {
				err = each(row)
			}
			if err != nil {
				return damaged, err
			}
		}
	}
	return damaged, nil
}
