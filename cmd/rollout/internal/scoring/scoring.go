// Package scoring builds the scorer of a run, and the splitter that finds the answer in a sample, from
// the settings reward.*.
package scoring

import (
	"fmt"
	"io"
	"os/exec"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/reasoning"
	"github.com/rollout-rl/rollout/collector/reward"
)

// A Scoring scores finished samples.
type Scoring struct {
	Splitter *reasoning.Splitter
	Scorer   collector.Scorer // nil if reward.kind is none
	Close    func()           // ends the scorer's processes; can take several seconds
	Kill     func()           // kills the scorer's processes at once
}

// New returns the scoring of a run. The model is nil if no tokenizer is configured. The messages of a
// scoring program go to stderr.
func New(c *config.Config, m *prompt.Model, stderr io.Writer) (*Scoring, error) {
	r := &c.Reward
	p := &Scoring{Splitter: reasoning.New(nil), Close: func() {}, Kill: func() {}}
	if m != nil {
		p.Splitter = reasoning.New(&reasoning.Model{Template: m.Template, Tokenizer: m.Tokenizer, Transformers: m.Transformers})
	}
	p.Splitter.Include = r.IncludeReasoning
	switch r.Kind {
	case config.RewardNone:
	case config.RewardExact:
		p.Scorer = reward.Exact{IgnoreCase: r.IgnoreCase}
	case config.RewardContains:
		p.Scorer = reward.Contains{IgnoreCase: r.IgnoreCase}
	case config.RewardNumber:
		p.Scorer = reward.Number{Tolerance: r.Tolerance}
	case config.RewardRegex:
		s, err := reward.NewRegex(r.Pattern)
		if err != nil {
			return nil, exit.Usagef("reward.pattern: %w", err)
		}
		p.Scorer = s
	case config.RewardJSON:
		s, err := reward.NewJSON(r.Path)
		if err != nil {
			return nil, exit.Usagef("reward.path: %w", err)
		}
		p.Scorer = s
	case config.RewardCommand:
		if _, err := exec.LookPath(r.Command[0]); err != nil {
			return nil, exit.Usagef("reward.command: %w", err)
		}
		s, err := reward.NewCommand(reward.CommandConfig{Args: r.Command, Processes: r.Processes, Timeout: r.Timeout, Stderr: stderr})
		if err != nil {
			return nil, exit.Usagef("reward.command: %w", err)
		}
		p.Scorer, p.Kill, p.Close = s, s.Kill, func() { _ = s.Close() } // an error is harmless, because all scores have been returned
	default:
		return nil, fmt.Errorf("internal error: reward.kind %q is not handled", r.Kind)
	}
	return p, nil
}

// leastUnscored is the smallest number of failed scores that ends a run in which no score has
// succeeded. Fewer failures do not end the run, because a scorer that starts slowly can fail on the
// first samples.
const leastUnscored = 16

// MaxUnscored returns how many scores can fail before the run ends. The limit applies only until a
// score succeeds.
func MaxUnscored(c *config.Config, planned int) int {
	return max(leastUnscored, c.Run.FailOnError.Allowed(planned)+1) - 1
}
