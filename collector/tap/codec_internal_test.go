package tap

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// sameCall reports whether two calls are equal, including the bits of their log-probabilities.
func sameCall(a, b *Call) bool {
	x, y := *a, *b
	if len(x.Logprobs) != len(y.Logprobs) || (x.Logprobs == nil) != (y.Logprobs == nil) {
		return false
	}
	for i := range x.Logprobs {
		if math.Float32bits(x.Logprobs[i]) != math.Float32bits(y.Logprobs[i]) {
			return false
		}
	}
	if !x.Began.Equal(y.Began) || !x.Ended.Equal(y.Ended) {
		return false
	}
	for _, c := range []*Call{&x, &y} {
		c.Logprobs, c.Began, c.Ended = nil, time.Time{}, time.Time{}
		for _, v := range []**float64{&c.Sampling.Temperature, &c.Sampling.TopP, &c.Sampling.MinP} {
			if *v != nil && math.IsNaN(**v) {
				*v = new(float64(math.Float64bits(**v)))
			}
		}
	}
	return reflect.DeepEqual(x, y)
}

// randomIDs returns ids distributed as in text: most are small.
func randomIDs(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(math.Exp(r.Float64() * math.Log(151_000)))
	}
	return ids
}

func randomLogprobs(r *rand.Rand, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = -float32(r.ExpFloat64())
	}
	return list
}

// strange returns a call with unusual values in all fields. Some are nil or empty.
func strange(r *rand.Rand) *Call {
	ids := func() []int32 {
		switch r.IntN(4) {
		case 0:
			return nil
		case 1:
			return []int32{}
		}
		list := randomIDs(r, r.IntN(200))
		for i := range list {
			if r.IntN(20) == 0 {
				list[i] = int32(r.Uint32())
			}
		}
		return list
	}
	text := func() string { return []string{"", "http://engine:30000", "sglang", "\xff\x00", "stop"}[r.IntN(5)] }
	at := func() time.Time {
		if r.IntN(4) == 0 {
			return time.Time{}
		}
		return time.Unix(r.Int64N(1<<40)-1<<39, r.Int64N(1e9)).UTC()
	}
	float := func() *float64 {
		return []*float64{nil, new(0.7), new(math.Copysign(0, -1)), new(math.Inf(1)), new(math.NaN())}[r.IntN(5)]
	}
	number := func() *int64 {
		return []*int64{nil, new(int64(-1)), new(int64(0)), new(int64(math.MinInt64))}[r.IntN(4)]
	}
	spans := func() []tokenize.VersionSpan {
		return [][]tokenize.VersionSpan{nil, {}, {{Version: "7", End: 4}, {Version: text(), Start: 4, End: 9}}, {{Start: -1, End: math.MaxInt32}}}[r.IntN(4)]
	}
	c := &Call{
		Began: at(), Ended: at(), Engine: text(), Dialect: text(), Status: r.IntN(600), Cut: r.IntN(2) == 0,
		Prompt: ids(), Asked: ids(), Output: ids(), Finish: text(), Matched: int32(r.Uint32()), Version: text(), Versions: spans(),
		PromptTokens: int32(r.Uint32()), OutputTokens: -1, Cached: int32(r.IntN(3)) - 1,
		Sampling: Sampling{
			Temperature: float(), TopP: float(), MinP: float(), TopK: number(), MaxNewTokens: number(), Seed: number(),
			Stop: [][]string{nil, {}, {""}, {"a", "\n\n"}}[r.IntN(4)], StopIDs: ids(),
		},
	}
	if r.IntN(3) == 0 && len(c.Prompt) > 0 { // as continuity replaces it
		c.Asked = append(append([]int32{}, c.Prompt[:r.IntN(len(c.Prompt))]...), c.Prompt[r.IntN(len(c.Prompt)):]...)
	}
	if r.IntN(3) == 0 {
		c.Experts = tokenize.Experts{Shape: tokenize.ExpertShape{Layers: r.IntN(9), TopK: 2, Experts: 256}, IDs: [][]byte{{}, {1, 255}, []byte(text() + "x")}[r.IntN(3)]}
		c.SamplingMask, c.MaskLengths = ids(), ids()
	}
	if c.Output != nil {
		c.Logprobs = randomLogprobs(r, len(c.Output))
		for i := range c.Logprobs {
			if r.IntN(10) == 0 {
				c.Logprobs[i] = math.Float32frombits(0x7fc00000 | r.Uint32())
			}
		}
	}
	return c
}

