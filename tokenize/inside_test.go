package tokenize_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

func TestParseExpertShape(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"48x8/128", "1x1/1", "61x8/256"} {
		s, err := tokenize.ParseExpertShape(text)
		if err != nil || s.String() != text {
			t.Errorf("ParseExpertShape(%q) = %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "48", "48x8", "0x8/128", "48x0/128", "48x8/7", "48x8/40000", "-1x8/128", "x/", "48x8/128x", "4294967296x1/1", "65537x1/1"} {
		if s, err := tokenize.ParseExpertShape(text); err == nil {
			t.Errorf("ParseExpertShape(%q) = %v, want an error", text, s)
		}
	}
}

// insideCalls returns random calls and the values that their rows must contain. In these calls, each
// value from inside a call depends only on the token's position and the call.
type insideCalls struct {
	rng   *rand.Rand
	shape tokenize.ExpertShape
	calls []tokenize.Call
}

func (x *insideCalls) add(prompt []int32) []int32 {
	rng := x.rng
	output := make([]int32, 1+rng.IntN(4))
	c := tokenize.Call{
		PromptIDs: slices.Clone(prompt), Logprobs: make([]float32, len(output)), Source: tokenize.SourceTap, Version: -1,
		WeightVersion: []string{"", "default", "v7"}[rng.IntN(3)],
	}
	for i := range output {
		output[i] = rng.Int32N(100)
	}
	c.OutputIDs = output
	if at := int32(1); len(output) > 1 && rng.IntN(2) == 0 {
		c.WeightVersion = "v8"
		c.WeightSpans = []tokenize.VersionSpan{{Version: "v7", End: at}, {Version: "v8", Start: at, End: int32(len(output))}}
	}
	if rng.IntN(4) > 0 {
		c.Experts = tokenize.Experts{Shape: x.shape, IDs: []byte{}}
		for range (len(prompt) + len(output) - 1) * x.shape.Layers * x.shape.TopK {
			c.Experts.Append(rng.Int64N(int64(x.shape.Experts)))
		}
	}
	if rng.IntN(4) > 0 {
		for _, id := range output {
			n := rng.Int32N(3)
			for k := range n {
				c.SamplingMask = append(c.SamplingMask, (id+k)%100)
			}
			c.MaskLengths = append(c.MaskLengths, n)
		}
	}
	x.calls = append(x.calls, c)
	return append(slices.Clone(prompt), output...)
}

// TestAlignInside compares the values from inside the calls with a simple model: for each token of a
// row, the first call of the row that has a value.
func TestAlignInside(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		x := &insideCalls{rng: rand.New(rand.NewPCG(seed, 1)), shape: tokenize.ExpertShape{Layers: 2, TopK: 3, Experts: []int{5, 300}[seed%2]}}
		row := []int32{1, 2, 3}
		for range 1 + x.rng.IntN(6) {
			row = x.add(row)
			switch x.rng.IntN(6) {
			case 0: // fork
				row = []int32{4, x.rng.Int32N(50)}
			case 1: // drift within the last output
				row[len(row)-1]++
				row = append(row, 9)
			default:
				row = append(row, make([]int32, 1+x.rng.IntN(3))...)
			}
		}
		cfg := tokenize.AlignConfig{
			Drift: tokenize.DriftRealign, RealignMax: 8,
			Inside: tokenize.Inside{WeightVersions: true, Experts: x.shape, SamplingMask: true},
		}
		rows, _, err := tokenize.NewAligner(cfg).Align(x.calls)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range rows {
			if err := rows[i].Check(0); err != nil {
				t.Fatalf("seed %d: row %d: %v", seed, i, err)
			}
			x.compare(t, seed, &rows[i])
		}
		if off, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(x.calls); err != nil || off[0].Experts.IDs != nil || off[0].MaskLengths != nil || off[0].WeightVersions != nil {
			t.Fatalf("seed %d: with the zero Inside, a row has values from inside a call (%v)", seed, err)
		}
	}
}

