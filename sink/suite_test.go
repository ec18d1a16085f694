package sink_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestSuite is the acceptance suite: it tests the promises of a dataset in both formats.
func TestSuite(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			cfg := sink.Config{Format: format, VocabSize: sinktest.Vocab}
			t.Run("returns every value", func(t *testing.T) { t.Parallel(); testValues(t, cfg) })
			t.Run("many small shards", func(t *testing.T) { t.Parallel(); testRotation(t, cfg) })
			t.Run("continues", func(t *testing.T) { t.Parallel(); testContinue(t, cfg) })
		})
	}
	t.Run("refuses broken samples", func(t *testing.T) { t.Parallel(); testRefusals(t, sink.Config{VocabSize: sinktest.Vocab}) })
}

// readDataset returns all rows and failures by sample key, in log order, and the commits of each key.
func readDataset(tb testing.TB, log *sink.Log) (rows map[string][]sink.StoredRow, failures map[string][]sink.StoredFailure, keys map[string]int) {
	tb.Helper()
	rows, failures, keys = map[string][]sink.StoredRow{}, map[string][]sink.StoredFailure{}, map[string]int{}
	for _, c := range log.Commits {
		for _, s := range c.Samples {
			keys[s.Key]++
		}
	}
	for shard := range log.Shards(sink.KindData) {
		for row := range each(tb, log.Rows(shard)) {
			rows[row.SampleKey] = append(rows[row.SampleKey], *row)
		}
	}
	for shard := range log.Shards(sink.KindFailures) {
		for f := range each(tb, log.Failures(shard)) {
			failures[f.SampleKey] = append(failures[f.SampleKey], *f)
		}
	}
	return rows, failures, keys
}

// compareDataset checks that the dataset in dir holds exactly the samples, with floats compared by bits.
func compareDataset(tb testing.TB, dir string, want []*tokenize.Sample) {
	tb.Helper()
	compareLog(tb, readLog(tb, dir), want)
}

func compareLog(tb testing.TB, log *sink.Log, want []*tokenize.Sample) {
	tb.Helper()
	rows, failures, keys := readDataset(tb, log)
	for _, s := range want {
		if keys[s.Key] != 1 {
			tb.Errorf("sample %s is committed %d times", s.Key, keys[s.Key])
		}
		delete(keys, s.Key)
		compare(tb, s.Key, rows[s.Key], sinktest.Rows(s))
		compare(tb, s.Key, failures[s.Key], failuresOf(s))
		delete(rows, s.Key)
		delete(failures, s.Key)
	}
	if len(keys)+len(rows)+len(failures) > 0 {
		tb.Errorf("%d keys, %d samples with rows and %d with failures that were never appended", len(keys), len(rows), len(failures))
	}
}

func compare[T any](tb testing.TB, key string, got, want []T) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Errorf("sample %s: %d rows, want %d", key, len(got), len(want))
		return
	}
	for i := range got {
		differ(tb, fmt.Sprintf("sample %s: row %d", key, i), &got[i], &want[i])
	}
}

// differ compares two structs except for the left-out fields, which must be zero.
func differ[T any](tb testing.TB, what string, got, want *T, leftOut ...string) {
	tb.Helper()
	g, w := reflect.ValueOf(got).Elem(), reflect.ValueOf(want).Elem()
	for f := range g.NumField() {
		name := g.Type().Field(f).Name
		if slices.Contains(leftOut, name) {
			if !g.Field(f).IsZero() {
				tb.Errorf("%s: %s is %v, want nothing", what, name, g.Field(f))
			}
		} else if err := same(g.Field(f), w.Field(f)); err != nil {
			tb.Errorf("%s: %s: %.200v", what, name, err)
		}
	}
}

