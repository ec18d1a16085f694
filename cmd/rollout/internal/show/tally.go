package show

import (
	"maps"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Tally sums up the samples of a run, while it goes on. Its methods are called from many
// goroutines, Add once for every sample that the sink accepted.
type Tally struct {
	mu     sync.Mutex
	sums   sums
	failed map[string]int // samples by class, committed or not
}

// Add notes a sample that the sink accepted. It gets the outline of the sample: the tokens
// belong to the sink.
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

// Failures is how many samples have failed so far, committed or not, by class.
func (t *Tally) Failures() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.failed)
}

// result is the sums of all samples, when none comes any more.
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

// sums are what only the samples themselves show. To add an aggregate to the summary:
//
//  1. Write a type with its JSON fields, a method add, and a method text that is empty
//     where there is nothing to say, in a file of its own. sampleEnds is a short example.
//  2. Give sums a field of it with its JSON name, and each an entry with its name in the
//     text.
//
// It is in report.json then, in the last JSON line, and in what people read.
type sums struct {
	rowSums
	proofSums
	rewardSums
	Ends sampleEnds `json:"ends"`
}

// each lists the sums in the order of the text.
func (s *sums) each() []namedSum {
	return []namedSum{
		{"rows", &s.rowSums},
		{"proof", &s.proofSums},
		{"reward", &s.rewardSums},
		{"ends", &s.Ends},
	}
}

// A namedSum is one of the sums, with its name in the text.
type namedSum struct {
	name string
	sum
}

// A sum adds up something of every sample.
type sum interface {
	add(s *tokenize.Sample)
	// text is a line for people; empty where there is nothing to say, or where it is a part
	// of a line of Summary.text.
	text() string
}

// rowSums are what the rows come to.
type rowSums struct {
	CutRows int   `json:"cut_rows"`
	Forks   int   `json:"forks"`
	Tokens  int64 `json:"tokens"` // of all rows, context included
	// RowsPerSample is the mean over the samples with a row, MostRows the most that one has.
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

// proofSums are how well rows are proven, and what is not. Grades and Sources count rows;
// Reasons what was quarantined: a whole sample counts once, and so does a single call of a
// sample that kept its other rows.
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

// rewardSums are the rewards.
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

// count counts one more of a name.
func count(counts *map[string]int, name string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[name]++
}
