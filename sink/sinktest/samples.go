// Package sinktest generates samples and writes datasets for tests and benchmarks.
package sinktest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// Vocab is the size of the vocabulary that the samples use.
const Vocab = 151_936

// A Builder generates rows and samples. Builders with the same seed generate the same samples.
type Builder struct {
	rng *rand.Rand
	ids *idText
	n   int
}

// NewBuilder returns a Builder with the given seed.
func NewBuilder(seed uint64) *Builder {
	rng := rand.New(rand.NewPCG(seed, 0))
	return &Builder{rng: rng, ids: newIDText(rng)}
}

// Row returns a row with spans of the given lengths: a prompt span, then alternating assistant and
// tool spans.
func (b *Builder) Row(spans ...int) tokenize.Row {
	total := 0
	for _, n := range spans {
		total += n
	}
	r := tokenize.Row{
		InputIDs:    b.ids.append(make([]int32, 0, total), total),
		LossMask:    make([]int8, total),
		Logprobs:    make([]float32, total),
		TurnOffsets: []int32{0},
		TurnRoles:   []int8{},
		Grade:       tokenize.CountVerified,
		Source:      tokenize.SourceStored,
	}
	at := 0
	for i, n := range spans {
		role := tokenize.RoleTool
		switch {
		case i == 0:
			role = tokenize.RolePrompt
			r.PromptLength = int32(n)
		case i%2 == 1:
			role = tokenize.RoleAssistant
			for k := at; k < at+n; k++ {
				r.LossMask[k] = 1
				r.Logprobs[k] = b.logprob()
			}
			r.LastCall++
			r.FinishReasons = append(r.FinishReasons, []string{"stop", "length", ""}[i%3])
			r.StepIDs = append(r.StepIDs, fmt.Sprintf("step-%08x", b.rng.Uint32()))
		}
		at += n
		r.TurnOffsets = append(r.TurnOffsets, int32(at))
		r.TurnRoles = append(r.TurnRoles, int8(role))
	}
	return r
}

// logprob returns a random log-probability. Most values are near 0, as they are with a trained
// model.
func (b *Builder) logprob() float32 {
	return -float32(math.Pow(b.rng.Float64(), 8)) * 12
}

// Sample returns a sample with the given rows, plausible values in its other fields, and a unique
// key.
func (b *Builder) Sample(rows ...tokenize.Row) *tokenize.Sample {
	b.n++
	task := fmt.Sprintf("task-%d", b.n/4)
	reward := float64(b.n % 3)
	s := &tokenize.Sample{
		Key:    fmt.Sprintf("%016x%016x-%d", b.rng.Uint64(), b.rng.Uint64(), b.n%4),
		TaskID: task, GroupID: task, Index: int32(b.n % 4), GroupSize: 4, Attempt: 1,
		Rows: rows, Reward: &reward, Status: "completed", StopReason: "end_turn",
		Model: "sglang/test", AgentID: fmt.Sprintf("agent-%d", b.n), RunIDs: []string{fmt.Sprintf("run-%d", b.n)},
		StartedAt: time.UnixMicro(1_790_000_000_123_456 + int64(b.n)),
		Duration:  1500 * time.Millisecond, Working: 1200 * time.Millisecond,
	}
	s.RolloutID = fmt.Sprintf("%s/%d", s.Key, s.Attempt)
	for i := range rows {
		r := &rows[i]
		r.SegmentIndex, r.SegmentCount = int32(i), int32(len(rows))
		for _, m := range r.LossMask {
			s.CompletionTokens += int64(m)
		}
		s.PromptTokens += int64(r.PromptLength)
		s.Steps += r.LastCall
	}
	return s
}

// Inside gives a row random values from inside its calls: weight versions, routed experts of the given
// shape, and sampling masks. As in real rows, the last token has no experts.
func (b *Builder) Inside(r *tokenize.Row, shape tokenize.ExpertShape) {
	r.Experts = tokenize.Experts{Shape: shape, IDs: []byte{}}
	r.SamplingMask, r.MaskLengths = []int32{}, make([]int32, len(r.InputIDs))
	for i := range r.InputIDs {
		for range shape.Layers * shape.TopK {
			id := b.rng.Int64N(int64(shape.Experts))
			if i == len(r.InputIDs)-1 {
				id = -1
			}
			r.Experts.Append(id)
		}
	}
	for k, role := range r.TurnRoles {
		name := ""
		for i := r.TurnOffsets[k]; i < r.TurnOffsets[k+1] && tokenize.Role(role) == tokenize.RoleAssistant; i++ {
			name = fmt.Sprintf("step-%d", k)
			r.MaskLengths[i] = 1 + b.rng.Int32N(4)
			for n := range r.MaskLengths[i] {
				r.SamplingMask = append(r.SamplingMask, (r.InputIDs[i]+n)%Vocab)
			}
		}
		r.WeightVersions, r.WeightVersionEnds = append(r.WeightVersions, name), append(r.WeightVersionEnds, r.TurnOffsets[k+1])
	}
}

