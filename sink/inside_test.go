package sink_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// insideSamples returns samples. Every second sample has values from inside its calls.
func insideSamples(shape tokenize.ExpertShape, n int) []*tokenize.Sample {
	b := sinktest.NewBuilder(11)
	all := make([]*tokenize.Sample, n)
	for i := range all {
		row := b.Row(5+i%7, 4, 3, 2)
		if i%2 == 0 {
			b.Inside(&row, shape)
		}
		all[i] = b.Sample(row)
	}
	return all
}

// TestInside tests that a shard of each format keeps the values from inside the calls, and that Verify
// checks them.
func TestInside(t *testing.T) {
	t.Parallel()
	for _, shape := range []tokenize.ExpertShape{{Layers: 3, TopK: 2, Experts: 128}, {Layers: 2, TopK: 8, Experts: 256}} {
		for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
			t.Run(fmt.Sprint(format, shape), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				samples := insideSamples(shape, 300)
				want := map[string]sink.StoredRow{}
				for _, s := range samples {
					want[s.Key] = sinktest.Rows(s)[0]
				}
				sinktest.Write(t, dir, sink.Config{Format: format, Experts: shape, RowGroupTokens: 1000, MergeAt: 2}, samples)
				log := readLog(t, dir)
				var got []*sink.StoredRow
				for s := range log.Shards(sink.KindData) {
					meta, err := log.Meta(s)
					must(t, err)
					if text := fmt.Sprintf(`{"dtype":"int%d","shape":[%d,%d],"experts":%d}`, 8*shape.IDBytes(), shape.Layers, shape.TopK, shape.Experts); meta["rollout.routed_experts"] != text {
						t.Errorf("rollout.routed_experts is %q, want %q", meta["rollout.routed_experts"], text)
					}
					for r, err := range log.Rows(s) {
						must(t, err)
						got = append(got, r) // compared after all are read, to detect shared memory
					}
				}
				if len(got) != len(samples) {
					t.Fatalf("%d rows, want %d", len(got), len(samples))
				}
				for _, r := range got {
					w := want[r.SampleKey]
					for _, name := range []string{"WeightVersions", "WeightVersionEnds", "RoutedExperts", "SamplingMask", "SamplingMaskLengths"} {
						g, w := reflect.ValueOf(r).Elem().FieldByName(name), reflect.ValueOf(w).FieldByName(name)
						if g.IsNil() != w.IsNil() || !reflect.DeepEqual(g.Interface(), w.Interface()) {
							t.Fatalf("%s is %v, want %v", name, g, w)
						}
					}
				}
				wholeVerify(t, dir)
			})
		}
	}
}

// TestInsideRefused tests the error of Append for routed experts of another shape.
func TestInsideRefused(t *testing.T) {
	t.Parallel()
	shape := tokenize.ExpertShape{Layers: 3, TopK: 2, Experts: 128}
	for _, has := range []tokenize.ExpertShape{{}, {Layers: 2, TopK: 3, Experts: 128}} {
		d := open(t, t.TempDir(), sink.Config{Experts: has})
		err := d.Append(t.Context(), insideSamples(shape, 1)[0], func(error) {})
		if want := fmt.Sprintf(`the routed experts have the shape "3x2/128", but the dataset has %q`, has); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Append: %v, want %q", err, want)
		}
	}
}

// TestInsideCost measures the size of the columns in a file without these values, and their size
// per token with them. Real routers repeat experts, so random ids are the worst case for the
// compression.
func TestInsideCost(t *testing.T) {
	t.Parallel()
	size := func(inside bool) (bytes, tokens int64) {
		dir, b := t.TempDir(), sinktest.NewBuilder(3)
		shape := tokenize.ExpertShape{Layers: 48, TopK: 8, Experts: 128}
		var samples []*tokenize.Sample
		for range 20 {
			row := b.Row(400, 300, 200, 100)
			if inside {
				b.Inside(&row, shape)
			}
			samples = append(samples, b.Sample(row))
		}
		sinktest.Write(t, dir, sink.Config{Experts: shape}, samples)
		log := readLog(t, dir)
		for s := range log.Shards(sink.KindData) {
			info, err := os.Stat(dir + "/" + s.Path)
			must(t, err)
			bytes, tokens = bytes+info.Size(), tokens+s.Tokens.Total
		}
		return bytes, tokens
	}
	without, tokens := size(false)
	with, _ := size(true)
	t.Logf("without: %d bytes; with random values: %.1f bytes more per token", without, float64(with-without)/float64(tokens))
	if perToken := float64(with-without) / float64(tokens); perToken > 48*8+20 {
		t.Errorf("%.1f bytes per token, want at most 404", perToken)
	}
}
