package view

import (
	"math"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// maxFlags is the number of distinct flags that an index keeps. JavaScript's numbers have 53 bits.
const maxFlags = 50

// words numbers the values of a text column in the order of their first appearance.
type words struct {
	List []string
	ids  map[string]int32
}

func (w *words) id(word string) int32 {
	n, ok := w.ids[word]
	if !ok {
		if w.ids == nil {
			w.ids = map[string]int32{}
		}
		n = int32(len(w.List)) //nolint:gosec // far fewer words than 2³¹ fit into memory
		w.ids[word] = n
		w.List = append(w.List, word)
	}
	return n
}

// A place locates n rows of a sample. The first of them is row first of the shard.
type place struct {
	log, shard int32 // numbers in snapshot.logs and snapshot.shards
	first      int64
	n          int32
}

// An index contains the facts of all samples, in columns. Sample n is entry n of each column. A
// sample has an entry if it has rows, if it failed, or if it ended without rows.
type index struct {
	task, status, grade, flag, group words

	keys  map[string]int32
	order []string // keys by number

	taskOf, groupOf, statusOf, gradeOf []int32
	sampleIndex, calls, rows           []int32
	flags                              []uint64
	failed                             []bool
	reward                             []float64 // NaN: not scored
	tokens, trained, sampled           []int64
	seconds                            []float64
	ended                              []int64 // in milliseconds since 1970
	data                               []place // n is 0 if the sample has no rows
	failures                           map[int32][]place
}

// at returns the number of the sample with the key. It adds an empty entry if there is none.
func (x *index) at(key string) int32 {
	n, ok := x.keys[key]
	if ok {
		return n
	}
	if x.keys == nil {
		x.keys, x.failures = map[string]int32{}, map[int32][]place{}
	}
	n = int32(len(x.order)) //nolint:gosec // far fewer samples than 2³¹ fit into memory
	x.keys[key] = n
	x.order = append(x.order, key)
	for _, c := range []*[]int32{&x.taskOf, &x.groupOf, &x.statusOf, &x.gradeOf, &x.sampleIndex, &x.calls, &x.rows} {
		*c = append(*c, 0)
	}
	for _, c := range []*[]int64{&x.tokens, &x.trained, &x.sampled, &x.ended} {
		*c = append(*c, 0)
	}
	x.flags, x.failed, x.data = append(x.flags, 0), append(x.failed, false), append(x.data, place{})
	x.reward, x.seconds = append(x.reward, math.NaN()), append(x.seconds, 0)
	return n
}

// addRow adds a row. The rows of a sample must come one after another.
func (x *index) addRow(r *sink.StoredRow, at place) {
	n := x.at(r.SampleKey)
	total, trained := r.TokenCount()
	if last := &x.data[n]; last.n == 0 || r.SegmentIndex == 0 {
		x.taskOf[n], x.groupOf[n], x.statusOf[n] = x.task.id(r.TaskID), x.group.id(r.GroupID), x.status.id(r.Status)
		x.sampleIndex[n], x.calls[n], x.rows[n], x.failed[n] = r.SampleIndex, r.Steps, 0, false
		x.gradeOf[n], x.flags[n] = x.grade.id(r.Verification), 0
		x.tokens[n], x.trained[n], x.sampled[n] = 0, 0, r.CompletionTokens
		x.setTime(n, r.StartedAt, r.DurationMS)
		x.reward[n] = math.NaN()
		if r.Reward != nil && !math.IsInf(*r.Reward, 0) {
			x.reward[n] = *r.Reward
		}
		x.data[n] = at
	}
	x.data[n].n++
	x.rows[n]++
	x.tokens[n] += int64(total)
	x.trained[n] += int64(trained)
	if worse(r.Verification, x.grade.List[x.gradeOf[n]]) {
		x.gradeOf[n] = x.grade.id(r.Verification)
	}
	for _, f := range r.Flags {
		x.addFlag(n, f)
	}
	if r.Keep != nil && !*r.Keep {
		x.addFlag(n, "keep=false")
	}
}

func (x *index) addFlag(n int32, name string) {
	if bit := x.flag.id(name); bit < maxFlags {
		x.flags[n] |= 1 << bit
	}
}

// worse reports whether grade a is worse than grade b. An unknown word is not worse.
func worse(a, b string) bool {
	var x, y tokenize.Grade
	return a != b && x.UnmarshalText([]byte(a)) == nil && y.UnmarshalText([]byte(b)) == nil && x > y
}

// addFailure adds a failure. A sample with rows does not become a failed sample: its calls failed,
// or an earlier attempt.
func (x *index) addFailure(f *sink.StoredFailure, at place) {
	n := x.at(f.SampleKey)
	at.n = 1
	if x.data[n].n == 0 {
		x.taskOf[n], x.groupOf[n], x.statusOf[n] = x.task.id(f.TaskID), x.group.id(f.GroupID), x.status.id(f.Class)
		x.sampleIndex[n], x.calls[n], x.failed[n], x.gradeOf[n] = f.SampleIndex, f.Steps, true, x.grade.id("")
		x.sampled[n] = f.CompletionTokens
		x.setTime(n, f.StartedAt, f.DurationMS)
	}
	x.failures[n] = append(x.failures[n], at)
}

// lost is the status of a sample whose rows and failures cannot be read.
const lost = "damaged"

// addEmpty adds a sample that ended without rows and without failures, or whose shard is damaged.
func (x *index) addEmpty(s *sink.CommittedSample, g sink.CommittedGroup, status string) {
	n := x.at(s.Key)
	if x.data[n].n > 0 || len(x.failures[n]) > 0 {
		return // of another attempt
	}
	x.taskOf[n], x.groupOf[n], x.statusOf[n] = x.task.id(""), x.group.id(g.ID), x.status.id(status)
	x.sampleIndex[n], x.gradeOf[n] = s.Index, x.grade.id("")
}

func (x *index) setTime(n int32, startedAt, durationMS int64) {
	x.seconds[n], x.ended[n] = float64(durationMS)/1e3, startedAt/1e3+durationMS
}
