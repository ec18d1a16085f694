package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// Verify verifies all datasets, the scores sets and the copy of the tokenizer. In a fleet, it also compares the
// samples of each partition with its tasks. The error has an exit code.
func (r *Run) Verify(ctx context.Context, o sink.VerifyOptions) (sum sink.VerifyReport, err error) {
	reports := make([]sink.VerifyReport, len(r.Datasets))
	var mu sync.Mutex
	damage, err := r.Each(ctx, func(ctx context.Context, i int, d *Dataset) (err error) {
		own := o
		own.Store = d.Store
		if reports[i], err = sink.Verify(ctx, d.dir, own); err != nil {
			return err
		}
		if r.Fleet == nil {
			return nil
		}
		found, err := r.compare(d)
		mu.Lock()
		defer mu.Unlock()
		reports[i].Problems, reports[i].ProblemCount = append(reports[i].Problems, found...), reports[i].ProblemCount+int64(len(found))
		return err
	})
	if err != nil {
		return sum, r.Error(err)
	}
	sum.Problems, sum.ProblemCount = damage, int64(len(damage))
	if len(reports) == 1 && r.Fleet == nil {
		err := r.verifyScores(&reports[0])
		if err == nil {
			err = r.verifyTokenizer(&reports[0])
		}
		return reports[0], err
	}
	for i := range reports {
		add(&sum, &reports[i], &r.Datasets[i], o.MaxProblems)
	}
	return sum, nil
}

// verifyScores verifies the scores sets of the run, and adds the damage to the report. A set that is not complete
// only needs a readable log.
func (r *Run) verifyScores(report *sink.VerifyReport) error {
	names, err := sink.ScoreSets(r.Store, r.Dir)
	if err != nil {
		return r.Error(err)
	}
	for _, name := range names {
		s, err := sink.ReadScores(r.Store, r.Dir, r.Info.ID, name)
		if err == nil {
			err = s.Check()
		}
		if err == nil {
			_, err = runfolder.ReadScoresInfo(r.Store, r.Dir, name)
		}
		switch {
		case err == nil, errors.Is(err, sink.ErrNoScores):
		case errors.Is(err, sink.ErrCorrupt):
			report.Problems, report.ProblemCount = append(report.Problems, err), report.ProblemCount+1
		default:
			return r.Error(err)
		}
	}
	return nil
}

// verifyTokenizer verifies the run's copies of its tokenizer, and adds the damage to the report.
func (r *Run) verifyTokenizer(report *sink.VerifyReport) error {
	copies, err := r.copies()
	if err != nil {
		return r.Error(err)
	}
	for i := range copies {
		changed, err := copies[i].Check()
		if changed == nil && r.Dir != "" {
			changed, err = err, nil // a file that cannot be read is damaged, but a bucket can be away
		}
		if err != nil {
			return r.Error(err)
		}
		if changed != nil {
			damage := &sink.CorruptError{Path: runfolder.TokenizerDir + "/" + copies[i].Copy, Row: -1, Err: changed}
			report.Problems, report.ProblemCount = append(report.Problems, damage), report.ProblemCount+1
		}
	}
	return nil
}

// copies returns the run's copies of its tokenizer. An import, and a run without a tokenizer, have none.
func (r *Run) copies() (all []model.Place, err error) {
	if r.Dir == "" {
		in := r.Store.Sub(runfolder.TokenizerDir)
		for info, err := range in.List("", "") {
			if err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(info.Name, "/")
			if n := len(all); n == 0 || all[n-1].Copy != name {
				all = append(all, model.Place{Copy: name, Store: in})
			}
		}
		return all, nil
	}
	found, err := os.ReadDir(filepath.Join(r.Dir, runfolder.TokenizerDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range found {
		if !strings.HasPrefix(e.Name(), ".") { // a copy that a killed process left
			all = append(all, model.Place{Copy: e.Name(), Dir: filepath.Join(r.Dir, runfolder.TokenizerDir, e.Name())})
		}
	}
	return all, err
}

func add(sum, of *sink.VerifyReport, d *Dataset, most int) {
	sum.Commits += of.Commits
	sum.Shards += of.Shards
	sum.Bytes += of.Bytes
	sum.Samples += of.Samples
	sum.Failed += of.Failed
	sum.Rows += of.Rows
	sum.Failures += of.Failures
	sum.Tokens.Add(of.Tokens)
	sum.ProblemCount += of.ProblemCount
	for _, err := range of.Problems {
		if len(sum.Problems) < most {
			sum.Problems = append(sum.Problems, d.Wrap(err))
		}
	}
	for _, name := range of.Orphans {
		sum.Orphans = append(sum.Orphans, d.Name+"/"+name)
	}
}

// compare compares the log of a partition with the tasks of the plan. It returns the problems.
func (r *Run) compare(d *Dataset) (found []error, err error) {
	problem := func(format string, args ...any) {
		found = append(found, &sink.CorruptError{Path: "_commits", Row: -1, Err: fmt.Errorf(format, args...)})
	}
	list, err := r.Fleet.Tasks(r.Store, d.Partition)
	if exit.Code(err) == exit.Verify {
		return []error{err}, nil
	}
	var log *Log
	if err == nil {
		log, err = d.Log()
	}
	if errors.Is(err, sink.ErrCorrupt) {
		return nil, nil // Verify reports it
	}
	if err != nil {
		return nil, err
	}
	planned, has := map[string]bool{}, map[string]bool{}
	for _, t := range list {
		for i := range t.Samples {
			planned[collector.SampleKey(t, i)] = true
		}
	}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			if !planned[s.Key] && !has[s.Key] {
				problem("sample %s is in no task of the partition", s.Key)
			}
			has[s.Key] = true
		}
	}
	for _, t := range list {
		for i := range t.Samples {
			if key := collector.SampleKey(t, i); log.Sealed() && !has[key] {
				problem("sample %s is missing, although the log is sealed", key)
			}
		}
	}
	return found, nil
}
