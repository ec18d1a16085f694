package sink

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/sink/mapped"
	"github.com/rollout-rl/rollout/sink/store"
)

// Scores are the scores in a scores set. They take 40 bytes per sample, and are mapped from a file
// if there are many. The reward details are read when they are needed. Scores are safe for
// concurrent use.
type Scores struct {
	// Name is the name of the set.
	Name string

	log     *Log
	shards  []Shard
	entries *mapped.Sorted[scoreEntry]
	reasons []string // indexed by scoreEntry.reason

	mu     sync.Mutex
	loaded [2]shardDetails // the details of the shards that were used last, newest first
}

type scoreEntry struct {
	key    KeyID
	shard  uint32 // index in Scores.shards
	row    uint32 // number of the row in the shard
	reason uint16
	keep   int8 // 0: null, 1: true, -1: false
	state  scoreState
	reward float64
}

type scoreState uint8

const (
	stateNone   scoreState = iota // no reward, without a failure
	stateScored                   // has a reward
	stateFailed                   // the scorer failed
)

type shardDetails struct {
	shard   uint32
	details []*string // nil if nothing is loaded
}

// ReadScores reads a complete scores set of the run with the given id. If name is empty, it reads the
// newest complete set, and returns nil if there is none. objects and dir have the same meaning as in
// [ReadLogIn]. The error is a *CorruptError if a file is damaged or the set belongs to another run.
// It wraps ErrNoScores if name is not the name of a complete set.
func ReadScores(objects store.Store, dir, runID, name string) (*Scores, error) {
	names := []string{name}
	if name == "" {
		var err error
		if names, err = ScoreSets(objects, dir); err != nil {
			return nil, err
		}
	} else if err := checkScoresName(name); err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(names) {
		s, err := openScores(objects, dir, runID, name)
		if err != nil || s != nil {
			return s, err
		}
	}
	if name != "" {
		return nil, fmt.Errorf("%q: %w", name, ErrNoScores)
	}
	return nil, nil
}

// openScores reads a set. It returns nil if the set is not complete.
func openScores(objects store.Store, dir, runID, name string) (*Scores, error) {
	log, err := readScoresLog(setIn(objects, dir, name), runID)
	if err == nil && !log.Sealed() {
		return nil, nil
	}
	var s *Scores
	if err == nil {
		s, err = scoresOf(log, name)
	}
	return s, inScores(name, err)
}

// inScores adds the path of a set to a *CorruptError.
func inScores(name string, err error) error {
	corrupt, ok := errors.AsType[*CorruptError](err)
	if !ok {
		return err
	}
	own := *corrupt
	own.Path = ScoresPath(name) + "/" + own.Path
	return &own
}

func readScoresLog(files location, runID string) (*Log, error) {
	log := &Log{location: files, seq: sequence{runID: runID, scores: true}}
	return log, log.Follow()
}

// readScores reads the scores in the log of a set, which does not have to be complete.
func readScores(files location, name, runID string) (*Scores, error) {
	log, err := readScoresLog(files, runID)
	if err != nil {
		return nil, err
	}
	return scoresOf(log, name)
}

// scoreFacts are the columns of a score except its details, and scoreDetails are its details.
var (
	scoreFacts = sync.OnceValue(func() part[StoredScore] { return newPart[StoredScore](isFact) })
	detailsOf  = sync.OnceValue(func() part[StoredScore] {
		return newPart[StoredScore](func(f reflect.StructField) bool { return f.Name == "RewardDetails" })
	})
)

func scoresOf(log *Log, name string) (*Scores, error) {
	s := &Scores{Name: name, log: log, reasons: []string{""}}
	known := map[string]uint16{"": 0}
	n := 0
	for shard := range log.Shards(KindScores) {
		n += int(shard.Rows)
	}
	entries := make([]scoreEntry, 0, n)
	for shard := range log.Shards(KindScores) {
		s.shards = append(s.shards, shard)
		row := uint32(0)
		for r, err := range shardRows(log, shard, KindScores, 0, nil, scoreFacts().read) {
			if err != nil {
				return nil, err
			}
			if err := checkScore(r); err != nil {
				return nil, &CorruptError{Path: shard.Path, Row: int64(row), Err: err}
			}
			e := scoreEntry{key: IDOf(r.SampleKey), shard: uint32(len(s.shards) - 1), row: row}
			switch {
			case r.Reward != nil:
				e.state, e.reward = stateScored, *r.Reward
			case r.Failed:
				e.state = stateFailed
			}
			if r.Keep != nil {
				e.keep = -1
				if *r.Keep {
					e.keep = 1
				}
			}
			if r.KeepReason != nil {
				at, ok := known[*r.KeepReason]
				if !ok {
					if len(s.reasons) == math.MaxUint16 {
						return nil, &CorruptError{Path: shard.Path, Row: int64(row), Err: errors.New("too many different values of keep_reason")}
					}
					at = uint16(len(s.reasons))
					known[*r.KeepReason], s.reasons = at, append(s.reasons, *r.KeepReason)
				}
				e.reason = at
			}
			entries = append(entries, e)
			row++
		}
	}
	slices.SortFunc(entries, func(a, b scoreEntry) int { return a.key.Compare(b.key) })
	for i := range entries {
		if i > 0 && entries[i].key == entries[i-1].key {
			e := max(entries[i].shard, entries[i-1].shard)
			return nil, &CorruptError{Path: s.shards[e].Path, Row: int64(entries[i].row), Err: errors.New("the sample of this row has two scores")}
		}
	}
	s.entries = mapped.New(cmp.Or(log.dir, os.TempDir()), entries)
	return s, nil
}

