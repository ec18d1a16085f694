package sink

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A StoredSample contains all or some of the rows and failures of one sample in a commit.
type StoredSample struct {
	Key      string
	Attempt  int32
	Group    CommittedGroup
	Index    int32
	Rows     []StoredRow
	Failures []StoredFailure
}

// Stored yields the whole dataset, commit by commit and sample by sample. [Store] accepts this
// order. For each sample, Stored yields the rows and then the failures, each in a separate
// StoredSample. If a sample has neither rows nor failures, Stored yields one empty StoredSample.
// The caller owns the yielded values. Stored checks each shard's digest before it reads the
// shard. If kinds are given, Stored reads and yields only rows of these kinds.
func (l *Log) Stored(kinds ...Kind) iter.Seq2[*StoredSample, error] {
	return func(yield func(*StoredSample, error) bool) {
		for i := range l.Commits {
			c, more, err := &l.Commits[i], false, error(nil)
			if l.each != nil { // its samples were dropped
				var read Commit
				read, _, err = l.readCommit(c.Seq)
				c = &read
			}
			if err == nil {
				more, err = l.storedCommit(c, kinds, func(s *StoredSample) bool { return yield(s, nil) })
			}
			if err != nil {
				yield(nil, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// wholeRows and wholeFailures return the parts with all columns.
var (
	wholeRows = sync.OnceValue(func() part[StoredRow] {
		p := newPart[StoredRow](func(f reflect.StructField) bool {
			return !slices.Contains([]string{"InputIDs", "LossMask", "Logprobs", "Versions"}, f.Name)
		})
		p.lists = readTokenLists
		return p
	})
	wholeFailures = sync.OnceValue(func() part[StoredFailure] {
		return newPart[StoredFailure](func(reflect.StructField) bool { return true })
	})
)

// storedCommit yields the samples in one commit. The numbers of rows in the entry and in its
// shards are equal, because both were checked.
func (l *Log) storedCommit(c *Commit, kinds []Kind, yield func(*StoredSample) bool) (more bool, err error) {
	var rows func() (*StoredRow, error, bool) // nil if the kind is excluded or has no shard
	var failures func() (*StoredFailure, error, bool)
	for _, s := range c.Shards {
		if len(kinds) > 0 && !slices.Contains(kinds, s.Kind) {
			continue
		}
		var stop func()
		if s.Kind == KindFailures {
			failures, stop = iter.Pull2(l.Failures(s))
		} else {
			rows, stop = iter.Pull2(l.Rows(s))
		}
		defer stop()
	}
	for _, s := range c.Samples {
		more := true
		if s.Rows+s.Failures == 0 && len(kinds) == 0 {
			more = yield(&StoredSample{Key: s.Key, Attempt: s.Attempt, Group: c.Groups[s.Group], Index: s.Index})
		}
		for i := int32(0); i < s.Rows && rows != nil && more; i++ {
			row, err, _ := rows()
			if err != nil {
				return false, err
			}
			more = yield(row.AsSample())
		}
		for i := int32(0); i < s.Failures && failures != nil && more; i++ {
			failure, err, _ := failures()
			if err != nil {
				return false, err
			}
			more = yield(failure.AsSample())
		}
		if !more {
			return false, nil
		}
	}
	return true, nil
}

// AsSample returns a StoredSample that contains only this row of the sample.
func (r *StoredRow) AsSample() *StoredSample {
	group := CommittedGroup{r.GroupID, r.GroupSize}
	return &StoredSample{Key: r.SampleKey, Attempt: r.Attempt, Group: group, Index: r.SampleIndex, Rows: []StoredRow{*r}}
}

// AsSample returns a StoredSample that contains only this failure of the sample.
func (f *StoredFailure) AsSample() *StoredSample {
	group := CommittedGroup{f.GroupID, f.GroupSize}
	return &StoredSample{Key: f.SampleKey, Attempt: f.Attempt, Group: group, Index: f.SampleIndex, Failures: []StoredFailure{*f}}
}

// Store creates a dataset in the run's folder dir from stored samples. The folder must exist and
// must not contain a dataset. The new dataset contains exactly the values in parts, bit for bit.
// Consecutive parts with the same key and attempt form one sample. Store keeps one sample in
// memory until the next sample starts. It takes ownership of the parts.
//
// Store checks each sample against every rule of [Verify]. At the first broken rule, Store stops
// with a *SampleError. Its Row is an index into the sample's rows, followed by the failures.
// Store also stops if parts yields an error. If a sample is already done, or has a second failure
// with the same attempt number, Store stops with ErrCommitted.
//
// Store does not use a write-ahead log, because the source still exists. After an error, the folder
// must not be used.
func Store(dir string, cfg Config, parts iter.Seq2[*StoredSample, error]) (Stats, error) {
	if cfg.Store != nil {
		return Stats{}, errors.New("sink: Store writes to a folder, and not to Config.Store")
	}
	d, err := Create(dir, cfg)
	if err != nil {
		return Stats{}, err
	}
	if d.nextSeq > 1 {
		return Stats{}, &ShardError{Path: dir, Op: "create", Err: errors.New("the folder already contains a dataset")}
	}
	w := newWriter(d)
	defer w.age.Stop()
	failures := map[attemptID]struct{}{} // d.keys contains the keys that are done
	err = joined(parts, func(s *StoredSample) error {
		if err := d.checkStored(s); err != nil {
			return err
		}
		if len(s.Rows) == 0 && len(s.Failures) > 0 {
			id := attemptID{IDOf(s.Key), s.Attempt}
			if _, twice := failures[id]; twice {
				return &SampleError{Key: s.Key, Row: -1, Err: ErrCommitted}
			}
			failures[id] = struct{}{}
		}
		return w.takeStored(s)
	})
	if err == nil {
		err = w.commit()
	}
	if err != nil {
		w.giveUp(err)
		return d.Stats(), err
	}
	d.card.end()
	return d.Stats(), nil
}

// maxStoredBytes limits the size of one sample in Store.
const maxStoredBytes = 1 << 30

// joined combines consecutive parts of the same sample, and passes each complete sample to take.
func joined(parts iter.Seq2[*StoredSample, error], take func(*StoredSample) error) error {
	var s *StoredSample
	bytes := 0
	for part, err := range parts {
		if err != nil {
			return err
		}
		same := s != nil && part.Key == s.Key && part.Attempt == s.Attempt && len(part.Rows)+len(part.Failures) > 0
		if s != nil && !same {
			if err := take(s); err != nil {
				return err
			}
			bytes = 0
		}
		if same {
			s.Rows, s.Failures = append(s.Rows, part.Rows...), append(s.Failures, part.Failures...)
		} else {
			s = part
			// Clone these strings, because the next commit keeps them. They must not keep a
			// larger string of the caller alive.
			s.Key, s.Group.ID = strings.Clone(s.Key), strings.Clone(s.Group.ID)
		}
		for i := range part.Rows {
			bytes += 13*len(part.Rows[i].InputIDs) + textBytes(&part.Rows[i]) + 1024
		}
		for i := range part.Failures {
			bytes += 8*len(part.Failures[i].OutputIDs) + len(part.Failures[i].Text) + len(part.Failures[i].Error) + 1024
		}
		if bytes > maxStoredBytes {
			return &SampleError{Key: s.Key, Row: len(s.Rows) + len(s.Failures) - 1, Err: fmt.Errorf("the sample has more than %d bytes", maxStoredBytes)}
		}
	}
	if s == nil {
		return nil
	}
	return take(s)
}

func (w *writer) takeStored(s *StoredSample) error {
	committed := CommittedSample{
		Key: s.Key, Attempt: s.Attempt, Rows: int32(len(s.Rows)), Failures: int32(len(s.Failures)), Group: w.place(s.Group), Index: s.Index,
	}
	if committed.Failed() {
		committed.Class = strings.Clone(s.Failures[0].Class)
	}
	committed.Filtered = leftOutOf(s.Rows)
	w.samples = append(w.samples, committed)
	w.done = append(w.done, func(error) {})
	w.d.pending(1)
	for i := range s.Rows {
		if err := w.putRow(&s.Rows[i]); err != nil {
			return err
		}
	}
	for i := range s.Failures {
		if err := w.putFailure(&s.Failures[i]); err != nil {
			return err
		}
	}
	if w.full() {
		return w.commit()
	}
	return nil
}

// leftOutOf returns the value of CommittedSample.Filtered for a sample with these rows. If all
// rows are filtered out for the same reason, this is the reason. Otherwise it is empty.
func leftOutOf(rows []StoredRow) (reason string) {
	for i := range rows {
		r := &rows[i]
		if r.Keep == nil || *r.Keep || r.KeepReason == nil || i > 0 && *r.KeepReason != reason {
			return ""
		}
		reason = *r.KeepReason
	}
	return strings.Clone(reason)
}

// checkStored returns a *SampleError that describes the first rule that s breaks.
func (d *Dataset) checkStored(s *StoredSample) error {
	refuse := func(row int, err error) error { return &SampleError{Key: s.Key, Row: row, Err: err} }
	if err := errors.Join(checkIdentity(s.Key, s.Index, s.Group.Size, s.Attempt), checkTexts([]string{s.Key, s.Group.ID})); err != nil {
		return refuse(-1, err)
	}
	of := CommittedSample{Key: s.Key, Attempt: s.Attempt, Index: s.Index}
	check := shardCheck{v: &verifier{opts: VerifyOptions{VocabSize: d.cfg.VocabSize}}, groups: []CommittedGroup{s.Group}}
	for i := range s.Rows {
		r := &s.Rows[i]
		if i == 0 {
			check.rollout = r.RolloutID
		}
		err := check.checkRow(r, of, i, len(s.Rows))
		if err == nil {
			err = checkStrings(r)
		}
		if err != nil {
			return refuse(i, err)
		}
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		err := errors.Join(of.owns(f.SampleKey, f.Attempt), check.checkGroup(of, CommittedGroup{f.GroupID, f.GroupSize}, f.SampleIndex),
			checkStrings(f), checkJSON(nil, f.Messages, f.Metadata))
		if err == nil && f.Call < -1 {
			err = fmt.Errorf("call is %d, but must be ≥ -1", f.Call)
		}
		if err != nil {
			return refuse(len(s.Rows)+i, fmt.Errorf("failure: %w", err))
		}
	}
	return d.claim(&tokenize.Sample{Key: s.Key, Rows: make([]tokenize.Row, len(s.Rows)), Failures: make([]tokenize.Failure, len(s.Failures))})
}

// checkStrings checks that all strings in a row are valid UTF-8.
func checkStrings(row any) error {
	v := reflect.ValueOf(row).Elem()
	for i := range v.NumField() {
		var err error
		switch text := v.Field(i).Interface().(type) {
		case string:
			err = checkTexts([]string{text})
		case []string:
			err = checkTexts(text)
		case *string:
			if text != nil {
				err = checkTexts([]string{*text})
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
		}
	}
	return nil
}
