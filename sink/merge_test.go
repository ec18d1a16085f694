package sink_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// smallCommits makes a log of n commits: of one or more samples, with rows, failures or neither, with
// groups in one or more commits, and with failures that a later commit supersedes.
func smallCommits(tb testing.TB, dir string, cfg sink.Config, n int, seed uint64) {
	tb.Helper()
	b := sinktest.NewBuilder(seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	var failed []*tokenize.Sample
	for range n {
		var list, late []*tokenize.Sample
		for range 1 + rng.IntN(4) {
			var s *tokenize.Sample
			switch k := rng.IntN(10); {
			case k < 5:
				s = b.Sample(b.Row(1+rng.IntN(40), 1+rng.IntN(90)))
			case k < 7:
				s = b.Sample(b.Row(5, 30), b.Row(30, 20, 3, 1), b.Row(2, 2))
			case k == 7:
				s = b.Sample()
			case k == 8 && len(failed) > 0:
				s = nextAttempt(b.Sample(b.Row(8, 8)), failed[0])
				failed = failed[1:]
			default:
				s = b.Failure(3)
				late = append(late, s)
			}
			list = append(list, s)
		}
		failed = append(failed, late...)
		if cfg.Store != nil {
			cfg.Epoch++
		}
		sinktest.Write(tb, dir, cfg, list)
	}
}

// logicalOf returns the content of each sample in the log and shards, in commit order.
func logicalOf(tb testing.TB, dir string) (lines []string) {
	tb.Helper()
	return linesOf(tb, readLog(tb, dir))
}

func linesOf(tb testing.TB, log *sink.Log) (lines []string) {
	tb.Helper()
	for c := range log.Originals() {
		for _, s := range c.Samples {
			lines = append(lines, fmt.Sprintf("%d %s %s/%d %d %d %q %d of %d %s", c.Seq, c.CreatedAt, s.Key, s.Attempt, s.Rows, s.Failures, c.Groups[s.Group].ID, s.Index, c.Groups[s.Group].Size, s.Class))
		}
	}
	return append(lines, storedOf(tb, log)...)
}

func storedOf(tb testing.TB, log *sink.Log) (lines []string) {
	tb.Helper()
	for s := range each(tb, log.Stored()) {
		lines = append(lines, string(bits(nil, reflect.ValueOf(s))))
	}
	return lines
}

// bits appends a value with everything that it points to, floats by their bits.
func bits(dst []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(dst, "null "...)
		}
		return bits(dst, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			dst = bits(append(append(dst, v.Type().Field(i).Name...), '='), v.Field(i))
		}
		return dst
	case reflect.Slice:
		if v.IsNil() {
			return append(dst, "null "...)
		}
		dst = append(dst, '[')
		for i := range v.Len() {
			dst = bits(dst, v.Index(i))
		}
		return append(dst, ']', ' ')
	case reflect.Float32, reflect.Float64:
		return fmt.Appendf(dst, "%x ", math.Float64bits(v.Float()))
	}
	return fmt.Appendf(dst, "%v ", v)
}

// sameLogical compares the content of a folder with want. It also reads the samples with a log that drops its lists.
func sameLogical(tb testing.TB, dir string, want []string) {
	tb.Helper()
	got := logicalOf(tb, dir)
	dropped, err := sink.ReadLogIn(nil, dir, func(*sink.Commit) {})
	if err != nil {
		tb.Fatal(err)
	}
	if a, b := storedOf(tb, readLog(tb, dir)), storedOf(tb, dropped); !slices.Equal(a, b) {
		tb.Fatalf("a log without lists yields %d parts of samples, want %d, or others", len(b), len(a))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			tb.Fatalf("line %d of %d and %d:\n%.300s\nwant:\n%.300s", i, len(got), len(want), append(got, make([]string, len(want))...)[i], append(want, make([]string, len(got))...)[i])
		}
	}
}

func wholeVerify(tb testing.TB, dir string) sink.VerifyReport {
	tb.Helper()
	r, err := sink.Verify(tb.Context(), dir, sink.VerifyOptions{VocabSize: sinktest.Vocab})
	if err != nil || r.ProblemCount > 0 {
		tb.Fatalf("Verify: %v, %v", err, r.Problems)
	}
	return r
}

