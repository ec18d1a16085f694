package show

import (
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// sampleEnds counts samples with rows whose end the policy did not choose. The fields can overlap.
type sampleEnds struct {
	Cut      int `json:"cut"`       // a row was cut at tokens.max_row_tokens
	Length   int `json:"length"`    // a row's last output ended at the engine's token limit
	MaxSteps int `json:"max_steps"` // all steps were used
}

func (e *sampleEnds) add(s *tokenize.Sample) {
	if len(s.Rows) == 0 {
		return
	}
	var flags tokenize.Flags
	for i := range s.Rows {
		flags |= s.Rows[i].Flags
	}
	if flags&tokenize.FlagCut != 0 {
		e.Cut++
	}
	if flags&tokenize.FlagLength != 0 {
		e.Length++
	}
	if s.Status == collector.StatusMaxSteps {
		e.MaxSteps++
	}
}

// text returns "" if the policy ended every sample.
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
	return "samples whose end the policy did not choose: " + strings.Join(parts, ", ")
}