// chain returns the calls of a rollout: each prompt is the previous one, its output and a tool
// result. With drift, some outputs are rendered differently.
func chain(r *rand.Rand, system []int32, n, output, tool int, drift bool) []*Call {
	var calls []*Call
	prompt := append(append([]int32{}, system...), randomIDs(r, 60)...)
	for i := range n {
		c := &Call{
			Began: time.Unix(1_800_000_000+int64(i), 5), Ended: time.Unix(1_800_000_003+int64(i), 777_000_001),
			Engine: "http://127.0.0.1:30000", Dialect: "sglang", Status: 200, Prompt: append([]int32{}, prompt...),
			Output: randomIDs(r, output), Logprobs: randomLogprobs(r, output), Finish: "stop", Matched: 151645, Version: "default",
			PromptTokens: int32(len(prompt)), OutputTokens: int32(output), Cached: 64,
			Sampling: Sampling{Temperature: new(1.0), TopP: new(1.0), MaxNewTokens: new(int64(4096))},
		}
		calls = append(calls, c)
		said := c.Output
		if drift && r.IntN(2) == 0 {
			said = said[r.IntN(len(said)):]
		}
		prompt = append(append(prompt, said...), randomIDs(r, tool)...)
	}
	return calls
}

func entryOf(c *Call) *entry {
	e := newEntry(c)
	e.added = time.Unix(1_800_000_000, 9).UTC()
	return e
}

// TestCodecRoundTrip proves that every call decodes to its original, also in interleaved chains. A
// payload depends on earlier ones only through the call it refers to.
func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 1))
	var calls []*Call
	for range 500 {
		calls = append(calls, strange(r))
	}
	system := randomIDs(r, 700)
	for range 20 {
		calls = append(calls, chain(r, system, 8, 90, 70, true)...)
	}
	r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	var enc encoder
	var dec decoder
	for i, c := range calls {
		e := newEntry(c)
		e.added = time.Unix(1_800_000_000, int64(i)).UTC()
		payload := enc.append(nil, e, 3)
		if int64(len(payload)) > PayloadBound(c) {
			t.Fatalf("call %d: %d bytes, bound is %d", i, len(payload), PayloadBound(c))
		}
		got, added, err := dec.decode(payload)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if !sameCall(c, got) || !added.Equal(e.added) {
			t.Fatalf("call %d: got %+v\nwant %+v", i, got, c)
		}
		if c.Prompt != nil && len(got.Prompt) > 0 {
			got.Prompt[0]++ // the caller owns it
		}
	}
	if dec.lost != 0 || len(dec.known.byNumber) != len(enc.known.byNumber) || dec.known.tokens != enc.known.tokens {
		t.Errorf("lost %d; the decoder knows %d calls, the encoder %d", dec.lost, len(dec.known.byNumber), len(enc.known.byNumber))
	}
}

// interleaved returns parallel chains that share their system prompt, mixed.
func interleaved(r *rand.Rand, chains, length int) []*Call {
	var left [][]*Call
	system := randomIDs(r, 300)
	for range chains {
		left = append(left, chain(r, system, length, 40, 30, true))
	}
	var calls []*Call
	for len(left) > 0 {
		i := r.IntN(len(left))
		calls = append(calls, left[i][0])
		if left[i] = left[i][1:]; len(left[i]) == 0 {
			left = append(left[:i], left[i+1:]...)
		}
	}
	return calls
}

