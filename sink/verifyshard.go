package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// A shardCheck compares the rows of one shard with the samples of its commit.
type shardCheck struct {
	v       *verifier
	shard   Shard
	kind    Kind
	groups  []CommittedGroup     // groups of the commit
	samples []CommittedSample    // the current sample and the samples after it
	seen    int32                // number of rows read so far from the current sample
	experts tokenize.ExpertShape // of the shard
	rollout string               // rollout_id of the current sample
	sampled int64                // number of tokens sampled in the current sample so far
	chain   chainCheck           // the chain of the current sample's last row
	n       int64
	sums    shardSums
	left    int     // number of samples to count: the last samples in the shard. The other samples were counted in other shards.
	before  Tokens  // tokens in the samples that are not counted
	origins []int64 // only for a merge: tokens per source commit
	origin  []int32 // only for a merge: index in origins of each sample's commit
}

// counted reports whether the current sample is one of the samples to count.
func (s *shardCheck) counted() bool { return len(s.samples) <= s.left }

// next returns the sample to which the next row belongs, the row's number in this sample, and the
// number of rows in the sample.
func (s *shardCheck) next() (of CommittedSample, i, n int32) {
	for len(s.samples) > 0 {
		n = s.samples[0].Rows
		if s.kind == KindFailures {
			n = s.samples[0].Failures
		}
		if s.seen < n {
			s.seen++
			return s.samples[0], s.seen - 1, n
		}
		s.samples = s.samples[1:]
		s.seen = 0
	}
	return CommittedSample{}, 0, 0
}

func (s *shardCheck) row(r *StoredRow) {
	of, i, n := s.next()
	if i == 0 {
		s.rollout, s.sampled, s.chain = r.RolloutID, 0, chainCheck{}
	}
	if err := s.checkRow(r, of, int(i), int(n)); err != nil {
		s.v.problem(s.shard.Path, s.n, err)
	}
	s.n++
	s.sums.tokens.Total += int64(len(r.InputIDs))
	s.sums.add(r)
	if len(s.samples) > 0 && s.origin != nil {
		s.origins[s.origin[len(s.origin)-len(s.samples)]] += int64(len(r.InputIDs))
	}
	if s.counted() {
		s.v.report.Rows++
	} else {
		s.before = s.sums.tokens
	}
}

// owns returns an error if a row with the given key and attempt does not belong to s.
func (s CommittedSample) owns(key string, attempt int32) error {
	if key != s.Key {
		return fmt.Errorf("sample_key is %q, but the commit has %q", key, s.Key)
	}
	if attempt != s.Attempt {
		return fmt.Errorf("attempt is %d, but the commit has %d", attempt, s.Attempt)
	}
	return nil
}

// checkGroup returns an error if the group or sample index of a row differs from the values in
// the commit.
func (s *shardCheck) checkGroup(of CommittedSample, group CommittedGroup, index int32) error {
	if want := s.groups[of.Group]; group != want {
		return fmt.Errorf("group_id is %q and group_size is %d, but the commit has %q and %d", group.ID, group.Size, want.ID, want.Size)
	}
	if index != of.Index {
		return fmt.Errorf("sample_index is %d, but the commit has %d", index, of.Index)
	}
	return nil
}

func (s *shardCheck) checkRow(r *StoredRow, of CommittedSample, i, n int) error {
	if err := of.owns(r.SampleKey, r.Attempt); err != nil {
		return err
	}
	if r.RolloutID != s.rollout {
		return fmt.Errorf("rollout_id is %q, but the sample's first row has %q", r.RolloutID, s.rollout)
	}
	if r.SampleIndex < 0 || r.SampleIndex >= r.GroupSize {
		return fmt.Errorf("sample_index %d is out of range for a group of %d", r.SampleIndex, r.GroupSize)
	}
	if err := s.checkGroup(of, CommittedGroup{r.GroupID, r.GroupSize}, r.SampleIndex); err != nil {
		return err
	}
	if r.Attempt < 1 {
		return fmt.Errorf("attempt is %d, but must be ≥ 1", r.Attempt)
	}
	if err := checkStatus(r.Status); err != nil {
		return err
	}
	row, err := r.tokens(s.experts)
	if err != nil {
		return err
	}
	if err := errors.Join(checkRow(&row, i, n, s.v.opts.VocabSize), s.chain.next(&row)); err != nil {
		return err
	}
	if of.Filtered != "" && (r.Keep == nil || *r.Keep || r.KeepReason == nil || *r.KeepReason != of.Filtered) {
		return fmt.Errorf("the commit marks the row as filtered (%q), but the columns keep and keep_reason do not", of.Filtered)
	}
	if err := s.checkVersions(r, &row); err != nil {
		return err
	}
	s.sampled += sampledTokens(&row)
	if err := checkSampled(s.sampled, r.CompletionTokens); err != nil {
		return err
	}
	return errors.Join(checkReward(r.Reward), checkJSON(r.RewardDetails, r.Messages, r.Metadata))
}