// same compares two fields of a row. Floats are compared by bits, except that all NaNs are equal. nil
// versions are null; other nil lists equal empty ones.
func same(g, w reflect.Value) error {
	switch g.Kind() {
	case reflect.Pointer:
		if g.IsNil() != w.IsNil() {
			return fmt.Errorf("null is %t, want %t", g.IsNil(), w.IsNil())
		}
		if g.IsNil() {
			return nil
		}
		return same(g.Elem(), w.Elem())
	case reflect.Slice:
		if g.Len() != w.Len() {
			return fmt.Errorf("length %d, want %d", g.Len(), w.Len())
		}
		for i := range g.Len() {
			if err := same(g.Index(i), w.Index(i)); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case reflect.Float32, reflect.Float64:
		a, b := g.Float(), w.Float()
		if math.Float64bits(a) != math.Float64bits(b) && !(math.IsNaN(a) && math.IsNaN(b)) {
			return fmt.Errorf("%v, want %v", a, b)
		}
		return nil
	}
	if !g.Equal(w) {
		return fmt.Errorf("%v, want %v", g, w)
	}
	return nil
}

func testValues(t *testing.T, cfg sink.Config) {
	t.Helper()
	dir := t.TempDir()
	cfg.RowGroupTokens = 50_000 // many groups, or batches
	stats := sinktest.Write(t, dir, cfg, sinktest.Edge())
	compareDataset(t, dir, sinktest.Edge())
	verify(t, dir)
	var want sink.Stats
	for _, s := range sinktest.Edge() {
		want.Samples++
		want.Rows += int64(len(s.Rows))
		want.Failures += int64(len(s.Failures))
		if len(s.Rows) == 0 && len(s.Failures) > 0 {
			want.Failed++
		}
		for _, r := range s.Rows {
			want.Tokens.Total += int64(len(r.InputIDs))
			want.Tokens.Prompt += int64(r.PromptLength)
			want.Tokens.Unscored += int64(r.Unscored)
			want.Tokens.Trimmed += int64(r.Trimmed)
			for _, m := range r.LossMask {
				want.Tokens.Trainable += int64(m)
			}
		}
	}
	want.Commits, want.Shards, want.Bytes, want.WALSyncs = stats.Commits, stats.Shards, stats.Bytes, stats.WALSyncs
	if stats != want {
		t.Errorf("Stats() = %+v, want %+v", stats, want)
	}
	compareBalance(t, dir, sinktest.Edge())
}

// compareBalance compares the terms of the sampled tokens in the log with the samples.
func compareBalance(t *testing.T, dir string, samples []*tokenize.Sample) {
	t.Helper()
	var want tokenize.Balance
	for _, s := range samples {
		for _, r := range s.Rows {
			for i, role := range r.TurnRoles {
				if tokenize.Role(role) != tokenize.RoleAssistant {
					continue
				}
				for _, m := range r.LossMask[r.TurnOffsets[i]:r.TurnOffsets[i+1]] {
					want.Sampled++
					want.Trained += int64(m)
					want.Unscored += 1 - int64(m)
				}
			}
			want.Sampled += int64(r.Trimmed)
			want.Trimmed += int64(r.Trimmed)
		}
		for _, f := range s.Failures {
			n := int64(len(f.OutputIDs))
			want.Sampled += n
			switch {
			case f.Reason == "auxiliary" && f.Call >= 0:
				want.Auxiliary += n
			case f.Reason == "superseded" && f.Call >= 0:
				want.Superseded += n
			case f.Reason == "cut_answer" && f.Call >= 0:
				want.CutAnswers += n
			default:
				want.Quarantined += n
			}
		}
	}
	var got sink.Tokens
	for _, kind := range []sink.Kind{sink.KindData, sink.KindFailures} {
		for s := range readLog(t, dir).Shards(kind) {
			got.Add(s.Tokens)
		}
	}
	if b := got.Balance(); b != want || b.Auxiliary*b.Superseded*b.CutAnswers*b.Quarantined*b.Unscored*b.Trimmed == 0 {
		t.Errorf("the log has %+v, want %+v, and no term of zero", b, want)
	}
}

// verify is wholeVerify of a dataset that nothing is left beside.
func verify(tb testing.TB, dir string) sink.VerifyReport {
	tb.Helper()
	r := wholeVerify(tb, dir)
	if len(r.Orphans) > 0 || r.WAL != (sink.WALReport{}) {
		tb.Errorf("Verify: orphans %q, write-ahead log %+v", r.Orphans, r.WAL)
	}
	return r
}

func testRotation(t *testing.T, cfg sink.Config) {
	t.Helper()
	cfg.MaxShardBytes = 100_000
	cfg.RowGroupTokens = 2000
	make100 := func() []*tokenize.Sample {
		b := sinktest.NewBuilder(1)
		var all []*tokenize.Sample
		for i := range 100 {
			if i%10 == 9 {
				all = append(all, b.Failure(100))
				continue
			}
			all = append(all, b.Sample(b.Row(1000, 500), b.Row(2000, 700, 10, 30)))
		}
		return all
	}
	dir := t.TempDir()
	stats := sinktest.Write(t, dir, cfg, make100())
	compareDataset(t, dir, make100())
	verify(t, dir)
	if stats.Commits < 5 {
		t.Errorf("%d commits of %d bytes: shards were not closed by size", stats.Commits, stats.Bytes)
	}
	log := readLog(t, dir)
	for _, c := range log.Commits {
		for _, s := range c.Shards {
			if s.Bytes > 2*cfg.MaxShardBytes {
				t.Errorf("%s has %d bytes, the limit is %d", s.Path, s.Bytes, cfg.MaxShardBytes)
			}
		}
	}
}

func testContinue(t *testing.T, cfg sink.Config) {
	t.Helper()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	failed := b.Failure(5)
	key := failed.Key
	first := []*tokenize.Sample{b.Sample(b.Row(1, 2)), b.Sample(), failed}
	done := first[0].Key
	sinktest.Write(t, dir, cfg, first)

	again := b.Sample(b.Row(5, 6))
	again.Key, again.RolloutID, again.Attempt = key, key+"/2", 2
	sinktest.Write(t, dir, cfg, []*tokenize.Sample{again})
	report := verify(t, dir)
	if report.Samples != 3 || report.Failed != 0 {
		t.Errorf("after the success of a failed sample: %d samples, %d failed", report.Samples, report.Failed)
	}

	d := open(t, dir, cfg)
	for _, k := range []string{done, key} {
		s := b.Sample(b.Row(5, 6))
		s.Key = k
		err := d.Append(t.Context(), s, nil)
		var known *sink.SampleError
		if !errors.Is(err, sink.ErrCommitted) || !errors.As(err, &known) || known.Refused() {
			t.Errorf("Append of a committed sample = %v, want ErrCommitted", err)
		}
	}
	if err := d.Close(t.Context()); err != nil {
		t.Errorf("Close without Run: %v", err)
	}
	if err := d.Run(t.Context()); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Errorf("Close after Run: %v", err)
	}
}

