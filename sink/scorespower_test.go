package sink_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

const powerSet = "run/scores/0001"

// fillSet is the life of a process: it makes the folder of a set durable, and adds the scores that the set lacks. It
// reports whether the set is complete.
func fillSet(fs sink.FS, samples []*tokenize.Sample) (complete bool, err error) {
	for _, step := range []func() error{
		func() error { return fs.MkdirAll(powerSet) },
		func() error { return fs.SyncDir(filepath.Dir(powerSet)) },
		func() error { return fs.SyncDir("run") },
	} {
		if err := step(); err != nil {
			return false, err
		}
	}
	w, err := sink.OpenScores(powerSet, sink.Config{RunID: "run", FS: fs})
	if errors.Is(err, sink.ErrSealed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i, s := range samples {
		if w.Has(s.Key) {
			continue
		}
		if err := w.Add(scoreOf(s)); err != nil {
			return false, err
		}
		if (i+1)%5 == 0 {
			if err := w.Commit(); err != nil {
				return false, err
			}
		}
	}
	if err := w.Seal(); err != nil {
		return false, err
	}
	return true, nil
}

// setOf returns the shards of the set, which must be complete and have a score of each sample, or nil if readers do not
// use the set.
func setOf(t *testing.T, fs *powerCut, samples []*tokenize.Sample) []string {
	t.Helper()
	dir := dump(t, fs)
	s, err := sink.ReadScores(nil, dir, "run", "")
	if err != nil {
		t.Fatalf("a reader: %v", err)
	}
	if s == nil {
		return nil
	}
	if err := s.Check(); err != nil || s.Len() != len(samples) {
		t.Fatalf("%d scores of %d, %v", s.Len(), len(samples), err)
	}
	var names []string
	for _, path := range got(filepath.Glob(filepath.Join(dir, "scores", "0001", "scores", "*")))(t) {
		names = append(names, filepath.Base(path))
	}
	return names
}

// The power is cut, or the process is killed, at every operation of a scores set, and again while it continues. Readers
// see no set or the whole set. A set that was reported complete stays complete, and it has the bytes of an undisturbed
// set.
func TestScoresPowerCut(t *testing.T) {
	t.Parallel()
	samples := someSamples(12)
	probe := newPowerCut("run", 0)
	probe.CutAt(-1)
	_, err := fillSet(probe, samples)
	must(t, err)
	steps := len(probe.Steps())
	want := setOf(t, probe, samples)
	if steps < 50 || len(want) != 3 {
		t.Fatalf("%d operations, shards %q", steps, want)
	}
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for at := range steps {
		for round := range rounds {
			t.Run(fmt.Sprintf("at=%d/%d", at, round), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(uint64(at), uint64(round)))
				fs := newPowerCut("run", rng.Uint64())
				fs.CutAt(at)
				complete, err := fillSet(fs, samples)
				for lives := 0; ; lives++ {
					if err != nil && !errors.Is(err, errPower) {
						t.Fatalf("life %d: %v", lives, err)
					}
					back(rng, fs)
					if found := setOf(t, fs, samples); complete && found == nil || found != nil && !slices.Equal(found, want) {
						t.Fatalf("life %d, complete %v: shards %q, want %q", lives, complete, found, want)
					}
					if complete {
						break
					}
					if fs.CutAt(-1); lives < 2 {
						fs.CutAt(rng.IntN(steps))
					}
					complete, err = fillSet(fs, samples)
				}
			})
		}
	}
}
