package collector

import (
	"context"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// CheckReply reports whether a reply to task would be data: it finds the prompts and
// builds and checks the rows as an attempt does. Nothing is scored and nothing is kept.
// Of cfg it uses Prompter, Align and Require. The error is that with which an attempt
// would fail; Classify and ReasonOf read it.
func CheckReply(ctx context.Context, cfg Config, task *Task, r *Reply) error {
	cfg = cfg.withDefaults()
	cfg.Scorer = nil
	c := &Collector{cfg: cfg}
	c.counters.slots = make([]slot, 1)
	t := &try{
		w:  &worker{c: c, aligner: tokenize.NewAligner(cfg.Align)},
		a:  Attempt{Task: task, GroupSize: 1, N: 1},
		cl: &claim{task: task, started: time.Now()},
	}
	_, err := t.sample(ctx, r)
	return err
}

// ReasonOf is why the tokens of a sample that failed with err cannot be trusted;
// tokenize.ReasonNone where that is not why it failed.
func ReasonOf(err error) tokenize.Reason { return reasonOf(err) }