// TestCodecLosses proves that missing payloads cause errors but no wrong calls. A missing payload
// takes few others with it.
func TestCodecLosses(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 2))
	const length = 6
	for _, every := range []int{8, 1000} {
		for range 20 {
			var enc encoder
			var dec decoder
			missing, decoded, orphans := 0, 0, 0
			calls := interleaved(r, 40, length)
			for i, c := range calls {
				payload := enc.append(nil, entryOf(c), 0)
				if i%every == 0 {
					missing++
					continue
				}
				got, _, err := dec.decode(payload)
				switch {
				case err != nil:
					orphans++
				case !sameCall(c, got):
					t.Fatalf("call %d is another one", i)
				default:
					decoded++
				}
			}
			if int(dec.lost) != missing || orphans > missing*(maxUses+1)*length || every == 1000 && decoded < len(calls)/2 {
				t.Errorf("lost %d, want %d; %d decoded, %d orphans", dec.lost, missing, decoded, orphans)
			}
		}
	}
}

// TestWindowBound proves that neither side keeps more than the window, for any number of chains.
func TestWindowBound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute under the race detector")
	}
	var enc encoder
	var dec decoder
	const long = 400_000
	for n := range 25 {
		c := &Call{Prompt: make([]int32, long)}
		for k := range c.Prompt {
			c.Prompt[k] = int32(n*long + k)
		}
		payload := enc.append(nil, entryOf(c), 0)
		if got, _, err := dec.decode(payload); err != nil || !slices.Equal(c.Prompt, got.Prompt) {
			t.Fatal(err)
		}
		if enc.known.tokens > windowTokens || dec.known.tokens > windowTokens+long {
			t.Fatalf("%d and %d tokens are kept", enc.known.tokens, dec.known.tokens)
		}
		if blocks := enc.known.tokens / block; max(len(enc.known.latest), len(enc.known.roots)) > blocks {
			t.Fatalf("%d and %d sums of %d blocks", len(enc.known.latest), len(enc.known.roots), blocks)
		}
	}
}

// FuzzDecode proves that no input makes the decoder panic, allocate excessively, or return a call
// that would not be encoded to the same bytes.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(14, 4))
	first := chain(r, randomIDs(r, 100), 2, 20, 10, false)
	var enc encoder
	base := enc.append(nil, entryOf(first[0]), 0)
	f.Add(enc.append(nil, entryOf(first[1]), 0))
	f.Add(base)
	f.Add(appendTick(nil, time.Unix(1_800_000_000, 1), 7))
	for range 30 {
		var enc encoder
		enc.append(nil, entryOf(first[0]), 0)
		f.Add(enc.append(nil, entryOf(strange(r)), 0))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var dec decoder
		if _, _, err := dec.decode(base); err != nil {
			t.Fatal(err)
		}
		c, added, err := dec.decode(payload)
		if err != nil || c == nil {
			return
		}
		if n := len(c.Prompt) + len(c.Asked) + len(c.Output) + len(c.Logprobs) + len(c.Sampling.StopIDs); n > 3*(len(payload)+200) {
			t.Errorf("%d tokens of %d bytes", n, len(payload))
		}
		var enc encoder
		e := newEntry(c)
		e.added = added
		again, _, err := (&decoder{}).decode(enc.append(nil, e, 3))
		if err != nil || !sameCall(c, again) {
			t.Errorf("%+v is read again as %+v, %v", c, again, err)
		}
	})
}

// TestGateCodecBytes bounds the bytes of a chain of 8 calls with 4,000 prompt tokens.
func TestGateCodecBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 5))
	var enc encoder
	total, tokens, raw := 0, 0, 0
	calls := chain(r, randomIDs(r, 3940), 8, 100, 150, false)
	for _, c := range calls {
		total += len(enc.append(nil, entryOf(c), 0))
		tokens += len(c.Prompt)
		raw += 4*len(c.Prompt) + 8*len(c.Output)
	}
	first := len((&encoder{}).append(nil, entryOf(calls[0]), 0))
	t.Logf("8 calls, %d prompt tokens: %d bytes per call, plain %d; the first %d, each other %d", tokens, total/8, raw/8, first, (total-first)/7)
	if each := (total - first) / 7; each > 1100 {
		t.Errorf("a call that continues one costs %d bytes", each)
	}
	if b := binary.Size(calls[0].Prompt); first > b {
		t.Errorf("the first call costs %d bytes, its prompt has %d", first, b)
	}
}
