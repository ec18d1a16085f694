package sink_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// bulk returns at least that many tokens of text-like ids, in rows of 1.5 to 32 thousand with spans of
// 50 to 2,000. Every other span is sampled, so half of the tokens have no log-probability.
func bulk(tokens int) (samples []*tokenize.Sample) {
	b := sinktest.NewBuilder(1)
	rng := rand.New(rand.NewPCG(2, 0))
	for tokens > 0 {
		want := 1500 + rng.IntN(30_500)
		spans := []int{50 + rng.IntN(1950)}
		for n := spans[0]; n < want || len(spans)%2 == 1; {
			k := 50 + rng.IntN(1950)
			spans = append(spans, k)
			n += k
		}
		s := b.Sample(b.Row(spans...))
		tokens -= len(s.Rows[0].InputIDs)
		samples = append(samples, s)
	}
	return samples
}

func bulkRows(tokens int) (rows []sink.StoredRow, total int) {
	for _, s := range bulk(tokens) {
		rows = append(rows, sinktest.Rows(s)...)
	}
	for i := range rows {
		total += len(rows[i].InputIDs)
	}
	return rows, total
}

// rollouts returns n samples as from a real server: a prompt of 600 tokens, 8 calls of some 500
// tokens with tool results of 480 between them, and 90 KB of messages.
func rollouts(n int) (samples []*tokenize.Sample) {
	b := sinktest.NewBuilder(3)
	rng := rand.New(rand.NewPCG(4, 0))
	for range n {
		spans := []int{600}
		for call := range 8 {
			spans = append(spans, 300+rng.IntN(400))
			if call < 7 {
				spans = append(spans, 280+rng.IntN(400))
			}
		}
		s := b.Sample(b.Row(spans...))
		s.Messages = new(messages(rng, 90_000))
		s.RunIDs = []string{s.AgentID + "-run"}
		samples = append(samples, s)
	}
	return samples
}

// messages returns a list of messages of about that many bytes. Their text is the source of this
// package, from a random offset, because it compresses like an agent's messages.
func messages(rng *rand.Rand, size int) string {
	var list []map[string]any
	for left := size; left > 0; {
		n := min(left, 500+rng.IntN(9000))
		at := rng.IntN(len(source()) - n)
		list = append(list, map[string]any{
			"id": fmt.Sprintf("message-%08x", rng.Uint32()), "message_type": "tool_return_message",
			"tool_call_id": fmt.Sprintf("call_%016x", rng.Uint64()), "content": strings.ToValidUTF8(source()[at:at+n], "?"),
		})
		left -= n + 120
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // texts only
	}
	return string(text)
}

var source = sync.OnceValue(func() string {
	var all []byte
	names, err := os.ReadDir(".")
	for _, name := range names {
		if strings.HasSuffix(name.Name(), ".go") {
			var b []byte
			if b, err = os.ReadFile(name.Name()); err == nil {
				all = append(all, b...)
			}
		}
	}
	if err != nil {
		panic(err)
	}
	return string(all)
})

