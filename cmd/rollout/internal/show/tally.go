package show

import (
	"maps"
	"math"
	"strconv"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Tally sums up the samples of a run during the collection. It is safe for concurrent use. Add is
// called once for every sample that the sink accepted.
type Tally struct {
	mu     sync.Mutex
	sums   sums
	failed map[string]int // samples by class, committed or not
}

// Add adds a sample that the sink accepted. s must be an outline: the tokens belong to the sink.
func (t *Tally) Add(s *tokenize.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sum := range t.sums.each() {
		sum.add(s)
	}
	if len(s.Rows) == 0 && len(s.Failures) > 0 {
		count(&t.failed, s.Failures[0].Class)
	}
}

// Failures returns the number of failed samples so far, committed or not, by class.
func (t *Tally) Failures() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.failed)
}

// Rewards returns the rewards so far, committed or not.
func (t *Tally) Rewards() Rewards {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Rewards{Scored: t.sums.Scored, Mean: t.sums.MeanReward}
}

// Rewards summarizes the rewards of the samples that this process has finished.
type Rewards struct {
	Scored int
	Mean   *float64 // nil: none was scored
}

// mean formats the mean reward with a constant length.
func (r Rewards) mean() string {
	switch {
	case r.Mean == nil:
		return "-"
	case math.Abs(*r.Mean) < 1000:
		return strconv.FormatFloat(*r.Mean, 'f', 3, 64)
	}
	return strconv.FormatFloat(*r.Mean, 'g', 4, 64)
}

// result returns the sums of all samples. No sample can be added after it.
func (t *Tally) result() sums {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.sums
	for _, counts := range []*map[string]int{&out.Grades, &out.Sources, &out.Reasons} {
		if *counts = maps.Clone(*counts); *counts == nil {
			*counts = map[string]int{} // {} in JSON, not null
		}
	}
	return out
}

// sums are the aggregates of the samples. To add one to the summary:
//
//  1. Write a type with JSON fields and the methods add and text, in a file of its own. text
//     is empty if there is nothing to show. sampleEnds is a short example.
//  2. Add a field of the type with its JSON name to sums, and an entry with its name in the
//     text to each.
//  3. If the type has a map, add the map to the list in Tally.result. Otherwise it is null in
//     JSON if nothing was counted.
//
// The aggregate is then in report.json, in the last JSON line, and in the text for people.
type sums struct {
	rowSums
	proofSums
	rewardSums
	Ends sampleEnds `json:"ends"`
}

func (s *sums) each() []namedSum {
	return []namedSum{
		{"rows", &s.rowSums},
		{"proof", &s.proofSums},
		{"reward", &s.rewardSums},
		{"ends", &s.Ends},
	}
}

type namedSum struct {
	name string
	sum
}

// A sum is one aggregate of the samples.
type sum interface {
	add(s *tokenize.Sample)
	// text returns a line for people. It returns "" if there is nothing to show, or if Summary.text
	// shows the numbers in another line.
	text() string
}

type rowSums struct {
	CutRows int   `json:"cut_rows"`
	Forks   int   `json:"forks"`
	Tokens  int64 `json:"tokens"` // of all rows, context included
	// RowsPerSample is the mean over samples with a row. MostRows is the most rows of a sample.
	RowsPerSample float64 `json:"rows_per_sample"`
	MostRows      int     `json:"most_rows"`

	rows, filled int // rows, and samples with a row
}

func (r *rowSums) add(s *tokenize.Sample) {
	if len(s.Rows) == 0 {
		return
	}
	r.filled++
	r.rows += len(s.Rows)
	r.RowsPerSample = float64(r.rows) / float64(r.filled)
	r.MostRows = max(r.MostRows, len(s.Rows))
	for i := range s.Rows {
		row := &s.Rows[i]
		r.Tokens += int64(len(row.InputIDs))
		if row.Divergence != nil {
			r.Forks++
		}
		if row.Flags&tokenize.FlagCut != 0 {
			r.CutRows++
		}
	}
}

func (r *rowSums) text() string { return "" }

// proofSums counts the proofs of rows. Grades and Sources count rows. Reasons counts quarantined
// samples and single quarantined calls.
type proofSums struct {
	Grades  map[string]int `json:"grades"`
	Sources map[string]int `json:"prompt_sources"`
	Reasons map[string]int `json:"quarantine_reasons"`
}

func (p *proofSums) add(s *tokenize.Sample) {
	for i := range s.Rows {
		count(&p.Grades, s.Rows[i].Grade.String())
		count(&p.Sources, s.Rows[i].Source.String())
	}
	for i := range s.Failures {
		if reason := s.Failures[i].Reason; reason != "" {
			count(&p.Reasons, reason)
		}
	}
}

func (p *proofSums) text() string { return "" }

type rewardSums struct {
	Scored     int      `json:"scored"`
	MeanReward *float64 `json:"mean_reward"` // nil: none was scored

	sum float64
}

func (r *rewardSums) add(s *tokenize.Sample) {
	if s.Reward == nil {
		return
	}
	r.Scored++
	r.sum += *s.Reward
	r.MeanReward = new(r.sum / float64(r.Scored))
}

func (r *rewardSums) text() string { return "" }

func count(counts *map[string]int, name string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[name]++
}