func (s *Scores) find(key string) (scoreEntry, bool) {
	id := IDOf(key)
	return s.entries.Search(func(e *scoreEntry) int { return e.key.Compare(id) })
}

// Len returns the number of samples in the set, including those that could not be scored.
func (s *Scores) Len() int { return s.entries.Len() }

// Has reports whether the set has a score of the sample. Samples that were collected later have none.
func (s *Scores) Has(key string) bool {
	_, ok := s.find(key)
	return ok
}

// Filtered returns the keep_reason of a sample if its column keep is false. ok is false if the set does
// not have the sample.
func (s *Scores) Filtered(key string) (reason string, ok bool) {
	e, ok := s.find(key)
	if !ok || e.keep >= 0 {
		return "", ok
	}
	return cmp.Or(s.reasons[e.reason], defaultReason), true
}

// Check reads the details of all scores. It returns the first damage.
func (s *Scores) Check() error {
	for i := range s.shards {
		details, err := s.read(uint32(i))
		if err != nil {
			return err
		}
		for row, d := range details {
			if err := checkJSON(d, nil, nil); err != nil {
				return inScores(s.Name, &CorruptError{Path: s.shards[i].Path, Row: int64(row), Err: err})
			}
		}
	}
	return nil
}

// UseScores makes the methods that yield rows replace the reward, the details, keep and keep_reason by
// the values of a scores set. A sample that the set does not have was collected later: its reward is
// nil, so that the rewards of two scorers never mix. Nil restores the values in the rows.
func (l *Log) UseScores(s *Scores) { l.scores = s }

// apply replaces the score in a row. The details are replaced only if details is true. If s is nil,
// apply does nothing.
func (s *Scores) apply(r *StoredRow, details bool) error {
	if s == nil {
		return nil
	}
	r.Reward, r.RewardDetails = nil, nil
	e, ok := s.find(r.SampleKey)
	if !ok {
		return nil
	}
	r.Reward, r.Keep, r.KeepReason = s.values(e)
	if !details {
		return nil
	}
	text, err := s.details(e)
	if text != nil {
		r.RewardDetails = new(*text)
	}
	return err
}

// values returns the values of an entry, except the details.
func (s *Scores) values(e scoreEntry) (reward *float64, keep *bool, reason *string) {
	if e.state == stateScored {
		reward = new(e.reward)
	}
	if e.keep != 0 {
		keep = new(e.keep > 0)
	}
	if e.reason != 0 {
		reason = new(s.reasons[e.reason])
	}
	return reward, keep, reason
}

func (s *Scores) details(e scoreEntry) (*string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded[0].details == nil || s.loaded[0].shard != e.shard {
		s.loaded[0], s.loaded[1] = s.loaded[1], s.loaded[0]
	}
	if d := &s.loaded[0]; d.details == nil || d.shard != e.shard {
		list, err := s.read(e.shard)
		if err != nil {
			return nil, err
		}
		*d = shardDetails{e.shard, list}
	}
	return s.loaded[0].details[e.row], nil
}

// read returns the details of the scores in a shard.
func (s *Scores) read(shard uint32) ([]*string, error) {
	of := s.shards[shard]
	list := make([]*string, 0, of.Rows)
	for r, err := range shardRows(s.log, of, KindScores, 0, nil, func(f io.ReaderAt, in rowRange, yield func(*StoredScore) bool) error {
		return detailsOf().read(f, in, yield)
	}) {
		if err != nil {
			return nil, inScores(s.Name, err)
		}
		list = append(list, r.RewardDetails)
	}
	return list, nil
}
