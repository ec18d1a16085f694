// Package sglang generates answers in the format of SGLang's POST /generate, with invented
// log-probabilities. Packages lettasim and enginesim use it.
package sglang

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Mix is the finalizer of splitmix64.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Logprob returns a log-probability for an id at a position in the output. The result is finite, at
// most 0, and depends only on the arguments. One value in 64 is exactly 0.
func Logprob(seed uint64, position int, id int32) float32 {
	h := Mix(seed ^ Mix(uint64(position)<<32|uint64(uint32(id))))
	if h&63 == 0 {
		return 0
	}
	u := (float64(h>>11) + 0.5) / (1 << 53)
	return min(float32(-12*u*u*u*u), -1e-9)
}

// Logprobs returns the log-probabilities for an output.
func Logprobs(seed uint64, ids []int32) []float32 {
	out := make([]float32, len(ids))
	for i, id := range ids {
		out[i] = Logprob(seed, i, id)
	}
	return out
}

// An Answer is the body of a response to POST /generate. OutputIDs and Logprobs are JSON lists. A
// list that is nil is omitted. Finish is a JSON object.
type Answer struct {
	Text                string
	OutputIDs, Logprobs []byte
	ID, Version         string
	Finish              []byte
	More                []byte // further members of meta_info, each with a comma before it
	PromptTokens        int
	CompletionTokens    int
	Seconds             float64
}

// Append appends the answer to dst as JSON.
func (a *Answer) Append(dst []byte) []byte {
	dst = strictjson.AppendText(append(dst, `{"text":`...), a.Text)
	if a.OutputIDs != nil {
		dst = append(append(dst, `,"output_ids":`...), a.OutputIDs...)
	}
	dst = fmt.Appendf(dst, `,"meta_info":{"id":%s,"finish_reason":%s,"prompt_tokens":%d,"weight_version":%s,"total_retractions":0`,
		strictjson.AppendText(nil, a.ID), a.Finish, a.PromptTokens, strictjson.AppendText(nil, a.Version))
	if a.Logprobs != nil {
		dst = append(append(dst, `,"input_token_logprobs":[],"output_token_logprobs":`...), a.Logprobs...)
	}
	dst = append(dst, a.More...)
	return fmt.Appendf(dst, `,"completion_tokens":%d,"cached_tokens":0,"e2e_latency":%.6f}}`, a.CompletionTokens, a.Seconds)
}

// AppendFloat appends f in the form in which Python prints a double. If f is not finite, it appends
// the string notFinite. Numbers whose absolute value is below plainFrom are printed with an
// exponent.
func AppendFloat(dst []byte, f float32, plainFrom float64, notFinite string) []byte {
	x := float64(f)
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return append(dst, notFinite...)
	case x != 0 && math.Abs(x) < plainFrom:
		return strconv.AppendFloat(dst, x, 'e', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, x, 'f', -1, 64)
	if bytes.IndexByte(dst[from:], '.') >= 0 {
		return dst
	}
	return append(dst, ".0"...)
}
