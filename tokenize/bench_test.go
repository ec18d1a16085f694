package tokenize_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// A pipeline is the state of one worker. All of it is reused.
type pipeline struct {
	decoder *tokenize.Decoder
	aligner *tokenize.Aligner
	literal tokenize.Literal
	reply   tokenize.Reply
	calls   []tokenize.Call
	reader  bytes.Reader
}

func newPipeline() *pipeline {
	return &pipeline{
		decoder: tokenize.NewDecoder(tokenize.DecoderConfig{}),
		aligner: tokenize.NewAligner(tokenize.AlignConfig{VocabSize: 151_936}),
		literal: tokenize.Literal{Encoder: fixedEncoder{}},
	}
}

// fixedEncoder encodes every text as the same ids, so that no benchmark here measures a tokenizer.
type fixedEncoder struct{}

func (fixedEncoder) AppendTokens(dst []int32, _ string) ([]int32, error) {
	return append(dst, contextIDs[:]...), nil
}

var contextIDs [tokenizetest.ContextTokens]int32

// bytes decodes and aligns one reply in memory and returns the number of its sampled tokens.
func (p *pipeline) bytes(b []byte) (int, error) {
	if err := p.decoder.DecodeBytes(b, &p.reply); err != nil {
		return 0, err
	}
	return p.align()
}

// stream is bytes with a reader.
func (p *pipeline) stream(b []byte) (int, error) {
	p.reader.Reset(b)
	if err := p.decoder.Decode(&p.reader, &p.reply); err != nil {
		return 0, err
	}
	return p.align()
}

func (p *pipeline) align() (int, error) {
	var err error
	if p.calls, err = tokenize.CallsFromTurns(p.calls[:0], p.reply.Turns); err != nil {
		return 0, err
	}
	if p.calls[0].Grade == tokenize.Quarantined { // no input_ids in this corpus
		if p.calls, err = p.literal.Calls(p.calls[:0], p.reply.Turns); err != nil {
			return 0, err
		}
	}
	_, sum, err := p.aligner.Align(p.calls)
	return sum.Sampled, err
}

// anyTurns is the baseline: the obvious decoder with encoding/json.
func anyTurns(b []byte) (int, error) {
	var reply struct {
		Turns []struct {
			Role     string  `json:"role"`
			IDs      []int32 `json:"output_ids"`
			Logprobs [][]any `json:"output_token_logprobs"`
			Content  *string `json:"content"`
		} `json:"turns"`
	}
	if err := json.Unmarshal(b, &reply); err != nil {
		return 0, err
	}
	n := 0
	for _, t := range reply.Turns {
		for range t.Logprobs {
			n++
		}
	}
	return n, nil
}

// The gates, TestGate…, measure time and memory, so they do not run in parallel with other tests.

// corpusBytes returns the size of a corpus. With -short the benchmarks only have to run.
func corpusBytes() int {
	if testing.Short() {
		return 1 << 20
	}
	return 48 << 20
}

var corpora = []struct {
	name string
	o    tokenizetest.Options
}{
	{"turns", tokenizetest.Options{}},
	{"recorded", tokenizetest.Options{Logprobs: true}},
	{"text", tokenizetest.Options{Logprobs: true, Text: true}},
	{"input_ids", tokenizetest.Options{Logprobs: true, InputIDs: true}},
	{"strings", tokenizetest.Options{TokenStrings: true}},
	{"spaces", tokenizetest.Options{Spaces: true}},
}

