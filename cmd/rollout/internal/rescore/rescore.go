// Package rescore implements rollout rescore: it scores the samples of a finished run again, without
// inference.
//
//	rescore.go  opens the run and the scorer
//	write.go    opens the scores set, and writes and counts the scores
//	tasks.go    finds the task of a sample
//	decode.go   decodes a sample from the tokens of its rows
//	score.go    reads, scores and orders the samples
//	groups.go   applies reward.min_std to whole groups
//	copy.go     makes a new run with the new scores (--out)
//
// The scores go to a scores set of the run (see [sink.OpenScores]); the rows are not changed. If the process
// is killed, the same command continues after the last commit of the set.
package rescore

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/scoring"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/sink"
)

// Options are the arguments of a Rescore that are not settings.
type Options struct {
	Out    string                           // the folder of the new run; empty: add a scores set to the run
	Say    func(format string, args ...any) // prints a message
	Stderr io.Writer                        // receives the messages of a scoring program
	// Meta returns the metadata that all shards of the log have. It is only called with Out.
	Meta func(log *sink.Log) (map[string]string, error)
}

// A Result counts the samples of a finished Rescore. If an earlier process has scored some of them, they are
// included.
type Result struct {
	Set      string // name of the scores set; empty with Options.Out
	Samples  int    // samples with rows
	Earlier  int    // samples that an earlier process had scored
	Scored   int    // samples with a reward
	Failures int    // samples whose scorer failed
	Unscored int    // other samples without a reward
	Filtered int    // samples with keep=false
	sum      float64
	Took     time.Duration // of this process
}

// Mean returns the mean of the rewards. At least one sample must have a reward.
func (r *Result) Mean() float64 { return r.sum / float64(r.Scored) }

// done returns the number of samples whose score is known.
func (r *Result) done() int { return r.Scored + r.Failures + r.Unscored }

// Rate returns how many samples per second this process has scored.
func (r *Result) Rate() float64 {
	return float64(r.done()-r.Earlier) / max(r.Took.Seconds(), 1e-3)
}

// add counts the score of a sample, except its keep.
func (r *Result) add(s *sink.StoredScore) {
	switch {
	case s.Failed:
		r.Failures++
	case s.Reward == nil:
		r.Unscored++
	default:
		r.Scored++
		r.sum += *s.Reward
	}
}

// addKeep counts the column keep of a sample.
func (r *Result) addKeep(s *sink.StoredScore) {
	if s.Keep != nil && !*s.Keep {
		r.Filtered++
	}
}

// A Rescore scores the samples of a run again.
type Rescore struct {
	dir     string
	loader  *config.Loader
	options *Options
	info    *runfolder.Info
	scorer  runfolder.Scorer
	scoring *scoring.Scoring
	decoder decoder
	tasks   *taskIndex
	census  census
	workers int

	writer *sink.ScoresWriter
	groups map[string]*scoredGroup
	since  time.Time // when the first score of the open commit was added
	failed error     // the last failure of the scorer; nil if there was none
	result Result
}

// Run scores the samples of the run in dir again. The folder must be locked. The loader has the
// settings of the run, with the changes of the user.
func Run(ctx context.Context, folder *runfolder.Folder, info *runfolder.Info, l *config.Loader, o *Options) (_ *Result, err error) {
	r := &Rescore{dir: folder.Dir, loader: l, options: o, info: info, groups: map[string]*scoredGroup{}, census: census{left: map[sink.KeyID]int32{}}}
	if err := r.openScorer(); err != nil {
		return nil, err
	}
	defer r.scoring.Close()
	defer context.AfterFunc(ctx, r.scoring.Kill)()
	if r.tasks, err = openTasks(r.dir, info, r.scoring.Checker()); err != nil {
		return nil, err
	}
	defer func() { _ = r.tasks.file.Close() }() // read only
	if err := r.try(ctx); err != nil {
		return nil, err
	}
	if err := r.count(); err != nil {
		return nil, err
	}
	if o.Out != "" {
		err = r.copy(ctx)
	} else {
		err = r.inPlace(ctx, folder)
	}
	if err != nil {
		return nil, err
	}
	return &r.result, nil
}

// count counts the samples of the run. It returns an error if none of them has rows.
func (r *Rescore) count() error {
	log, err := sink.ReadLogIn(nil, r.dir, r.census.add)
	if err != nil {
		return runfolder.ReadError(r.dir, err)
	}
	r.census.last = log.Last()
	n := 0
	for _, err := range log.Waiting() {
		if err == nil { // the number is only displayed
			n++
		}
	}
	waiting := format.Plural(int64(n), "sample") + " in the write-ahead log"
	switch {
	case r.census.samples == 0 && n > 0:
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s has no committed rows yet, only %s", r.dir, waiting)),
			"resume the run, and then score it: "+runfolder.ResumeCommand(r.dir))
	case r.census.samples == 0:
		return exit.With(exit.Folder, fmt.Errorf("%s has no rows, so there is nothing to score", r.dir))
	case n > 0:
		r.options.Say("not scored: %s; %s commits them", waiting, runfolder.ResumeCommand(r.dir))
	}
	return nil
}

// openScorer builds the scorer, and loads the tokenizer that decodes the run's tokens.
func (r *Rescore) openScorer() (err error) {
	c := r.loader.Config
	if c.Reward.Kind == config.RewardNone {
		return exit.Hint(exit.Usagef("reward.kind is not set, so there is no scorer"), "pass --reward KIND")
	}
	place, err := r.info.TokenizerPlace(r.dir, nil)
	if err != nil {
		return err
	}
	if given := r.loader.ByKey["tokens.tokenizer"]; given.Given() != "" {
		place = model.Place{Key: "tokens.tokenizer", Dir: c.Tokens.Tokenizer, Tokenizer: place.Tokenizer, Template: place.Template}
	}
	if place.Dir == "" {
		return exit.Hint(exit.Usagef("%s: the run has no tokenizer, which is needed to decode its tokens", r.dir), "pass the folder of the model's tokenizer and chat template with --tokenizer")
	}
	m, err := place.Load(c.Releases())
	if err != nil {
		return err
	}
	m.Transformers = c.Release()
	if r.scoring, err = scoring.New(c, m, r.options.Stderr); err != nil {
		return err
	}
	if r.scorer, err = runfolder.ScorerOf(r.loader, r.scoring.Files, m.Tokenizer.Digest()); err != nil {
		return err
	}
	programs := c.Reward.Programs() > 0
	r.decoder, r.workers = decoder{tokens: decode.New(m.Tokenizer), conversation: programs}, runtime.GOMAXPROCS(0)
	if programs { // while a worker waits for a program, another one decodes
		r.workers = max(r.workers, c.Reward.Processes+1)
	}
	return nil
}

// try scores a trial sample of the first task.
func (r *Rescore) try(ctx context.Context) error {
	c := r.loader.Config
	if err := r.tasks.scorable(string(c.Reward.Kind), r.scoring.Checker()); err != nil {
		return err
	}
	if n := r.tasks.unscorable; n > 0 {
		r.options.Say("no usable answer for reward.kind %s in %d of %d tasks: the samples of these tasks get no reward", c.Reward.Kind, n, r.tasks.n)
	}
	task := r.tasks.first
	if task == nil {
		task = &collector.Task{ID: "trial"}
	}
	return ctxError(ctx, r.scoring.Try(ctx, task, reward.Trial{Chat: c.Recorded()}))
}
