package show

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Tally sums up the samples of a run during collection. It is safe for concurrent use. Add must
// be called once for every sample that the sink accepts.
type Tally struct {
	mu     sync.Mutex
	sums   sums
	failed map[string]int // failed samples by class, committed or not
}

// Add adds a sample that the sink has accepted. s must be a copy made by outline, because the sink
// owns the tokens.
func (t *Tally) Add(s *tokenize.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.add(s)
	if len(s.Rows) == 0 && len(s.Failures) > 0 {
		count(&t.failed, s.Failures[0].Class)
	}
}

// Failures returns the number of failed samples so far, by class. It includes samples that have not
// yet been committed.
func (t *Tally) Failures() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.failed)
}

// Rewards returns the rewards of the samples so far. It includes samples that have not yet been
// committed.
func (t *Tally) Rewards() Rewards {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Rewards{Scored: t.sums.Scored, Mean: t.sums.MeanReward}
}

// Rewards summarizes the rewards of the samples that this process has finished.
type Rewards struct {
	Scored int
	Mean   *float64 // nil: no sample was scored
}

// mean formats the mean reward, or returns "-" if no sample was scored.
func (r Rewards) mean() string {
	switch {
	case r.Mean == nil:
		return "-"
	case math.Abs(*r.Mean) < 1000:
		return strconv.FormatFloat(*r.Mean, 'f', 3, 64)
	}
	return strconv.FormatFloat(*r.Mean, 'g', 4, 64)
}

// result returns the sums over all samples. It must be called after the last Add.
func (t *Tally) result() sums {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.sums
	for _, counts := range []*map[string]int{&out.Grades, &out.Sources, &out.Reasons} {
		if *counts = maps.Clone(*counts); *counts == nil {
			*counts = map[string]int{} // {} in JSON, not null
		}
	}
	out.Untrained = maps.Clone(out.Untrained)
	return out
}

// sums contains the aggregates of the samples. Tally.result clones each map, so a new map field
// must also be added to Tally.result.
type sums struct {
	CutRows int   `json:"cut_rows"`
	Forks   int   `json:"forks"`
	Tokens  int64 `json:"tokens"` // tokens of all rows, including context
	// RowsPerSample is the mean number of rows over the samples that have a row. MostRows is the
	// largest number of rows in a sample.
	RowsPerSample float64 `json:"rows_per_sample"`
	MostRows      int     `json:"most_rows"`
	// Grades and Sources count rows. Reasons counts quarantined samples and individually
	// quarantined calls. Untrained counts calls (see tokenize.Untrained).
	Grades     map[string]int `json:"grades"`
	Sources    map[string]int `json:"prompt_sources"`
	Reasons    map[string]int `json:"quarantine_reasons"`
	Untrained  map[string]int `json:"untrained_reasons,omitempty"`
	Scored     int            `json:"scored"`
	MeanReward *float64       `json:"mean_reward"` // nil: no sample was scored
	Ends       sampleEnds     `json:"ends"`

	rows, filled int // number of rows, and of samples with a row
	rewards      float64
}

func (t *sums) add(s *tokenize.Sample) {
	for i := range s.Failures {
		switch f := &s.Failures[i]; {
		case tokenize.Untrained(f.Reason, f.Call):
			count(&t.Untrained, f.Reason)
		case f.Reason != "":
			count(&t.Reasons, f.Reason)
		}
	}
	if s.Reward != nil {
		t.Scored++
		t.rewards += *s.Reward
		t.MeanReward = new(t.rewards / float64(t.Scored))
	}
	if len(s.Rows) == 0 {
		return
	}
	t.filled++
	t.rows += len(s.Rows)
	t.RowsPerSample = float64(t.rows) / float64(t.filled)
	t.MostRows = max(t.MostRows, len(s.Rows))
	var flags tokenize.Flags
	for i := range s.Rows {
		row := &s.Rows[i]
		flags |= row.Flags
		t.Tokens += int64(len(row.InputIDs))
		if row.Divergence != nil {
			t.Forks++
		}
		if row.Flags&tokenize.FlagCut != 0 {
			t.CutRows++
		}
		count(&t.Grades, row.Grade.String())
		count(&t.Sources, row.Source.String())
	}
	t.Ends.add(flags, s.Status)
}

func count(counts *map[string]int, name string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[name]++
}

// sampleEnds counts the samples that ended at a limit and not by the policy's choice. Samples
// without rows do not count. A sample can count in several fields.
type sampleEnds struct {
	Cut      int `json:"cut"`       // samples with a row that was cut at tokens.max_row_tokens
	Length   int `json:"length"`    // samples with a row whose last output ended at the engine's token limit
	MaxSteps int `json:"max_steps"` // samples that used all their steps
}

func (e *sampleEnds) add(flags tokenize.Flags, status string) {
	if flags&tokenize.FlagCut != 0 {
		e.Cut++
	}
	if flags&tokenize.FlagLength != 0 {
		e.Length++
	}
	if status == collector.StatusMaxSteps {
		e.MaxSteps++
	}
}

// text describes the counts. It returns "" if the policy ended every sample.
func (e *sampleEnds) text() string {
	var parts []string
	say := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	say(e.Cut, "cut at tokens.max_row_tokens")
	say(e.Length, "at the engine's token limit")
	say(e.MaxSteps, "at the step limit")
	if parts == nil {
		return ""
	}
	return "samples that ended at a limit: " + strings.Join(parts, ", ")
}
