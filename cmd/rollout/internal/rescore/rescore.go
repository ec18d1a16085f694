// Package rescore implements rollout rescore: it scores the samples of a finished run again, without
// inference.
//
//	rescore.go  opens the run, the scorer and the scores set; writes the scores
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
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/scoring"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
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

// A Result counts the samples of a finished Rescore.
type Result struct {
	Set      string // name of the scores set; empty with Options.Out
	Samples  int    // samples with rows
	Earlier  int    // samples that an earlier process had scored
	Scored   int    // samples of this process with a reward
	Failures int    // samples of this process whose scorer failed
	Unscored int    // other samples of this process without a reward
	Filtered int    // samples of this process with keep=false
	sum      float64
	Took     time.Duration
}

// Mean returns the mean of the rewards that this process gave.
func (r *Result) Mean() float64 { return r.sum / float64(max(r.Scored, 1)) }

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
	log, err := sink.ReadLogIn(nil, r.dir, r.census.add)
	if err != nil {
		return nil, runfolder.ReadError(r.dir, err)
	}
	r.census.last = log.Last()
	if r.census.samples == 0 {
		return nil, exit.With(exit.Folder, fmt.Errorf("%s has no rows, so there is nothing to score", r.dir))
	}
	n := 0
	for _, err := range log.Waiting() {
		if err == nil { // the number is only displayed
			n++
		}
	}
	if n > 0 {
		o.Say("not scored: %s in the write-ahead log; %s commits them", format.Plural(int64(n), "sample"), runfolder.ResumeCommand(r.dir))
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

// inPlace adds a scores set to the run.
func (r *Rescore) inPlace(ctx context.Context, folder *runfolder.Folder) error {
	info := runfolder.ScoresInfo{RunID: r.info.ID, Scorer: r.scorer, Last: r.census.last, Samples: r.census.samples}
	dir, resumed, err := folder.OpenScores(&info)
	if err != nil {
		return err
	}
	r.result.Set = info.Name
	if resumed {
		r.options.Say("continuing scores set %s of %s", info.Name, info.CreatedAt.Local().Format(time.DateTime))
	}
	err = r.fill(ctx, dir, sink.OSMode(folder.Mode))
	if _, ok := errors.AsType[*collector.ScorerError](err); ok {
		err = errors.Join(err, storage(os.RemoveAll(dir))) // it has no reward
	}
	return err
}

// fill scores all samples that the scores set in dir lacks, and completes the set.
func (r *Rescore) fill(ctx context.Context, dir string, fs sink.FS) (err error) {
	began := time.Now()
	if r.writer, err = sink.OpenScores(dir, sink.Config{RunID: r.info.ID, FS: fs}); err != nil {
		return runfolder.ReadError(dir, err)
	}
	log, err := sink.ReadLogIn(nil, r.dir, func(*sink.Commit) {}) // drops the lists of samples
	if err != nil {
		return runfolder.ReadError(r.dir, err)
	}
	r.result.Samples = r.census.samples
	told := time.Now()
	err = r.scoreAll(ctx, log, func(j *job) error {
		if time.Since(told) > progressEvery {
			told = time.Now()
			n := r.result.Scored + r.result.Failures + r.result.Unscored
			r.options.Say("scored %s of %s samples (%s/s)", format.Count(int64(n+r.result.Earlier)), format.Count(int64(r.result.Samples)), format.Rate(float64(n)/time.Since(began).Seconds()))
		}
		return r.write(j)
	})
	r.result.Took = time.Since(began)
	interrupted := ctx.Err() != nil
	switch {
	case err == nil:
		err = storage(r.writer.Seal())
	case interrupted:
		err = errors.Join(ctxError(ctx, err), storage(r.writer.Commit()))
	}
	r.writer.Abandon()
	if interrupted && err != nil && exit.Code(err) == exit.Interrupted && r.result.Set != "" {
		err = exit.Hint(err, "the same command continues")
	}
	if errors.Is(err, sink.ErrCorrupt) {
		err = runfolder.ReadError(r.dir, err)
	}
	return err
}

const progressEvery = 10 * time.Second

func storage(err error) error { return exit.With(exit.Storage, err) }

// ctxError returns the error for an interrupt, if ctx has ended.
func ctxError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return exit.With(exit.Interrupted, errors.New("interrupted"))
}

// has reports whether an earlier process has scored the sample.
func (r *Rescore) has(key string) bool {
	had := r.writer.Has(key)
	if had {
		r.result.Earlier++
	}
	return had
}

// write adds a score to its group. When all samples of the group are scored, it writes the group.
func (r *Rescore) write(j *job) error {
	if err := r.count(j); err != nil {
		return err
	}
	g := r.groups[j.group]
	if g == nil {
		g = &scoredGroup{}
		r.groups[j.group] = g
	}
	g.add(j)
	if !r.lastOf(j) {
		return nil
	}
	delete(r.groups, j.group)
	g.filter(r.loader.Config.Reward.MinStd, j.group != "" && r.census.whole.Whole(j.group))
	for _, s := range g.scores {
		if s.Keep != nil && !*s.Keep {
			r.result.Filtered++
		}
		if r.writer.Len() == 0 {
			r.since = time.Now()
		}
		if err := r.writer.Add(s); err != nil {
			return storage(err)
		}
	}
	if r.writer.Len() >= commitScores || r.writer.Bytes() >= commitBytes || time.Since(r.since) >= commitAge {
		return storage(r.writer.Commit())
	}
	return nil
}

// lastOf reports whether j is the last sample of its group, or has no group.
func (r *Rescore) lastOf(j *job) bool {
	if r.scoring.Group != nil {
		return j.last // the reader counts
	}
	return j.group == "" || r.census.done(j.group)
}

// count counts the result of a sample. It returns an error if the scorer has failed on every sample so far.
func (r *Rescore) count(j *job) error {
	n := &r.result
	switch {
	case j.failed != nil:
		n.Failures++
	case j.score.Reward == nil:
		n.Unscored++
	default:
		n.Scored++
		n.sum += *j.score.Reward
	}
	if j.failed != nil && n.Failures == 1 {
		r.options.Say("sample %s cannot be scored: %s (only the first such sample is reported)", j.score.SampleKey, termsafe.Text(j.failed.Error(), 200))
	}
	if j.failed != nil && n.Scored+n.Earlier == 0 && n.Failures > scoring.MaxUnscored(r.loader.Config, n.Samples) {
		return &collector.ScorerError{Samples: n.Failures, Err: j.failed}
	}
	return nil
}
