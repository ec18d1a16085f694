package handover

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

const (
	begin  = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAdd 2 and 3.<|im_end|>\n<|im_start|>assistant\n"
	call   = "I add.<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call><|im_end|>"
	result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	final  = "<think>\nHm.\n</think>\n\nIt is 5.<|im_end|>"
)

// A shaper builds samples whose rows have text.
type shaper struct {
	*sinktest.Builder
	tb  testing.TB
	tok *bpe.Tokenizer
}

// row returns a row whose spans have the given texts: a prompt, then alternating answers and results.
func (s *shaper) row(texts ...string) tokenize.Row {
	s.tb.Helper()
	var ids []int32
	lengths := make([]int, len(texts))
	for i, text := range texts {
		n := len(ids)
		var err error
		if ids, err = s.tok.AppendTokens(ids, text); err != nil {
			s.tb.Fatal(err)
		}
		lengths[i] = len(ids) - n
	}
	r := s.Row(lengths...)
	r.InputIDs = ids
	return r
}

// shapes returns the shapes of a run that every format must export.
func shapes(tb testing.TB) map[string][]*tokenize.Sample {
	tb.Helper()
	s := &shaper{sinktest.NewBuilder(3), tb, bpetest.Tokenizer(tb, "qwen3")}
	talk := func() tokenize.Row { return s.row(begin, call, result, final) }
	all := map[string][]*tokenize.Sample{}
	for range 4 {
		all["plain"] = append(all["plain"], s.Sample(talk()), s.Sample(s.row(begin, final)))
	}
	for i := range 4 {
		again := s.row(begin+call+result, final) // the prompt contains an answer of the row before
		again.Divergence = &tokenize.Divergence{Call: 1, Offset: 3, Kind: tokenize.DivergedInLast, Row: []int32{1}, Prompt: []int32{2}}
		other := talk()
		other.Chain, other.ChainKind = 1, tokenize.ChainSubagent
		rows := []tokenize.Row{talk(), again, other}
		if i == 2 { // a group has samples with one row, too
			rows = rows[:1]
		}
		sample := s.Sample(rows...)
		for k := range sample.Rows {
			sample.Rows[k].Versions = make([]int32, len(sample.Rows[k].InputIDs))
			for j, m := range sample.Rows[k].LossMask {
				sample.Rows[k].Versions[j] = int32(m)*int32(7+i+j%2) - 1 + int32(m)
			}
		}
		all["forks"] = append(all["forks"], sample)
	}
	for i := range 6 {
		sample := s.Sample(talk())
		switch {
		case i < 2:
			sample.Reward = nil
		case i == 2:
			sample = s.Failure(5)
		case i == 3:
			sample.Failures = []tokenize.Failure{{Class: "no_prompt", Stage: "prompt", Reason: tokenize.ReasonNoIDs.String(), Call: 1, OutputIDs: []int32{1}, Logprobs: []float32{-1}}}
		}
		all["failures and null rewards"] = append(all["failures and null rewards"], sample)
	}
	for i := range 4 {
		row := s.row(begin, call, result, strings.TrimSuffix(final, "5.<|im_end|>"))
		row.Truncated, row.Flags = true, []tokenize.Flags{tokenize.FlagCut, tokenize.FlagLength}[i%2]
		row.FinishReasons[len(row.FinishReasons)-1] = tokenize.FinishLength
		sample := s.Sample(row)
		at := row.PromptLength
		sample.Rows[0].LossMask[at], sample.Rows[0].Logprobs[at], sample.Rows[0].Unscored = 0, 0, 1 // a token without a log-probability
		sample.Status = "truncated"
		all["truncation"] = append(all["truncation"], sample)
	}
	return all
}

// storedOf writes the samples to a dataset and returns what Stored yields: each row alone. The order of the samples
// is random.
func storedOf(tb testing.TB, samples []*tokenize.Sample) (all []*sink.StoredSample) {
	tb.Helper()
	dir := tb.TempDir()
	sinktest.Write(tb, dir, sink.Config{}, samples)
	log, err := sink.ReadLog(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for s, err := range log.Stored(sink.KindData) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func decoderOf(tb testing.TB) *decode.Decoder {
	tb.Helper()
	return decode.New(bpetest.Tokenizer(tb, "qwen3"))
}

// exported returns what a format makes of the samples.
func exported(tb testing.TB, f Format, samples []*sink.StoredSample) (string, *Left) {
	tb.Helper()
	var out strings.Builder
	left, rewards := &Left{}, Rewards{}
	for _, s := range samples {
		for i := range s.Rows {
			rewards.Add(&s.Rows[i])
		}
	}
	w, err := NewWriter(f, &out, Options{Decoder: decoderOf(tb), Program: "1.2.3", Rewards: rewards}, left)
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, s := range samples {
		for i := range s.Rows {
			written, err := w.Write(&s.Rows[i])
			if err != nil {
				tb.Fatal(err)
			}
			if written {
				n++
			}
		}
	}
	if err := w.End(); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if f != Slime && strings.Count(out.String(), "\n") != n {
		tb.Errorf("%s: %d lines, but Write reported %d", f, strings.Count(out.String(), "\n"), n)
	}
	return out.String(), left
}