// TestMerge tests that merges change files but nothing that a reader sees: no sample, order or bit.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		for _, at := range []int{2, 3, 8} {
			t.Run(fmt.Sprintf("%s/%d", format, at), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				cfg := sink.Config{Format: format, MergeAt: at, RowGroupTokens: 1000, FS: unsynced{sink.OS()}, Meta: map[string]string{"rollout.config_sha256": "x"}}
				smallCommits(t, dir, cfg, 41, uint64(at))
				want, before := logicalOf(t, dir), wholeVerify(t, dir)
				for round := range 2 { // merges of merges
					d := open(t, dir, cfg)
					n, err := d.MergeAll(t.Context())
					if err != nil || n == 0 && at == 2 {
						t.Fatalf("%d merges, %v", n, err)
					}
					t.Logf("%d merges", n)
					sameLogical(t, dir, want)
					after := verify(t, dir)
					if before.Samples != after.Samples || before.Rows != after.Rows || before.Failures != after.Failures || before.Tokens != after.Tokens || before.Failed != after.Failed {
						t.Errorf("%+v, want the sums of %+v", after, before)
					}
					cardNames(t, dir, true)
					smallCommits(t, dir, cfg, 11, uint64(100*(round+1)+at))
					want, before = logicalOf(t, dir), wholeVerify(t, dir)
				}
				log := readLog(t, dir)
				if n := len(log.Commits); n > 8*at+11 {
					t.Errorf("%d entries are left", n)
				}
				if meta, err := log.Meta(slices.Collect(log.Shards(sink.KindData))[0]); err != nil || meta["rollout.config_sha256"] != "x" {
					t.Errorf("key-values %v, %v", meta, err)
				}
				// No reader needs the replaced files.
				must(t, os.RemoveAll(filepath.Join(dir, "replaced")))
				sameLogical(t, dir, want)
			})
		}
	}
}

// TestMergeIsCut tests that a cut or kill at any step of a merge leaves the same dataset, still mergeable.
func TestMergeIsCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := sink.Config{MergeAt: 3, RowGroupTokens: 1000}
	smallCommits(t, dir, cfg, 4, 7) // one merge, of shards of both kinds
	want := logicalOf(t, dir)
	life := func(fs *powerCut) error {
		d, err := sink.Create("run", withFS(cfg, fs))
		if err != nil {
			return err
		}
		_, err = d.MergeAll(t.Context())
		_ = d.Acknowledge(sink.Cursor{RunID: "run", Seq: 5})
		d.DeleteReplaced()
		return err
	}
	probe := loaded(t, dir, 0)
	probe.CutAt(-1)
	must(t, life(probe))
	steps := len(probe.Steps())
	t.Logf("%d operations", steps)
	stride := 1
	if testing.Short() {
		stride = 11
	}
	for at := 0; at < steps; at += stride {
		t.Run(fmt.Sprintf("at=%d", at), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, uint64(at)))
			fs := loaded(t, dir, rng.Uint64())
			fs.CutAt(at)
			_ = life(fs)
			for range rng.IntN(3) {
				back(rng, fs)
				sameLogical(t, dump(t, fs), want)
				fs.CutAt(rng.IntN(80))
				_ = life(fs)
			}
			back(rng, fs)
			open(t, "run", withFS(cfg, fs))
			there := dump(t, fs)
			sameLogical(t, there, want)
			verify(t, there)
			cardNames(t, there, true)
			fs.Kill()
			must(t, life(fs))
			there = dump(t, fs)
			sameLogical(t, there, want)
			wholeVerify(t, there)
			if left, _ := filepath.Glob(filepath.Join(there, "replaced", "*", "*")); len(left) > 0 {
				t.Errorf("all was acknowledged, and %q is left", left)
			}
		})
	}
}

// loaded returns a disk with the files of a folder.
func loaded(tb testing.TB, dir string, seed uint64) *powerCut {
	tb.Helper()
	disk := newPowerCut("run", seed)
	must(tb, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		to := filepath.Join("run", rel)
		if err != nil || rel == "." {
			return err
		}
		if e.IsDir() {
			return disk.MkdirAll(to)
		}
		f, err := disk.Create(to)
		must(tb, err)
		_, err = f.Write(readFile(tb, path))
		return errors.Join(err, f.Sync())
	}))
	for _, sub := range []string{"", "data", "failures", "_commits", "wal"} {
		must(tb, disk.SyncDir(filepath.Join("run", sub)))
	}
	return disk
}

var updateMerged = flag.Bool("merged", false, "rewrite testdata/merged")

// TestMergedFolder tests a run folder with merges, for readers in other languages: merges of commits, a
// merge of merges, later commits, and replaced files of the last merge.
func TestMergedFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "merged")
	if *updateMerged {
		to := t.TempDir()
		cfg := sink.Config{MergeAt: 3, Now: func() time.Time { return time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC) }}
		for seed := range uint64(3) {
			smallCommits(t, to, cfg, 4, seed)
			d := open(t, to, cfg)
			_, err := d.MergeAll(t.Context())
			must(t, errors.Join(err, d.Acknowledge(sink.Cursor{RunID: "run", Seq: 4*int64(seed) + 1})))
			d.DeleteReplaced()
		}
		smallCommits(t, to, cfg, 2, 9)
		must(t, errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(to)), os.RemoveAll(filepath.Join(dir, "wal"))))
	}
	log := readLog(t, dir)
	merges := 0
	for _, c := range log.Commits {
		if c.IsMerge() {
			merges++
		}
	}
	if n := len(logicalOf(t, dir)); merges == 0 || merges == len(log.Commits) || n < 50 {
		t.Errorf("%d merges among %d entries, %d lines", merges, len(log.Commits), n)
	}
	verify(t, dir)
}