func testRefusals(t *testing.T, cfg sink.Config) {
	t.Helper()
	for _, tt := range []struct {
		name string
		edit func(s *tokenize.Sample)
	}{
		{"no key", func(s *tokenize.Sample) { s.Key = "" }},
		{"index outside the group", func(s *tokenize.Sample) { s.Index = s.GroupSize }},
		{"attempt 0", func(s *tokenize.Sample) { s.Attempt = 0 }},
		{"status of a failure", func(s *tokenize.Sample) { s.Status = "cancelled" }},
		{"text that is not UTF-8", func(s *tokenize.Sample) { s.Model = "\xff" }},
		{"messages that are not UTF-8", func(s *tokenize.Sample) { s.Messages = new("\xff") }},
		{"messages that are not JSON", func(s *tokenize.Sample) { s.Messages = new("{") }},
		{"metadata that is not JSON", func(s *tokenize.Sample) { s.Metadata = new("a") }},
		{"reward details that are not JSON", func(s *tokenize.Sample) { s.RewardDetails = new("") }},
		{"reward NaN", func(s *tokenize.Sample) { s.Reward = new(math.NaN()) }},
		{"reward infinite", func(s *tokenize.Sample) { s.Reward = new(math.Inf(1)) }},
		{"more tokens than the server counted", func(s *tokenize.Sample) { s.CompletionTokens-- }},
		{"more tokens than the server counted, with one trimmed", func(s *tokenize.Sample) {
			s.Rows[0].Trimmed, s.Rows[0].Flags = 1, tokenize.FlagRealigned
		}},
		{"more tokens than the server counted, with one unscored", func(s *tokenize.Sample) {
			s.Rows[0].LossMask[3], s.Rows[0].Logprobs[3], s.Rows[0].Unscored = 0, 0, 1
			s.CompletionTokens--
		}},
		{"step id that is not UTF-8", func(s *tokenize.Sample) { s.Rows[0].StepIDs = []string{"\xff"} }},
		// One rule of tokenize.Row.Check, whose own test has all.
		{"id outside the vocabulary", func(s *tokenize.Sample) { s.Rows[0].InputIDs[0] = sinktest.Vocab }},
		{"segments out of order", func(s *tokenize.Sample) { s.Rows[0].SegmentIndex = 1 }},
		{"segment missing", func(s *tokenize.Sample) { s.Rows[0].SegmentCount = 2 }},
		{"parent without a chain before it", func(s *tokenize.Sample) {
			s.Rows[0].Chain, s.Rows[0].ChainKind, s.Rows[0].Parent = 1, tokenize.ChainSubagent, tokenize.Parent{Chain: 1, Step: 1}
		}},
		{"two parents of a chain", func(s *tokenize.Sample) {
			inChains(1, tokenize.ChainSubagent, 1, tokenize.ChainSubagent)(s)
			s.Rows[1].Parent = tokenize.Parent{Step: 1}
		}},
		{"main chain of another kind", func(s *tokenize.Sample) { s.Rows[0].ChainKind = tokenize.ChainSubagent }},
		{"chains out of order", inChains(2, tokenize.ChainSubagent, 1, tokenize.ChainSubagent)},
		{"a chain of two kinds", inChains(1, tokenize.ChainSubagent, 1, tokenize.ChainAuxiliary)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, t.TempDir(), cfg)
			b := sinktest.NewBuilder(5)
			s := b.Sample(b.Row(3, 4))
			tt.edit(s)
			var refused *sink.SampleError
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // no sample is accepted, only refused
			if err := d.Append(ctx, s, nil); !errors.As(err, &refused) || !refused.Refused() {
				t.Errorf("Append() = %v, want a *SampleError about the sample", err)
			}
		})
	}
}