func BenchmarkDecodeAlign(b *testing.B) {
	for _, c := range corpora {
		var bodies [][]byte
		for _, mode := range []string{"bytes", "stream", "decode"} {
			b.Run(fmt.Sprintf("reply=%s/mode=%s", c.name, mode), func(b *testing.B) {
				if bodies == nil {
					bodies = tokenizetest.Corpus(1, corpusBytes(), c.o)
				}
				p := newPipeline()
				run := p.bytes
				switch mode {
				case "stream":
					run = p.stream
				case "decode":
					run = func(body []byte) (int, error) {
						err := p.decoder.DecodeBytes(body, &p.reply)
						n := 0
						for i := range p.reply.Turns {
							n += len(p.reply.Turns[i].OutputIDs)
						}
						return n, err
					}
				}
				benchmarkBodies(b, bodies, run)
			})
		}
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	for _, c := range corpora[:2] {
		b.Run("reply="+c.name, func(b *testing.B) {
			benchmarkBodies(b, tokenizetest.Corpus(1, corpusBytes(), c.o), anyTurns)
		})
	}
}

// benchmarkBodies runs over all bodies per iteration, after one pass that grows the arenas.
func benchmarkBodies(b *testing.B, bodies [][]byte, run func([]byte) (int, error)) {
	b.Helper()
	size, tokens := 0, 0
	for _, body := range bodies {
		n, err := run(body)
		if err != nil {
			b.Fatal(err)
		}
		size += len(body)
		tokens += n
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, body := range bodies {
			if _, err := run(body); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
}

// TestGateDecodeAllocs checks that a warm Decoder and Reply decode without allocating.
func TestGateDecodeAllocs(t *testing.T) {
	if !tokenize.TextViews {
		t.Skip("purego: texts are copied, one allocation each")
	}
	for _, c := range corpora {
		o := c.o
		o.Tokens, o.Turns = 3000, 7
		body := tokenizetest.Reply(1, o)
		p := newPipeline()
		for _, run := range []struct {
			name string
			f    func() error
		}{
			{"bytes", func() error { return p.decoder.DecodeBytes(body, &p.reply) }},
			{"stream", func() error { p.reader.Reset(body); return p.decoder.Decode(&p.reader, &p.reply) }},
		} {
			if n := testing.AllocsPerRun(20, func() {
				if err := run.f(); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s %s: %v allocations per reply, want 0", c.name, run.name, n)
			}
		}
	}
}

// TestGateAlignAllocs checks that a warm pipeline allocates as often for ten times as many tokens, forks
// included: it allocates only rows, and each list of a row once.
func TestGateAlignAllocs(t *testing.T) {
	for _, inputIDs := range []bool{false, true} {
		var allocs [2]float64
		for i, tokens := range []int{3000, 30_000} {
			body := tokenizetest.Reply(1, tokenizetest.Options{Tokens: tokens, Turns: 7, InputIDs: inputIDs})
			p := newPipeline()
			if err := p.decoder.DecodeBytes(body, &p.reply); err != nil {
				t.Fatal(err)
			}
			if inputIDs {
				p.reply.Turns[4].PromptIDs[20]++ // forks here and again at the next prompt
			}
			allocs[i] = testing.AllocsPerRun(20, func() {
				if _, err := p.align(); err != nil {
					t.Fatal(err)
				}
			})
		}
		if allocs[0] != allocs[1] || allocs[0] > 100 {
			t.Errorf("input_ids=%v: %v allocations per sample of 3,000 tokens, %v of 30,000", inputIDs, allocs[0], allocs[1])
		}
	}
	var allocs [2]float64
	for i, more := range []int{3000, 30_000} {
		a := tokenize.NewAligner(tokenize.AlignConfig{Drift: tokenize.DriftRealign, RealignMax: 2})
		calls := realignedCalls()
		for k := range calls {
			calls[k].PromptIDs = append(make([]int32, more), calls[k].PromptIDs...)
		}
		allocs[i] = testing.AllocsPerRun(20, func() {
			if _, sum, err := a.Align(calls); err != nil || sum.Realigned != 2 {
				t.Fatal(sum.Realigned, err)
			}
		})
	}
	if allocs[0] != allocs[1] || allocs[0] > 100 {
		t.Errorf("realigned: %v allocations per sample of 3,000 tokens, %v of 30,000", allocs[0], allocs[1])
	}
}

// The minimum ratios of the decoder's speed to the speed of encoding/json. Both are measured in
// turn, in the same process and on the same bodies. Quiet machines reach 20 and more.
const (
	wantBytesRatio  = 15
	wantStreamRatio = 13
)

// TestGateDecodeRatio checks that decoding and aligning is many times faster than encoding/json.
func TestGateDecodeRatio(t *testing.T) {
	if raceEnabled {
		t.Skip("race detector: it slows hand-written loops more than reflection")
	}
	if testing.Short() {
		t.Skip("-short: takes some seconds")
	}
	if bits.UintSize < 64 {
		t.Skip("32-bit machine: eight digits at a time need 64-bit words")
	}
	bodies := tokenizetest.Corpus(1, 6<<20, tokenizetest.Options{})
	p := newPipeline()
	best := func(run func([]byte) (int, error), so time.Duration) time.Duration {
		start := time.Now()
		for _, b := range bodies {
			if _, err := run(b); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); so == 0 || d < so {
			return d
		}
		return so
	}
	var whole, stream, plain time.Duration
	const rounds = 7
	for range rounds {
		plain = best(anyTurns, plain)
		for range 3 { // these rounds are short, so noise affects them most
			whole = best(p.bytes, whole)
			stream = best(p.stream, stream)
		}
	}
	ratio, streamRatio := plain.Seconds()/whole.Seconds(), plain.Seconds()/stream.Seconds()
	t.Logf("encoding/json %v, in memory %v (%.1fx), streaming %v (%.1fx)", plain, whole, ratio, stream, streamRatio)
	if ratio < wantBytesRatio {
		t.Errorf("in memory %.1f times as fast as encoding/json, want %d", ratio, wantBytesRatio)
	}
	if streamRatio < wantStreamRatio {
		t.Errorf("streaming %.1f times as fast as encoding/json, want %d", streamRatio, wantStreamRatio)
	}
}

// TestGateSlowFloats checks that the fast conversion matches the server's number format. If it did
// not, the decoder would still be correct, at half the speed.
func TestGateSlowFloats(t *testing.T) {
	bodies := tokenizetest.Corpus(2, 4<<20, tokenizetest.Options{})
	for _, rec := range recordings(t) {
		for _, x := range rec.Exchanges {
			if len(x.Response.Body) > 0 && x.Response.Body[0] == '{' {
				bodies = append(bodies, x.Response.Body)
			}
		}
	}
	d := tokenize.NewDecoder(tokenize.DecoderConfig{})
	var r tokenize.Reply
	slow, tokens := 0, 0
	for _, b := range bodies {
		if err := d.DecodeBytes(b, &r); err != nil {
			t.Fatal(err)
		}
		slow += d.SlowFloats()
		for i := range r.Turns {
			tokens += len(r.Turns[i].Logprobs)
		}
	}
	if slow*1000 > tokens || tokens == 0 {
		t.Errorf("%d of %d log-probabilities went to strconv, want at most 0.1 %%", slow, tokens)
	}
}
