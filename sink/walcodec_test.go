package sink_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// fill sets every exported field that v reaches to a random value: nil, empty and full lists, nil and
// set pointers. A field that the log omits comes back zero.
func fill(rng *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(rng.Int64N(1<<40)-1<<39, rng.Int64N(1e9)).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rng.Uint64()) >> rng.IntN(64))
	case reflect.Int:
		v.SetInt(rng.Int64N(math.MaxInt32))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(rng.Uint64() >> 1)
	case reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(rng.Uint32() &^ (1 << 30)))) // finite, because reflect.DeepEqual never equates NaNs
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	case reflect.String:
		b := make([]byte, rng.IntN(20))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		v.SetString(string(b))
	case reflect.Pointer:
		if rng.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem())
		}
	case reflect.Slice:
		if n := rng.IntN(5) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(rng, v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(rng, v.Field(i))
			}
		}
	default:
		panic(v.Type().String())
	}
}

// TestWALKeepsEverything tests that a random sample survives encoding and decoding.
func TestWALKeepsEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		var s tokenize.Sample
		fill(rand.New(rand.NewPCG(seed, 0)), reflect.ValueOf(&s).Elem())
		got, err := sink.DecodeSample(sink.AppendSample(nil, &s))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(got, &s) {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, &s)
		}
	}
	for _, s := range sinktest.Edge() {
		body := sink.AppendSample(nil, s)
		got, err := sink.DecodeSample(body)
		must(t, err)
		if again := sink.AppendSample(nil, got); !bytes.Equal(again, body) {
			t.Errorf("sample %s: another one was read", s.Key)
		}
	}
}

// TestWALMasks tests that masks of every length up to 12, and invalid ones, survive encoding as runs.
func TestWALMasks(t *testing.T) {
	t.Parallel()
	for n := range 13 {
		for bits := range 1 << n {
			r := tokenize.Row{InputIDs: make([]int32, n), LossMask: make([]int8, n), Logprobs: make([]float32, n)}
			for i := range n {
				if bits>>i&1 == 1 {
					r.LossMask[i], r.Logprobs[i] = 1, -float32(i)-1
				}
			}
			odd := r
			if n > 0 {
				odd.LossMask, odd.Logprobs = slices.Clone(r.LossMask), slices.Clone(r.Logprobs)
				switch at := bits % n; bits % 3 {
				case 0:
					odd.LossMask[at] = 2
				case 1:
					odd.Logprobs[at] = float32(math.Copysign(0, -1))
				default:
					odd.Logprobs[at] += 3
				}
			}
			s := &tokenize.Sample{Rows: []tokenize.Row{r, odd}, StartedAt: time.Unix(0, 0).UTC()}
			got, err := sink.DecodeSample(sink.AppendSample(nil, s))
			if err != nil || !reflect.DeepEqual(got, s) {
				t.Fatalf("mask %0*b: %v, %+v", n, bits, err, got)
			}
			for i, lp := range odd.Logprobs { // DeepEqual equates -0 and 0
				if math.Float32bits(got.Rows[1].Logprobs[i]) != math.Float32bits(lp) {
					t.Fatalf("mask %0*b: logprob %d changed its bits", n, bits, i)
				}
			}
		}
	}
}

// TestGateWALBytes bounds the log bytes, framing included, per raw byte of arrays and texts.
func TestGateWALBytes(t *testing.T) {
	raw := func(s *tokenize.Sample) (n int) {
		for i := range s.Rows {
			r := &s.Rows[i]
			n += 4*len(r.InputIDs) + len(r.LossMask) + 4*len(r.Logprobs) + 4*len(r.Versions) + 4*len(r.TurnOffsets) + len(r.TurnRoles)
			n += len(strings.Join(r.StepIDs, "")) + len(strings.Join(r.FinishReasons, ""))
		}
		for i := range s.Failures {
			n += 4*len(s.Failures[i].OutputIDs) + 4*len(s.Failures[i].Logprobs)
		}
		return n
	}
	b := sinktest.NewBuilder(1)
	for _, tt := range []struct {
		name    string
		samples []*tokenize.Sample
		most    float64
	}{
		{"half of the tokens sampled", bulk(500_000), 0.75},
		{"all tokens sampled", []*tokenize.Sample{b.Sample(b.Row(0, 8000))}, 1.05},
		{"spans of one token", []*tokenize.Sample{b.Sample(b.Row(slices.Repeat([]int{1}, 8000)...))}, 1.05},
		{"a failure", []*tokenize.Sample{b.Failure(8000)}, 1.05},
	} {
		var wrote, want int
		for _, s := range tt.samples {
			wrote += frame.Overhead + len(sink.AppendSample(nil, s))
			want += raw(s)
		}
		ratio := float64(wrote) / float64(want)
		t.Logf("%s: %.3f bytes for a raw byte", tt.name, ratio)
		if ratio > tt.most {
			t.Errorf("%s: %.3f bytes for a raw byte, want ≤ %.2f", tt.name, ratio, tt.most)
		}
	}
}

// FuzzWALSample tests that the decoder never panics, and that whatever it decodes encodes again.
func FuzzWALSample(f *testing.F) {
	b := sinktest.NewBuilder(1)
	f.Add(sink.AppendSample(nil, b.Sample(b.Row(3, 4), b.Row(1, 1, 1, 1))))
	f.Add(sink.AppendSample(nil, b.Failure(3)))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := sink.DecodeSample(body)
		if err != nil {
			return
		}
		if _, err := sink.DecodeSample(sink.AppendSample(nil, s)); err != nil {
			t.Errorf("the decoded sample cannot be encoded and decoded again: %v", err)
		}
	})
}
