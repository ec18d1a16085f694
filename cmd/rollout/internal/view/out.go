package view

import (
	"context"
	"encoding/json"
	"io"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
)

// Most is the number of samples that Write puts into a file.
const Most = 200

// maxLeftOut is the number of tasks that the page lists as left out.
const maxLeftOut = 1000

// Write writes the page with the report and at most Most samples into one file. It returns what it
// left out, and the damage that the report lists.
func (v *View) Write(ctx context.Context, w io.Writer) (left *report.LeftOut, damage []error, err error) {
	o, err := v.overview(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	v.mu.RLock()
	only := v.state.index.choose(Most)
	cols := v.columns(only)
	left = v.state.index.leftOut(only)
	v.mu.RUnlock()
	trim(cols)
	whole := *o
	if left.Samples > 0 {
		whole.Left = left
	}
	page := web.Page{Title: whole.Name, Text: report.Text(whole.Report), Data: func(w io.Writer) error {
		head, err := json.Marshal(map[string]any{"overview": whole, "samples": cols})
		if err != nil {
			return err
		}
		if _, err := w.Write(append(head[:len(head)-1], `,"details":[`...)); err != nil {
			return err
		}
		for i, n := range only {
			s, err := v.sample(int(n))
			if err != nil {
				return err
			}
			s.N = i
			body, err := json.Marshal(s)
			if err != nil {
				return err
			}
			if i > 0 {
				body = append([]byte{','}, body...)
			}
			if _, err := w.Write(body); err != nil {
				return err
			}
		}
		_, err = io.WriteString(w, "]}")
		return err
	}}
	return left, o.Report.Damage, web.Write(w, page)
}

// choose returns the numbers of at most n samples, in order: whole groups from all parts of the
// run. If the first group alone is larger, it returns the first samples of that group.
func (x *index) choose(n int) []int32 {
	groups := make([][]int32, len(x.group.List))
	for i, g := range x.groupOf {
		groups[g] = append(groups[g], int32(i)) //nolint:gosec // a number of the index
	}
	if len(x.order) <= n {
		return pickAll(len(x.order))
	}
	chosen := make([]bool, len(groups))
	left := n
	// Halve the step until the page is full, so that the groups are spread evenly.
	for step := len(groups); step >= 1 && left > 0; step /= 2 {
		for g := 0; g < len(groups); g += step {
			if !chosen[g] && len(groups[g]) <= left {
				chosen[g] = true
				left -= len(groups[g])
			}
		}
	}
	out := []int32{}
	for i, g := range x.groupOf {
		if chosen[g] {
			out = append(out, int32(i)) //nolint:gosec // a number of the index
		}
	}
	if len(out) == 0 {
		return groups[0][:n]
	}
	return out
}

func pickAll(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i) //nolint:gosec // a number of the index
	}
	return out
}

func (x *index) leftOut(only []int32) *report.LeftOut {
	l := &report.LeftOut{Kept: len(only), Samples: len(x.order) - len(only), IDs: []string{}}
	kept := make(map[int32]bool, len(only))
	for _, n := range only {
		kept[n] = true
	}
	seen := map[int32]bool{}
	for n, t := range x.taskOf {
		if kept[int32(n)] || seen[t] { //nolint:gosec // a number of the index
			continue
		}
		seen[t] = true
		l.Tasks++
		if len(l.IDs) < maxLeftOut {
			l.IDs = append(l.IDs, x.task.List[t])
		}
	}
	return l
}

// trim removes the tasks that no sample has.
func trim(c *columns) {
	var kept words
	all := c.Words["task"]
	for i, t := range c.Task {
		c.Task[i] = kept.id(all[t])
	}
	c.Words["task"] = list(kept.List)
}
