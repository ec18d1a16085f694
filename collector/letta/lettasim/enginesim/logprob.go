package enginesim

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// PromptSeed is a hash of a prompt, ids and length.
func PromptSeed(prompt []int32) uint64 {
	h := uint64(len(prompt))
	for _, id := range prompt {
		h = mix(h ^ uint64(uint32(id)))
	}
	return h
}

// wordSeed is a hash of a word, for Reply.Equal.
func wordSeed(word string) uint64 {
	h := uint64(len(word)) << 32
	for i := range len(word) {
		h = mix(h ^ uint64(word[i]))
	}
	return h
}

// Logprob is the log-probability of an id sampled at a position of the output: finite, at
// most 0, and a function of its arguments alone. One in 64 is exactly 0.
func Logprob(seed uint64, position int, id int32) float32 {
	h := mix(seed ^ mix(uint64(position)<<32|uint64(uint32(id))))
	if h&63 == 0 {
		return 0
	}
	u := (float64(h>>11) + 0.5) / (1 << 53)
	return min(float32(-12*u*u*u*u), -1e-9)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Logprobs are log-probabilities that are null in JSON if they are not finite.
type Logprobs []float32

// MarshalJSON implements json.Marshaler.
func (l Logprobs) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("null"), nil
	}
	out := []byte{'['}
	for i, p := range l {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendLogprob(out, p, "null")
	}
	return append(out, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler: null becomes NaN.
func (l *Logprobs) UnmarshalJSON(b []byte) error {
	var read []*float32
	if err := json.Unmarshal(b, &read); err != nil {
		return fmt.Errorf("enginesim: logprobs: %w", err)
	}
	*l = nil
	for _, p := range read {
		if p == nil {
			*l = append(*l, float32(math.NaN()))
			continue
		}
		*l = append(*l, *p)
	}
	return nil
}

// appendLogprob prints a log-probability as Python prints the double of it, and what is
// not finite as given.
func appendLogprob(dst []byte, p float32, notFinite string) []byte {
	f := float64(p)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, notFinite...)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, ".0"...)
}
