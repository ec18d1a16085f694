package sink_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// scored writes a scores set with a score for each of the samples, in commits of per samples.
func scored(t *testing.T, dir, name string, samples []*tokenize.Sample, per int, seal bool) {
	t.Helper()
	set := filepath.Join(dir, filepath.FromSlash(sink.ScoresPath(name)))
	if err := os.MkdirAll(set, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := sink.OpenScores(set, sink.Config{RunID: "run"})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range samples {
		if w.Has(s.Key) {
			continue
		}
		if err := w.Add(scoreOf(s)); err != nil {
			t.Fatal(err)
		}
		if (i+1)%per == 0 {
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !seal {
		w.Abandon()
	} else if err := w.Seal(); err != nil {
		t.Fatal(err)
	}
}

// scoreOf returns a score that depends only on the key. Each combination of nulls occurs.
func scoreOf(s *tokenize.Sample) *sink.StoredScore {
	out := &sink.StoredScore{SampleKey: s.Key}
	n := int(s.Key[0]) + int(s.Key[1])
	if n%3 > 0 {
		out.Reward = new(float64(n))
	} else if n%2 == 0 {
		out.Failed = true
	}
	if n%2 == 0 {
		out.RewardDetails = new(fmt.Sprintf(`{"key":%q}`, s.Key))
	}
	switch n % 5 {
	case 0:
		out.Keep, out.KeepReason = new(false), new("reward_std")
	case 1:
		out.Keep, out.KeepReason = new(true), new("stale")
	}
	return out
}

func sameScore(r *sink.StoredRow, want *sink.StoredScore, details bool) bool {
	same := func(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	reward := (r.Reward == nil) == (want.Reward == nil) && (r.Reward == nil || *r.Reward == *want.Reward)
	keep := (r.Keep == nil) == (want.Keep == nil) && (r.Keep == nil || *r.Keep == *want.Keep)
	return reward && keep && same(r.KeepReason, want.KeepReason) && (!details || same(r.RewardDetails, want.RewardDetails))
}

func someSamples(n int) (list []*tokenize.Sample) {
	b := sinktest.NewBuilder(7)
	for i := range n {
		if i%5 == 4 {
			list = append(list, b.Sample(b.Row(3, 4), b.Row(5, 6)))
		} else {
			list = append(list, b.Sample(b.Row(3, 4)))
		}
		list[i].RewardDetails = new(`{"old":1}`)
	}
	return list
}

// Rows from all readers have the scores of the set, in both formats. The row of a sample that the set does not have
// is not scored. Without a set, rows have their own scores.
func TestScores(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir := t.TempDir()
		samples := someSamples(60)
		sinktest.Write(t, dir, sink.Config{Format: format}, samples)
		later := samples[55:]
		scored(t, dir, "0001", samples[:55], 7, true)
		want := map[string]*sink.StoredScore{}
		for _, s := range samples[:55] {
			want[s.Key] = scoreOf(s)
		}
		log := got(sink.ReadLog(dir))(t)
		scores := got(sink.ReadScores(nil, dir, "run", ""))(t)
		if scores.Name != "0001" || scores.Len() != 55 {
			t.Fatalf("set %s with %d scores", scores.Name, scores.Len())
		}
		if err := scores.Check(); err != nil {
			t.Fatal(err)
		}
		log.UseScores(scores)
		n, unscored := 0, 0
		check := func(r *sink.StoredRow, details bool) {
			n++
			s, ok := want[r.SampleKey]
			if !ok {
				if unscored++; r.Reward != nil || r.RewardDetails != nil {
					t.Errorf("%s: the sample has no score, but reward %v", r.SampleKey, *r.Reward)
				}
				return
			}
			if !sameScore(r, s, details) {
				t.Errorf("%s: got %v %v, want %v %v", r.SampleKey, r.Reward, r.Keep, s.Reward, s.Keep)
			}
		}
		for shard := range log.Shards(sink.KindData) {
			for r, err := range log.Rows(shard) {
				check(got(r, err)(t), true)
			}
			for r, err := range log.Facts(shard) {
				check(got(r, err)(t), false)
			}
			check(got(log.Row(shard, shard.Rows-1))(t), true)
		}
		for s, err := range log.Stored(sink.KindData) {
			for i := range got(s, err)(t).Rows {
				check(&s.Rows[i], true)
			}
		}
		if n != 3*72+1 || unscored < 3*len(later) {
			t.Errorf("%d rows, %d of them unscored", n, unscored)
		}
		for key, s := range want {
			reason, ok := scores.Filtered(key)
			if filtered := s.Keep != nil && !*s.Keep; !ok || (reason == "reward_std") != filtered {
				t.Errorf("%s: filtered for %q", key, reason)
			}
		}
		log.UseScores(nil)
		for s, err := range log.Stored(sink.KindData) {
			for i := range got(s, err)(t).Rows {
				if r := &s.Rows[i]; *r.RewardDetails != `{"old":1}` {
					t.Errorf("%s: details %q", r.SampleKey, *r.RewardDetails)
				}
			}
		}
		report := got(sink.Verify(t.Context(), dir, sink.VerifyOptions{}))(t)
		if len(report.Problems) > 0 {
			t.Errorf("verify: %v", report.Problems)
		}
	}
}

// A set counts once it is sealed, and then it cannot be opened for writing. An interrupted set continues after its
// last commit, and has the same shards as a set that was not interrupted.
func TestScoresInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	samples := someSamples(40)
	scored(t, dir, "0001", samples, 10, true)
	scored(t, dir, "0002", samples[:25], 10, false)
	leftover := filepath.Join(dir, "scores", "0002", "scores", "part-run-0-9-00000000.parquet")
	if err := os.WriteFile(leftover, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := got(sink.ReadScores(nil, dir, "run", ""))(t); s.Name != "0001" {
		t.Errorf("read the set %s", s.Name)
	}
	if _, err := sink.ReadScores(nil, dir, "run", "0002"); !errors.Is(err, sink.ErrNoScores) {
		t.Errorf("a set that is not complete: %v", err)
	}
	w := got(sink.OpenScores(filepath.Join(dir, "scores", "0002"), sink.Config{RunID: "run"}))(t)
	var held, want heldScores
	w.Held(held.add)
	for i, s := range samples {
		if i < 20 {
			want.add(scoreOf(s))
		}
		if w.Has(s.Key) != (i < 20) {
			t.Errorf("Has(%s) = %t, sample %d of the 20 in the set", s.Key, i >= 20, i)
		}
	}
	if held != want {
		t.Errorf("the set holds %+v, want %+v", held, want)
	}
	w.Abandon()
	scored(t, dir, "0002", samples, 10, true)
	s := got(sink.ReadScores(nil, dir, "run", ""))(t)
	if s.Name != "0002" || s.Len() != 40 {
		t.Errorf("read the set %s with %d scores", s.Name, s.Len())
	}
	var shards [2][]string
	for i, name := range []string{"0001", "0002"} {
		paths := got(filepath.Glob(filepath.Join(dir, "scores", name, "scores", "*")))(t)
		for _, path := range paths {
			shards[i] = append(shards[i], filepath.Base(path))
		}
	}
	if len(shards[0]) != 4 || !slices.Equal(shards[0], shards[1]) { // the names contain digests
		t.Errorf("shards differ:\n%q\n%q", shards[0], shards[1])
	}
	if _, err := sink.OpenScores(filepath.Join(dir, "scores", "0002"), sink.Config{RunID: "run"}); !errors.Is(err, sink.ErrSealed) {
		t.Errorf("open a complete set: %v", err)
	}
	if names := got(sink.ScoreSets(nil, dir))(t); !slices.Equal(names, []string{"0001", "0002"}) {
		t.Errorf("sets %q", names)
	}
}

// heldScores counts scores.
type heldScores struct {
	scored, failed, other, filtered int
	sum                             float64
}

func (h *heldScores) add(s *sink.StoredScore) {
	switch {
	case s.Reward != nil:
		h.scored++
		h.sum += *s.Reward
	case s.Failed:
		h.failed++
	default:
		h.other++
	}
	if s.Keep != nil && !*s.Keep && *s.KeepReason == "reward_std" {
		h.filtered++
	}
}

// Damage in the newest set is an error. Readers do not fall back to an older set.
func TestScoresDamaged(t *testing.T) {
	t.Parallel()
	samples := someSamples(10)
	entry := func(dir, name string) string {
		return got(filepath.Glob(filepath.Join(dir, "scores", "0002", name, "*[0-9a-f].*")))(t)[0]
	}
	for name, c := range map[string]struct {
		run   string
		spoil func(dir string) error
	}{
		"another run": {"other", func(string) error { return nil }},
		"shard": {"run", func(dir string) error {
			path := entry(dir, "scores")
			body := got(os.ReadFile(path))(t)
			body[20] ^= 1
			return os.WriteFile(path, body, 0o600)
		}},
		"shard missing": {"run", func(dir string) error { return os.Remove(entry(dir, "scores")) }},
		"entry": {"run", func(dir string) error {
			path := entry(dir, "_commits")
			body := got(os.ReadFile(path))(t)
			return os.WriteFile(path, []byte(strings.Replace(string(body), `"rows":10`, `"rows":11`, 1)), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			scored(t, dir, "0001", samples, 100, true)
			scored(t, dir, "0002", samples, 100, true)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			s, err := sink.ReadScores(nil, dir, c.run, "")
			if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "scores/0002/") || s != nil {
				t.Errorf("read %v: %v", s, err)
			}
		})
	}
}

// A scores shard in the log of a run, and a score that is not finite, are refused.
func TestScoresRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	samples := someSamples(4)
	scored(t, dir, "0001", samples, 100, true)
	if _, err := sink.ReadLog(filepath.Join(dir, "scores", "0001")); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("the log of a set, read as the log of a run: %v", err)
	}
	set := t.TempDir()
	w := got(sink.OpenScores(set, sink.Config{RunID: "run"}))(t)
	for _, bad := range []*sink.StoredScore{
		{SampleKey: "k", Reward: new(math.NaN())},
		{SampleKey: "k", RewardDetails: new("{")},
		{SampleKey: "k", Reward: new(1.0), Failed: true},
		{SampleKey: "k\xff"},
	} {
		if err := w.Add(bad); err == nil {
			t.Errorf("added %+v", bad)
		}
	}
	for range 2 {
		if err := w.Add(&sink.StoredScore{SampleKey: "k", Reward: new(1.0)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.OpenScores(set, sink.Config{RunID: "run"}); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("a sample with two scores: %v", err)
	}
	for _, name := range []string{"1", "00001", "../0001", "x", "collected", "12345678901"} {
		if _, err := sink.ReadScores(nil, dir, "run", name); !errors.Is(err, sink.ErrNoScores) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if s, err := sink.ReadScores(nil, t.TempDir(), "run", ""); s != nil || err != nil {
		t.Errorf("no set: %v, %v", s, err)
	}
}

// Scores are read from the copy of a run in a store.
func TestScoresInStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	samples := someSamples(20)
	scored(t, dir, "0001", samples, 6, true)
	s := got(sink.ReadScores(store.Folder(store.OS(), dir), "", "run", ""))(t)
	if s.Name != "0001" || s.Len() != 20 {
		t.Errorf("read the set %s with %d scores", s.Name, s.Len())
	}
}

func got[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
