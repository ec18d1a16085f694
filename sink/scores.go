package sink

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/store"
)

// scoresDir is the folder of a run's scores sets, and the folder of the shards in a set.
const scoresDir = "scores"

// ScoresPath returns the path of a scores set, relative to the folder of its run.
func ScoresPath(name string) string { return scoresDir + "/" + name }

// setIn returns the location of a set for readers.
func setIn(objects store.Store, dir, name string) location {
	if objects != nil {
		return locate(objects.Sub(ScoresPath(name)), nil, "")
	}
	return locate(nil, nil, filepath.Join(dir, scoresDir, name))
}

// A ScoresWriter adds scores to a scores set that is not complete. It is not safe for concurrent
// use. The caller must ensure that no other process writes to the set.
type ScoresWriter struct {
	d      *Dataset // has the location and the end of the log; it has no write-ahead log and never runs
	meta   *shardMeta
	shard  *openShard[StoredScore] // nil before the first score of a commit
	sealed int64                   // number in the name of the next shard
	held   *Scores                 // the scores that the log had at OpenScores
}

// OpenScores opens the scores set in the folder dir, which must exist, to add scores. It creates the
// set's folders. It removes the shards that no entry names, because their scores can be computed
// again. cfg.RunID must be the id of the run. OpenScores uses no other fields except Meta, FS, Now
// and Logger. If the set is complete, the error is ErrSealed. Otherwise the errors are the same as in [Create].
func OpenScores(dir string, cfg Config) (*ScoresWriter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	files := locate(nil, cfg.FS, dir)
	for _, sub := range []string{scoresDir, commitsDir} {
		if err := files.fs.MkdirAll(filepath.Join(dir, sub)); err != nil {
			return nil, &ShardError{Path: dir, Op: "create", Err: err}
		}
	}
	if err := files.fs.SyncDir(dir); err != nil {
		return nil, &ShardError{Path: dir, Op: "sync", Err: err}
	}
	if err := store.Probe(store.Folder(files.fs, filepath.Join(dir, commitsDir))); err != nil {
		return nil, shardError("link", err)
	}
	if err := files.fs.SyncDir(filepath.Join(dir, commitsDir)); err != nil { // the last entry, before anything relies on it
		return nil, &ShardError{Path: dir, Op: "sync", Err: err}
	}
	held, err := readScores(files, filepath.Base(dir), cfg.RunID)
	switch {
	case err != nil:
		return nil, err
	case held.log.Sealed():
		return nil, ErrSealed
	}
	w := &ScoresWriter{d: &Dataset{location: files, cfg: cfg, nextSeq: held.log.Last() + 1, nonce: rand.Text()}, held: held}
	w.meta, w.sealed = w.d.metaOf(cfg.Meta), held.log.Last()
	return w, w.clear()
}

// clear removes temporary files and the shards that no entry names.
func (w *ScoresWriter) clear() error {
	named := map[string]bool{}
	for s := range w.held.log.Shards(KindScores) {
		named[s.Path] = true
	}
	for _, sub := range []string{scoresDir, commitsDir} {
		dir := filepath.Join(w.d.dir, sub)
		names, err := w.d.fs.ReadDir(dir)
		if err != nil {
			return &ShardError{Path: dir, Op: "open", Err: err}
		}
		for _, name := range names {
			if strings.HasPrefix(name, tempPrefix) || strings.HasPrefix(name, shardPrefix) && !named[sub+"/"+name] {
				if err := w.d.fs.Remove(filepath.Join(dir, name)); err != nil {
					return &ShardError{Path: filepath.Join(dir, name), Op: "remove", Err: err}
				}
			}
		}
	}
	failpoint.Hit(failpoint.ScoresCleared)
	return nil
}

// Has reports whether the set had a score of the sample when it was opened.
func (w *ScoresWriter) Has(key string) bool { return w.held.Has(key) }