// Failure returns a sample that failed as a whole. Its failure has the given number of sampled
// tokens.
func (b *Builder) Failure(tokens int) *tokenize.Sample {
	s := b.Sample()
	s.Status, s.StopReason, s.Reward = "error", "error", nil
	f := tokenize.Failure{
		Class: "model_output", Stage: "decode", Reason: "length_mismatch", Error: "/turns/3: 5 ids, 4 logprobs", Call: -1,
		OutputIDs: b.ids.append(nil, tokens), Text: "half an ans\xffwer", // not UTF-8
	}
	for range tokens {
		f.Logprobs = append(f.Logprobs, float32(math.NaN()))
	}
	s.Failures = []tokenize.Failure{f}
	return s
}

// Edge returns samples with edge cases that have broken or could break a writer or a reader. Some
// rows are longer than a write batch of 1,024 values, and one row has more than 100 spans. Some
// lists are one element shorter than such a limit, as long as it, or one element longer. Versions
// are either missing or set for all tokens. Rewards, strings and failures cover all kinds of
// values, and some times are extreme. The samples from two calls do not share memory.
func Edge() []*tokenize.Sample {
	b := NewBuilder(7)
	var all []*tokenize.Sample
	add := func(s *tokenize.Sample, edit func(s *tokenize.Sample)) {
		if edit != nil {
			edit(s)
		}
		all = append(all, s)
	}

	for _, n := range []int{1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 65_536, 100_000} {
		add(b.Sample(b.Row(0, n)), nil)       // no prompt
		add(b.Sample(b.Row(17, n)), nil)      // no tool
		add(b.Sample(b.Row(n, 3, n, 1)), nil) // one tool
	}
	spans := make([]int, 201) // 100 calls
	for i := range spans {
		spans[i] = 1 + i%37
	}
	add(b.Sample(b.Row(spans...)), nil)
	add(b.Sample(b.Row(300_000, 10)), nil)
	add(b.Sample(b.Row(5, 3), b.Row(50, 20, 7, 3), b.Row(9, 1)), func(s *tokenize.Sample) {
		s.Rows[1].Divergence = &tokenize.Divergence{Call: 1, Offset: 5, Kind: tokenize.DivergedInLast, Row: []int32{1, 2}, Prompt: []int32{3}}
		s.Rows[2].Divergence = &tokenize.Divergence{Call: 3, Kind: tokenize.DivergedProperPrefix, Row: []int32{9}}
		r := &s.Rows[1]
		for i := 51; i < 54; i++ { // sampled tokens for which the server sent no log-probability
			r.LossMask[i], r.Logprobs[i] = 0, 0
			r.Unscored++
		}
		r.Trimmed, r.Flags = 4, tokenize.FlagRealigned|tokenize.FlagClientToolContext
		r.Realigned = []tokenize.Divergence{{Call: 2, Offset: 70, Kind: tokenize.DivergedInLast, Row: []int32{r.InputIDs[70] ^ 1}, Prompt: r.InputIDs[70:77]}}
		s.CompletionTokens += int64(r.Trimmed)
		s.Rows[2].Truncated = true
	})
	add(b.Sample(b.Row(6, 4, 3, 2, 1, 5)), func(s *tokenize.Sample) { // realigned twice, but not a fork
		r := &s.Rows[0]
		r.Trimmed, r.Flags = 2, tokenize.FlagRealigned
		s.CompletionTokens += int64(r.Trimmed)
		for i, at := range []int32{10, 15} {
			r.Realigned = append(r.Realigned, tokenize.Divergence{
				Call: int32(i) + 1, Offset: at, Kind: tokenize.DivergedInLast, Row: []int32{r.InputIDs[at] ^ 1}, Prompt: r.InputIDs[at : at+1],
			})
		}
	})

	add(b.Sample(b.Row(4, 2), b.Row(3, 2), b.Row(5, 1), b.Row(2, 2)), func(s *tokenize.Sample) { // several chains
		for i := range s.Rows[1:] {
			r := &s.Rows[i+1]
			r.Chain, r.ChainKind = int32(1+i/2*1_000_000), tokenize.ChainKind(1+i/2)
			if r.ChainKind == tokenize.ChainSubagent {
				r.Parent = tokenize.Parent{Chain: 0, Step: math.MaxInt32}
			}
		}
		for i, reason := range []tokenize.Reason{tokenize.ReasonAuxiliary, tokenize.ReasonSuperseded, tokenize.ReasonCutAnswer, tokenize.ReasonNoIDs} {
			s.Failures = append(s.Failures, tokenize.Failure{
				Class: "no_prompt", Stage: "prompt", Reason: reason.String(), Call: int32(i), OutputIDs: b.ids.append(nil, 3+i),
				Logprobs: make([]float32, 3+i),
			})
		}
	})

	for i, reward := range []*float64{
		nil, new(0.0), new(1.0), new(math.Copysign(0, -1)), new(-1e300), new(math.MaxFloat64), new(-math.MaxFloat64), new(math.Nextafter(1, 2)), new(5e-324), nil, nil, new(0.0), new(0.0), nil,
	} {
		add(b.Sample(b.Row(3, 4)), func(s *tokenize.Sample) {
			s.Reward = reward
			r := &s.Rows[0]
			// Versions are nil in every second row. (Every row has tokens, so only the encoders'
			// own tests cover an empty list of versions.)
			if i%2 == 1 {
				r.Versions = []int32{-1, -1, -1, 0, 1, math.MaxInt32, int32(i)}
			}
			if i%4 == 3 { // the version of a sampled token is unknown
				r.Versions[3+i/4] = -1
			}
			r.Logprobs[3], r.Logprobs[4] = float32(math.Copysign(0, -1)), -math.SmallestNonzeroFloat32
			r.Logprobs[5], r.Logprobs[6] = -1000, 1e-6
			r.InputIDs[0], r.InputIDs[1] = 0, Vocab-1
			r.Source = tokenize.PromptSource(1 + i%5)
			r.Grade = max(tokenize.Grade(i%3), []tokenize.Grade{
				tokenize.SourceStored:  tokenize.CountVerified,
				tokenize.SourceTrace:   tokenize.CountVerified,
				tokenize.SourceLiteral: tokenize.Unverified,
			}[r.Source])
			r.Flags = tokenize.Flags(i) &^ tokenize.FlagRealigned // FlagRealigned requires Trimmed
			r.Truncated = r.Flags&tokenize.FlagCut != 0
			if i%3 == 0 {
				s.Sampling.Temperature, s.Sampling.TopK = new(float32(0)), new(int32(0))
			}
			if i%4 == 0 {
				s.Sampling.TopP, s.Sampling.MaxNewTokens = new(float32(0.95)), new(int32(4096))
			}
			s.Status = []string{"completed", "truncated", "max_steps"}[i%3]
		})
	}

	for i, text := range []string{"", "\x00", "a\x00b", "ünï©ode 🦙 漢字 \u202e", strings.Repeat("long ", 5000), "\"quoted\"\n\t\\", "\u2028", " "} {
		add(b.Sample(b.Row(2, 2)), func(s *tokenize.Sample) {
			s.TaskID, s.GroupID, s.Model, s.AgentID, s.StopReason = text, text, text, text, text
			s.RunIDs = []string{text, "", text}
			s.Rows[0].StepIDs = []string{text}
			s.Rows[0].FinishReasons = []string{text}
			if i%2 == 0 {
				s.Messages, s.Metadata, s.RewardDetails = new(quote(text)), new(quote(text)), new("{}")
			} else {
				s.RunIDs = nil
			}
		})
	}
	for i, at := range []int64{0, -1, 1, 253_402_300_799_999_999, -62_135_596_800_000_000} {
		add(b.Sample(b.Row(1, 1)), func(s *tokenize.Sample) {
			s.StartedAt = time.UnixMicro(at)
			s.Duration, s.Working = time.Duration(i)*time.Hour, time.Duration(i)*time.Second
			s.PromptTokens, s.CompletionTokens = math.MaxInt64, math.MaxInt64
		})
	}

	add(b.Failure(0), func(s *tokenize.Sample) { s.Failures[0].Text = "" })
	add(b.Failure(2000), nil)
	add(b.Failure(3), func(s *tokenize.Sample) { // rows and a failed call
		s.Status, s.StopReason = "completed", "end_turn"
		s.Failures[0].Call = 2
		s.Failures[0].Logprobs = []float32{-1, float32(math.NaN()), float32(math.Inf(-1)), -2}
		s.Rows = []tokenize.Row{b.Row(4, 5)}
		s.Rows[0].SegmentCount = 1
		s.CompletionTokens = 8
	})
	add(b.Sample(), nil) // neither rows nor failures
	add(b.Sample(b.Row(1, 1)), nil)
	return all
}

