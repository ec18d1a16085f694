package sink_test

import (
	"encoding/base64"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rowGroup describes a row group of a Parquet shard.
type rowGroup struct {
	rows, tokens int
	bytes        int64
	cut          bool // it begins within a group
	last         bool // of its shard
}

func rowGroups(t *testing.T, dir string) (all []rowGroup) {
	t.Helper()
	log := readLog(t, dir)
	for s := range log.Shards(sink.KindData) {
		var rows []*sink.StoredRow
		for r := range each(t, log.Rows(s)) {
			rows = append(rows, r)
		}
		f, err := os.Open(filepath.Join(dir, s.Path))
		must(t, err)
		file, err := parquet.OpenFile(f, s.Bytes)
		must(t, err)
		at := 0
		for i, of := range file.Metadata().RowGroups {
			g := rowGroup{rows: int(of.NumRows), bytes: of.TotalCompressedSize, last: i == len(file.RowGroups())-1}
			g.cut = at > 0 && rows[at].GroupID == rows[at-1].GroupID
			for _, r := range rows[at : at+g.rows] {
				g.tokens += len(r.InputIDs)
			}
			at += g.rows
			all = append(all, g)
		}
		_ = f.Close() // read-only
	}
	return all
}

// manyGroups returns groups of 8 to 16 samples, some forked or failed, in a possible finishing order.
func manyGroups(n int) (all []*tokenize.Sample) {
	b, rng := sinktest.NewBuilder(21), rand.New(rand.NewPCG(21, 0))
	for id := range n {
		size := 8 + rng.IntN(9)
		for i := range size {
			s := b.Failure(20)
			if rng.IntN(12) > 0 {
				var rows []tokenize.Row
				for range max(1, rng.IntN(6)-2) {
					rows = append(rows, b.Row(100, 200+rng.IntN(400), 50, 100+rng.IntN(300)))
				}
				s = b.Sample(rows...)
			}
			all = append(all, grouping(s, id, size, i))
		}
	}
	for i := 0; i < len(all); i += 40 { // samples finish out of order over short distances
		part := all[i:min(i+40, len(all))]
		rng.Shuffle(len(part), func(i, k int) { part[i], part[k] = part[k], part[i] })
	}
	return all
}

// checkRowGroups checks that row groups begin with groups and have the right sizes.
func checkRowGroups(t *testing.T, dir string, target int) {
	t.Helper()
	all := rowGroups(t, dir)
	cut := 0
	for i, g := range all {
		if g.cut {
			cut++
		}
		if g.tokens < target && !g.last || g.tokens >= 2*target {
			t.Errorf("row group %d of %d has %d tokens, the target is %d", i, len(all), g.tokens, target)
		}
	}
	t.Logf("%d row groups, %d begin in the middle of a group", len(all), cut)
	if cut > 0 || len(all) < 20 {
		t.Errorf("%d of %d row groups begin in the middle of a group", cut, len(all))
	}
}

// TestRowGroupsBeginWithGroups tests that a row group begins with the first row of a group when samples
// are written, recovered after a crash, or copied.
func TestRowGroupsBeginWithGroups(t *testing.T) {
	t.Parallel()
	const target = 30_000
	for _, cfg := range []sink.Config{{}, {MaxBytesInFlight: 200_000, MaxShardBytes: 1_000_000}} {
		cfg.RowGroupTokens = target
		t.Run(fmt.Sprintf("shard=%d", cfg.MaxShardBytes), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sinktest.Write(t, dir, cfg, manyGroups(75))
			checkRowGroups(t, dir, target)
			log := readLog(t, dir)
			again := t.TempDir()
			if _, err := sink.Store(again, cfg, log.Stored()); err != nil {
				t.Fatal(err)
			}
			checkRowGroups(t, again, target)
		})
	}
	t.Run("recovered", func(t *testing.T) {
		t.Parallel()
		cfg := sink.Config{RowGroupTokens: target, FS: unsynced{sink.OS()}}
		dir := interrupted(t, manyGroups(75), cfg)
		open(t, dir, cfg)
		compareDataset(t, dir, manyGroups(75))
		checkRowGroups(t, dir, target)
	})
}

// TestRowGroupsAreBounded tests that no row group exceeds twice its tokens: samples without a group are
// separable anywhere, and a group larger than that is cut.
func TestRowGroupsAreBounded(t *testing.T) {
	t.Parallel()
	const target, row = 20_000, 1000
	for _, tt := range []struct {
		id     string
		rows   int // in each row group except the last
		pieces int
	}{
		{"one", 2 * target / row, 8},
		{"", target / row, 15},
	} {
		dir, b := t.TempDir(), sinktest.NewBuilder(5)
		var all []*tokenize.Sample
		for i := range 300 {
			s := b.Sample(b.Row(100, row-100))
			s.GroupID, s.GroupSize, s.Index = tt.id, 300, int32(i)
			all = append(all, s)
		}
		sinktest.Write(t, dir, sink.Config{RowGroupTokens: target}, all)
		groups := rowGroups(t, dir)
		for i, g := range groups {
			if g.rows != tt.rows && !g.last {
				t.Errorf("group %q: row group %d has %d rows, want %d", tt.id, i, g.rows, tt.rows)
			}
		}
		if len(groups) != tt.pieces {
			t.Errorf("group %q: %d row groups, want %d", tt.id, len(groups), tt.pieces)
		}
	}
}

// TestRowGroupsOfText tests the limits for text: 16 MiB of the file between groups, 32 MiB within one.
func TestRowGroupsOfText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		size        int
		least, most int64 // bytes of each except the last, in MiB
	}{{6, 15, 24}, {60, 30, 33}} {
		rng := rand.New(rand.NewPCG(1, 0))
		noise := make([]byte, 768<<10) // 1 MiB as text, hardly compressible
		parts := func(yield func(*sink.StoredSample, error) bool) {
			b := sinktest.NewBuilder(5)
			for i := range 60 {
				for k := range noise {
					noise[k] = byte(rng.Uint32())
				}
				s := b.Sample(b.Row(10, 20))
				s.GroupID, s.GroupSize, s.Index = fmt.Sprint(i/tt.size), int32(tt.size), int32(i%tt.size)
				s.Messages = new(`["` + base64.StdEncoding.EncodeToString(noise) + `"]`)
				if !yield(sinktest.Rows(s)[0].AsSample(), nil) {
					return
				}
			}
		}
		dir := t.TempDir()
		if _, err := sink.Store(dir, sink.Config{}, iter.Seq2[*sink.StoredSample, error](parts)); err != nil {
			t.Fatal(err)
		}
		groups := rowGroups(t, dir)
		for i, g := range groups {
			if cut := g.cut && tt.size < 60; cut || g.bytes > tt.most<<20 || g.bytes < tt.least<<20 && !g.last {
				t.Errorf("groups of %d MiB: row group %d of %d has %d bytes, cut is %t", tt.size, i, len(groups), g.bytes, g.cut)
			}
		}
		if len(groups) < 2 {
			t.Errorf("groups of %d MiB: %d row groups", tt.size, len(groups))
		}
	}
}