// inChains returns an edit that gives the sample two rows of these chains.
func inChains(first int32, kind tokenize.ChainKind, second int32, other tokenize.ChainKind) func(s *tokenize.Sample) {
	return func(s *tokenize.Sample) {
		s.Rows = []tokenize.Row{s.Rows[0], s.Rows[0]}
		for i := range s.Rows {
			s.Rows[i].SegmentIndex, s.Rows[i].SegmentCount = int32(i), 2
		}
		s.CompletionTokens *= 2
		s.Rows[0].Chain, s.Rows[0].ChainKind = first, kind
		s.Rows[1].Chain, s.Rows[1].ChainKind = second, other
	}
}

// failuresOf returns the failures that a dataset with the sample must return.
func failuresOf(s *tokenize.Sample) []sink.StoredFailure {
	failures := make([]sink.StoredFailure, len(s.Failures))
	for i := range s.Failures {
		f := &s.Failures[i]
		failures[i] = sink.StoredFailure{
			SampleKey: s.Key, TaskID: s.TaskID, GroupID: s.GroupID, RolloutID: s.RolloutID,
			SampleIndex: s.Index, GroupSize: s.GroupSize, Attempt: s.Attempt,
			Class: f.Class, Stage: f.Stage, Reason: f.Reason, Error: strings.ToValidUTF8(f.Error, "\uFFFD"), Call: f.Call,
			OutputIDs: f.OutputIDs, Logprobs: f.Logprobs, Text: strings.ToValidUTF8(f.Text, "\uFFFD"),
			Status: s.Status, StopReason: s.StopReason, Model: s.Model, AgentID: s.AgentID, RunIDs: s.RunIDs,
			PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, Steps: s.Steps,
			StartedAt: s.StartedAt.UnixMicro(), DurationMS: s.Duration.Milliseconds(), WorkingMS: s.Working.Milliseconds(),
			Messages: s.Messages, Metadata: s.Metadata,
		}
	}
	return failures
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// each yields the values of seq, and fails the test at its first error.
func each[T any](tb testing.TB, seq iter.Seq2[T, error]) iter.Seq[T] {
	tb.Helper()
	return func(yield func(T) bool) {
		for v, err := range seq {
			if must(tb, err); !yield(v) {
				return
			}
		}
	}
}

func open(tb testing.TB, dir string, cfg sink.Config) *sink.Dataset {
	tb.Helper()
	d, err := sink.Create(dir, cfg)
	must(tb, err)
	return d
}

func readLog(tb testing.TB, dir string) *sink.Log {
	tb.Helper()
	log, err := sink.ReadLog(dir)
	must(tb, err)
	return log
}

func readFile(tb testing.TB, name string) []byte {
	tb.Helper()
	body, err := os.ReadFile(name)
	must(tb, err)
	return body
}