// quote returns a JSON object that contains text.
func quote(text string) string {
	body, err := json.Marshal(map[string]string{"content": text})
	if err != nil {
		panic(err) // cannot happen for a map of strings
	}
	return string(body)
}

// An idText generates token ids that compress like text. It draws phrases from a list of a few
// thousand, and prefers phrases and words with a low number. Independently drawn ids would
// compress half as well. Consecutive ids would compress ten times as well.
type idText struct {
	rng     *rand.Rand
	words   *rand.Zipf
	phrases [][]int32
	pick    *rand.Zipf
	rest    []int32
}

func newIDText(rng *rand.Rand) *idText {
	t := &idText{rng: rng, words: rand.NewZipf(rng, 1.15, 8, Vocab-1)}
	t.phrases = make([][]int32, 6000)
	for i := range t.phrases {
		t.phrases[i] = make([]int32, 2+rng.IntN(9))
		for k := range t.phrases[i] {
			t.phrases[i][k] = int32(t.words.Uint64())
		}
	}
	t.pick = rand.NewZipf(rng, 1.05, 12, uint64(len(t.phrases)-1))
	return t
}

func (t *idText) append(dst []int32, n int) []int32 {
	for n > 0 {
		if len(t.rest) == 0 {
			if t.rng.IntN(4) == 0 { // a single random word
				dst = append(dst, int32(t.words.Uint64()))
				n--
				continue
			}
			t.rest = t.phrases[t.pick.Uint64()]
		}
		k := min(n, len(t.rest))
		dst = append(dst, t.rest[:k]...)
		t.rest = t.rest[k:]
		n -= k
	}
	return dst
}