// Held calls f with each score that the set had when it was opened, without its key and its details.
func (w *ScoresWriter) Held(f func(*StoredScore)) {
	w.held.entries.Each(func(e *scoreEntry) {
		s := StoredScore{Failed: e.state == stateFailed}
		s.Reward, s.Keep, s.KeepReason = w.held.values(*e)
		f(&s)
	})
}

// Len returns the number of scores in the open commit.
func (w *ScoresWriter) Len() int {
	if w.shard == nil {
		return 0
	}
	return int(w.shard.rows)
}

// Bytes returns the approximate size of the open commit.
func (w *ScoresWriter) Bytes() int64 {
	if w.shard == nil {
		return 0
	}
	return w.shard.enc.size()
}

// Add adds a score to the open commit. A sample must have only one score in a set. After an error,
// the writer must not be used, and the set can be opened again.
func (w *ScoresWriter) Add(score *StoredScore) error {
	err := errors.Join(checkTexts([]string{score.SampleKey}), checkScore(score), checkJSON(score.RewardDetails, nil, nil))
	if err != nil {
		return &SampleError{Key: score.SampleKey, Row: -1, Err: err}
	}
	if w.shard == nil {
		s, err := newOpenShard[StoredScore](w.d, KindScores, Parquet)
		if err != nil {
			return err
		}
		s.enc = newParquetEncoder[StoredScore](s, w.d.cfg.RowGroupTokens, w.meta[KindScores])
		s.check = checkParquet[StoredScore]
		w.shard = s
	}
	if err := w.shard.append(score, 0, true); err != nil {
		return err
	}
	failpoint.Hit(failpoint.ScoresAdded)
	w.shard.sums.rewards.add(score.Reward)
	return nil
}

// Commit durably adds the open commit to the log, in the steps of a commit of rows. It does nothing
// if there are no new scores.
func (w *ScoresWriter) Commit() error {
	if w.shard == nil {
		return nil
	}
	s := w.shard
	w.shard = nil
	shard, err := s.seal(w.d.base("", w.sealed), new(SealTimes))
	w.sealed++
	if err != nil {
		return err
	}
	return w.put(&Commit{Shards: []Shard{shard}})
}

// Seal commits the open commit and ends the log. The set is then complete.
func (w *ScoresWriter) Seal() error {
	if err := w.Commit(); err != nil {
		return err
	}
	return w.put(&Commit{Kind: kindSealed})
}

func (w *ScoresWriter) put(c *Commit) error {
	c.Groups, c.Samples = []CommittedGroup{}, []CommittedSample{}
	if c.Shards == nil {
		c.Shards = []Shard{}
	}
	w.d.logMu.Lock()
	defer w.d.logMu.Unlock()
	return w.d.put(c)
}

// Abandon drops the open commit. The caller must call it if it does not call Seal.
func (w *ScoresWriter) Abandon() {
	w.shard.abandon()
	w.shard = nil
}

// ScoreSets returns the names of the scores sets of a run, oldest first, including those that are
// not complete. objects and dir have the same meaning as in [ReadLogIn].
func ScoreSets(objects store.Store, dir string) (names []string, err error) {
	p := locate(objects, nil, dir)
	if p.folder {
		all, err := p.filesIn(scoresDir, "")
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			names = append(names, strings.TrimPrefix(i.Name, scoresDir+"/"))
		}
	} else {
		for i, err := range objects.List(scoresDir+"/", "") {
			if err != nil {
				return nil, asPath(err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(i.Name, scoresDir+"/"), "/")
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return checkScoresName(name) != nil })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names, nil
}

// ErrNoScores means that a run has no complete scores set with the requested name.
var ErrNoScores = errors.New("sink: no such scores set")

// checkScoresName returns an error if a scores set cannot have the name.
func checkScoresName(name string) error {
	for _, r := range name {
		if r < '0' || r > '9' {
			return fmt.Errorf("%.40q: %w", name, ErrNoScores)
		}
	}
	if len(name) < 4 || len(name) > maxScoresName || len(name) > 4 && name[0] == '0' {
		return fmt.Errorf("%.40q: %w", name, ErrNoScores)
	}
	return nil
}

const maxScoresName = 9
