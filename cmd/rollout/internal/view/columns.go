package view

import (
	"encoding/json"
	"math"
)

// columns is the index as the page gets it. Columns with words contain numbers in Words.
type columns struct {
	Revision int64               `json:"revision"`
	N        int                 `json:"n"`
	Words    map[string][]string `json:"words"`
	Task     []int32             `json:"task"`
	Group    []int32             `json:"group"`
	Index    []int32             `json:"index"`
	Status   []int32             `json:"status"`
	Grade    []int32             `json:"grade"`
	Flags    []uint64            `json:"flags"`
	Failed   bools               `json:"failed"`
	Reward   rewards             `json:"reward"`
	Tokens   []int64             `json:"tokens"`
	Trained  []int64             `json:"trained"`
	Sampled  []int64             `json:"sampled"`
	Calls    []int32             `json:"calls"`
	Rows     []int32             `json:"rows"`
	Seconds  []float64           `json:"seconds"`
}

// A rewards encodes NaN as null.
type rewards []float64

// MarshalJSON implements json.Marshaler.
func (r rewards) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(r))
	for i := range r {
		if !math.IsNaN(r[i]) {
			out[i] = &r[i]
		}
	}
	return json.Marshal(out)
}

// A bools encodes true as 1 and false as 0.
type bools []bool

// MarshalJSON implements json.Marshaler.
func (l bools) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 2*len(l)+2), '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		if v {
			b = append(b, '1')
		} else {
			b = append(b, '0')
		}
	}
	return append(b, ']'), nil
}

// columns returns the samples with the given numbers, or all samples if only is nil. The caller must hold v.mu.
func (v *View) columns(only []int32) *columns {
	x := &v.state.index
	words := map[string][]string{"task": list(x.task.List), "status": list(x.status.List), "grade": list(x.grade.List), "flag": list(x.flag.List[:min(len(x.flag.List), maxFlags)])}
	if only == nil {
		return &columns{
			v.revision, len(x.order), words, list(x.taskOf), list(x.groupOf), list(x.sampleIndex), list(x.statusOf), list(x.gradeOf), list(x.flags),
			x.failed, x.reward, list(x.tokens), list(x.trained), list(x.sampled), list(x.calls), list(x.rows), list(x.seconds),
		}
	}
	return &columns{
		v.revision, len(only), words, pick(x.taskOf, only), pick(x.groupOf, only), pick(x.sampleIndex, only), pick(x.statusOf, only), pick(x.gradeOf, only), pick(x.flags, only),
		pick(x.failed, only), pick(x.reward, only), pick(x.tokens, only), pick(x.trained, only), pick(x.sampled, only), pick(x.calls, only), pick(x.rows, only), pick(x.seconds, only),
	}
}

func pick[T any](from []T, only []int32) []T {
	out := make([]T, len(only))
	for i, n := range only {
		out[i] = from[n]
	}
	return out
}