func (s *shardCheck) checkVersions(r *StoredRow, row *tokenize.Row) error {
	var least, greatest *int32
	if span, ok := policyVersions(row); ok {
		least, greatest = &span.Min, &span.Max
	}
	if !same(r.PolicyVersionMin, least) || !same(r.PolicyVersionMax, greatest) {
		return fmt.Errorf("policy versions %s to %s, but the tokens have %s to %s",
			orNull(r.PolicyVersionMin), orNull(r.PolicyVersionMax), orNull(least), orNull(greatest))
	}
	return nil
}

func same(a, b *int32) bool { return a == b || a != nil && b != nil && *a == *b }

func orNull(v *int32) string {
	if v == nil {
		return "null"
	}
	return strconv.Itoa(int(*v))
}

func (s *shardCheck) failure(f *StoredFailure) {
	of, _, _ := s.next()
	if err := of.owns(f.SampleKey, f.Attempt); err != nil {
		s.v.problem(s.shard.Path, s.n, err)
	} else if err := s.checkGroup(of, CommittedGroup{f.GroupID, f.GroupSize}, f.SampleIndex); err != nil {
		s.v.problem(s.shard.Path, s.n, err)
	} else if f.Call < -1 {
		s.v.problem(s.shard.Path, s.n, fmt.Errorf("call is %d, but must be ≥ -1", f.Call))
	}
	s.n++
	if s.counted() {
		s.v.report.Failures++
	}
	s.sums.tokens.Total += int64(len(f.OutputIDs))
	s.sums.tokens.Lost.Count(f.Reason, f.Call, len(f.OutputIDs))
}

// setMerged prepares s to count the tokens in a merge separately for each source commit.
func (s *shardCheck) setMerged(merged []MergedCommit) {
	s.origins = make([]int64, len(merged))
	s.origin = make([]int32, 0, len(s.samples))
	for at, m := range merged {
		for range m.Samples {
			s.origin = append(s.origin, int32(at))
		}
	}
}

// endMerged compares the number of tokens from each source commit with the number in the merge.
func (s *shardCheck) endMerged(merged []MergedCommit) error {
	for at, n := range s.origins {
		if n != merged[at].Tokens {
			return fmt.Errorf("the rows have %d tokens of commit %d, but the merge lists %d", n, merged[at].Seq, merged[at].Tokens)
		}
	}
	return nil
}

// end compares the sums over all rows with the sums in the commit.
func (s *shardCheck) end() error {
	got, want := &s.sums, &s.shard
	if got.tokens != want.Tokens {
		return fmt.Errorf("tokens are %s, but the commit has %s", asJSON(got.tokens), asJSON(want.Tokens))
	}
	if !got.rewards.summary().near(want.Reward) {
		return fmt.Errorf("rewards are %s, but the commit has %s", asJSON(got.rewards.summary()), asJSON(want.Reward))
	}
	if (got.versions == nil) != (want.PolicyVersions == nil) || got.versions != nil && *got.versions != *want.PolicyVersions {
		return fmt.Errorf("policy versions are %s, but the commit has %s", asJSON(got.versions), asJSON(want.PolicyVersions))
	}
	if !maps.Equal(got.graded, want.Verification) {
		return fmt.Errorf("verification counts are %s, but the commit has %s", asJSON(got.graded), asJSON(want.Verification))
	}
	return nil
}

// asJSON formats v for an error message, as it is in a log entry.
func asJSON(v any) string {
	b, _ := json.Marshal(v) // JSON can represent every value of these types
	return string(b)
}