// Rows returns the rows that a reader must return for the sample.
func Rows(s *tokenize.Sample) []sink.StoredRow {
	rows := make([]sink.StoredRow, len(s.Rows))
	for i := range s.Rows {
		r := &s.Rows[i]
		rows[i] = sink.StoredRow{
			SampleKey: s.Key, TaskID: s.TaskID, GroupID: s.GroupID, RolloutID: s.RolloutID,
			SampleIndex: s.Index, GroupSize: s.GroupSize, Attempt: s.Attempt,
			SegmentIndex: r.SegmentIndex, SegmentCount: r.SegmentCount,
			Chain: r.Chain, ChainKind: r.ChainKind.String(),
			InputIDs: r.InputIDs, LossMask: r.LossMask, Logprobs: r.Logprobs, Versions: r.Versions,
			WeightVersions: r.WeightVersions, WeightVersionEnds: r.WeightVersionEnds, RoutedExperts: r.Experts.IDs,
			SamplingMask: r.SamplingMask, SamplingMaskLengths: r.MaskLengths,
			TurnOffsets: r.TurnOffsets, TurnRoles: r.TurnRoles, PromptLength: r.PromptLength,
			Reward: s.Reward, RewardDetails: s.RewardDetails, Status: s.Status, StopReason: s.StopReason,
			FinishReasons: r.FinishReasons, Truncated: r.Truncated,
			Verification: r.Grade.String(), PromptSource: r.Source.String(), Flags: r.Flags.AppendNames(nil),
			Unscored: r.Unscored, Trimmed: r.Trimmed,
			Temperature: s.Sampling.Temperature, TopP: s.Sampling.TopP, TopK: s.Sampling.TopK, MaxNewTokens: s.Sampling.MaxNewTokens,
			Model: s.Model, AgentID: s.AgentID, RunIDs: s.RunIDs, StepIDs: r.StepIDs,
			PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, Steps: s.Steps,
			StartedAt: s.StartedAt.UnixMicro(), DurationMS: s.Duration.Milliseconds(), WorkingMS: s.Working.Milliseconds(),
			Messages: s.Messages, Metadata: s.Metadata,
		}
		if p := r.Parent; p.Step > 0 {
			rows[i].ParentChain, rows[i].ParentStep = &p.Chain, &p.Step
		}
		rows[i].PolicyVersionMin, rows[i].PolicyVersionMax = policyVersions(r)
		if text := r.AppendDivergence(nil); len(text) > 0 {
			rows[i].Divergence = new(string(text))
		}
	}
	return rows
}

// policyVersions returns the lowest and highest version of any sampled token. Both results are
// nil if any of these versions is unknown.
func policyVersions(r *tokenize.Row) (least, greatest *int32) {
	var known []int32
	for k, role := range r.TurnRoles {
		if r.Versions != nil && tokenize.Role(role) == tokenize.RoleAssistant {
			known = append(known, r.Versions[r.TurnOffsets[k]:r.TurnOffsets[k+1]]...)
		}
	}
	if len(known) == 0 || slices.Contains(known, -1) {
		return nil, nil
	}
	return new(slices.Min(known)), new(slices.Max(known))
}