func (x *insideCalls) compare(t *testing.T, seed uint64, r *tokenize.Row) {
	t.Helper()
	size := x.shape.TokenBytes()
	versions := perToken(r.WeightVersions, r.WeightVersionEnds, len(r.InputIDs))
	mask := r.SamplingMask
	for i := range r.InputIDs {
		experts := strings.Repeat("\xff", size)
		var version string
		var want []int32
		// A call proves a value if the row still begins with its tokens up to there. The row itself is the
		// proof, because a realigned row lost the tokens that differ.
		for k := r.FirstCall; k < r.LastCall; k++ {
			c := &x.calls[k]
			all := slices.Concat(c.PromptIDs, c.OutputIDs)
			if i >= len(all) || !slices.Equal(all[:i+1], r.InputIDs[:i+1]) {
				continue
			}
			if i < c.Experts.Tokens() {
				experts = string(c.Experts.IDs[i*size : (i+1)*size])
				break
			}
		}
		for k := r.FirstCall; k < r.LastCall; k++ {
			c := &x.calls[k]
			at := i - len(c.PromptIDs)
			if at < 0 || at >= len(c.OutputIDs) || !slices.Equal(slices.Concat(c.PromptIDs, c.OutputIDs)[:i+1], r.InputIDs[:i+1]) {
				continue
			}
			version = c.WeightVersion
			for _, s := range c.WeightSpans {
				if at >= int(s.Start) && at < int(s.End) {
					version = s.Version
				}
			}
			if c.MaskLengths != nil {
				from := int32(0)
				for _, n := range c.MaskLengths[:at] {
					from += n
				}
				want = c.SamplingMask[from : from+c.MaskLengths[at]]
			}
		}
		if r.Experts.IDs != nil && string(r.Experts.IDs[i*size:(i+1)*size]) != experts || r.Experts.IDs == nil && strings.Count(experts, "\xff") != len(experts) {
			t.Fatalf("seed %d: token %d has other experts than the first call that has them", seed, i)
		}
		if versions[i] != version {
			t.Fatalf("seed %d: token %d has version %q, want %q", seed, i, versions[i], version)
		}
		n := int32(0)
		if r.MaskLengths != nil {
			n = r.MaskLengths[i]
		}
		if !slices.Equal(mask[:n], want) {
			t.Fatalf("seed %d: token %d has the mask %v, want %v", seed, i, mask[:n], want)
		}
		mask = mask[n:]
	}
}

func perToken(names []string, ends []int32, n int) []string {
	out := make([]string, n)
	at := int32(0)
	for k, end := range ends {
		for ; at < end; at++ {
			out[at] = names[k]
		}
	}
	return out
}

// TestAlignInsideShape checks that values of the wrong shape are an error, and are never padded.
func TestAlignInsideShape(t *testing.T) {
	t.Parallel()
	shape := tokenize.ExpertShape{Layers: 2, TopK: 1, Experts: 4}
	call := func() tokenize.Call {
		return tokenize.Call{PromptIDs: []int32{1, 2}, OutputIDs: []int32{3}, Logprobs: []float32{-1}, Source: tokenize.SourceTap, Version: -1}
	}
	for _, test := range []struct {
		name string
		set  func(*tokenize.Call)
		want string
	}{
		{"another shape", func(c *tokenize.Call) {
			c.Experts = tokenize.Experts{Shape: tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 4}, IDs: make([]byte, 4)}
		}, "shape 1x2/4, but the rows have 2x1/4"},
		{"too few tokens", func(c *tokenize.Call) { c.Experts = tokenize.Experts{Shape: shape, IDs: make([]byte, 2)} }, "2 bytes of routed experts for 2 tokens"},
		{"all tokens", func(c *tokenize.Call) { c.Experts = tokenize.Experts{Shape: shape, IDs: make([]byte, 6)} }, "6 bytes of routed experts for 2 tokens"},
		{"unknown expert", func(c *tokenize.Call) { c.Experts = tokenize.Experts{Shape: shape, IDs: []byte{0, 1, 4, 0}} }, "token 1 has expert 4 of 4"},
		{"masks", func(c *tokenize.Call) { c.SamplingMask, c.MaskLengths = []int32{3, 4}, []int32{1, 1} }, "2 sampling masks for 1 tokens"},
		{"other mask", func(c *tokenize.Call) { c.SamplingMask, c.MaskLengths = []int32{4}, []int32{1} }, "does not contain the token, 3"},
		{"rest", func(c *tokenize.Call) { c.SamplingMask, c.MaskLengths = []int32{3, 4}, []int32{1} }, "belong to no token"},
	} {
		c := call()
		test.set(&c)
		_, _, err := tokenize.NewAligner(tokenize.AlignConfig{Inside: tokenize.Inside{Experts: shape, SamplingMask: true}}).Align([]tokenize.Call{c})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}