// BenchmarkRollouts encodes shards of 230 realistic rollouts.
func BenchmarkRollouts(b *testing.B) {
	var rows []sink.StoredRow
	var bytes int64
	tokens := 0
	for _, s := range rollouts(230) {
		rows = append(rows, sinktest.Rows(s)...)
	}
	for i := range rows {
		tokens += len(rows[i].InputIDs)
		bytes += int64(9*len(rows[i].InputIDs) + len(*rows[i].Messages))
	}
	b.ReportAllocs()
	b.SetBytes(bytes)
	var pool sink.EncoderPool
	var size int64
	for b.Loop() {
		size = writeShard(b, &pool, sink.Parquet, rows)
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rollouts/s")
	b.ReportMetric(float64(size)/float64(len(rows)), "bytes/rollout")
	b.ReportMetric(float64(tokens)/float64(len(rows)), "tokens/rollout")
}

// BenchmarkAppend measures everything from Append to committed and checked shards on disk.
func BenchmarkAppend(b *testing.B) {
	samples := bulk(2_000_000)
	_, tokens := bulkRows(2_000_000)
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		b.Run("format="+format.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for i, s := range samples {
					s.Key = fmt.Sprint(i)
				}
				sinktest.Write(b, b.TempDir(), sink.Config{Format: format}, samples)
			}
			b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkVerify reads a committed dataset and checks every row.
func BenchmarkVerify(b *testing.B) {
	_, tokens := bulkRows(2_000_000)
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		b.Run("format="+format.String(), func(b *testing.B) {
			dir := b.TempDir()
			sinktest.Write(b, dir, sink.Config{Format: format}, bulk(2_000_000))
			b.ReportAllocs()
			for b.Loop() {
				report, err := sink.Verify(b.Context(), dir, sink.VerifyOptions{})
				if err != nil || report.ProblemCount > 0 {
					b.Fatal(err, report.Problems)
				}
			}
			b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func writeShard(tb testing.TB, pool *sink.EncoderPool, format sink.Format, rows []sink.StoredRow) int64 {
	tb.Helper()
	out := new(counter)
	encode(tb, pool.NewEncoder(out, format, sink.DefaultRowGroupTokens, nil), rows)
	return out.n
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// TestGateParquetSize tests that the default encodings keep text-like data below the target size. With
// a log-probability for each token it would take some 3.6 bytes per token.
func TestGateParquetSize(t *testing.T) {
	rows, tokens := bulkRows(1_000_000)
	size := writeShard(t, new(sink.EncoderPool), sink.Parquet, rows)
	perToken := float64(size) / float64(tokens)
	t.Logf("%.3f bytes/token", perToken)
	if perToken > 3.8 {
		t.Errorf("%.2f bytes per token, want ≤ 3.8", perToken)
	}
}

// TestGateParquetAllocs bounds the allocations for rows of some 18 thousand tokens beyond the
// allocations for a shard. The rest are for pages.
func TestGateParquetAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools forget at random")
	}
	rows, tokens := bulkRows(500_000)
	var pool sink.EncoderPool
	few := testing.AllocsPerRun(3, func() { writeShard(t, &pool, sink.Parquet, rows[:10]) })
	all := testing.AllocsPerRun(3, func() { writeShard(t, &pool, sink.Parquet, rows) })
	per10k := (all - few) / float64(tokens) * 10_000
	t.Logf("%.2f allocations per 10,000 tokens, %.0f per shard", per10k, few)
	if per10k > 3 {
		t.Errorf("%.1f allocations per 10,000 tokens, want ≤ 3", per10k)
	}
}

// TestGateArrowBytes tests that after its first shard a writer allocates no more memory.
func TestGateArrowBytes(t *testing.T) {
	rows, tokens := bulkRows(4_000_000)
	var pool sink.EncoderPool
	writeShard(t, &pool, sink.Arrow, rows)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	writeShard(t, &pool, sink.Arrow, rows)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes allocated for %d tokens", allocated, tokens)
	if allocated > 1<<20 {
		t.Errorf("%d bytes allocated, want ≤ 1 MiB", allocated)
	}
}

// TestGateFastPath tests that shards use the struct's schema: with another one, parquet-go silently
// falls back to reflection. The rounds alternate, so both ways see the same load.
func TestGateFastPath(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector slows both ways, not alike")
	}
	rows, _ := bulkRows(1_000_000)
	group := parquet.Group{} // sorts the columns by name
	for _, f := range sink.RowSchema().Fields() {
		group[f.Name()] = f
	}
	slow := parquet.NewSchema("slow", group)
	write := func(options ...parquet.WriterOption) time.Duration {
		start := time.Now()
		w := sink.NewPlainEncoder(io.Discard, options...)
		for i := range rows {
			if _, err := w.Write(rows[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		must(t, w.Close())
		return time.Since(start)
	}
	fast, reflected := time.Hour, time.Hour
	for range 7 {
		fast = min(fast, write())
		reflected = min(reflected, write(slow))
	}
	ratio := reflected.Seconds() / fast.Seconds()
	t.Logf("%.1f times as fast as by reflection: %v against %v", ratio, fast, reflected)
	// 3.5 to 6 measured. It depends on how fast the machine counts levels, which both ways do.
	if ratio < 2.5 {
		t.Errorf("%.1f times as fast as by reflection, want ≥ 2.5", ratio)
	}
}
