package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize"
)

// Experts returns the routed experts of a token: Layers times TopK ids. They are a pure function of
// the token and all tokens before it.
func Experts(shape tokenize.ExpertShape, ids []int32) []int32 {
	h := PromptSeed(ids)
	out := make([]int32, shape.Layers*shape.TopK)
	for i := range out {
		out[i] = int32(sglang.Mix(h+uint64(i)) % uint64(shape.Experts)) //nolint:gosec // below Experts
	}
	return out
}

// Mask returns the ids among which the engine sampled an id after the given tokens: at most four, in
// ascending order of their distance from the id.
func Mask(before []int32, id int32) []int32 {
	mask := []int32{id}
	for i := range int32(PromptSeed(append(slices.Clip(before), id)) % 4) { //nolint:gosec // below 4
		mask = append(mask, max(0, id-i-1))
	}
	return mask
}

// Spans returns the weight versions of an output: the name of its first half ends with ".old".
func Spans(version string, n int) []tokenize.VersionSpan {
	half := int32(n / 2) //nolint:gosec // a number of tokens
	spans := []tokenize.VersionSpan{{Version: version + ".old", End: half}, {Version: version, Start: half, End: int32(n)}}
	if half == 0 {
		return spans[1:]
	}
	return spans
}

// routed returns the routed experts of the prompt and the first n sampled tokens, except the last one,
// as int32 values.
func (e *Engine) routed(c *Call, n int) (data []byte, tokens int) {
	all := append(slices.Clip(c.InputIDs), c.OutputIDs[:n]...)
	for i := range len(all) - 1 {
		for _, id := range Experts(e.cfg.Experts, all[:i+1]) {
			data = binary.LittleEndian.AppendUint32(data, uint32(id)) //nolint:gosec // not negative
		}
	}
	return data, len(all) - 1
}

// npy returns the routed experts as base64 of a .npy file, as vLLM does, or nil if Config.Experts is
// not set.
func (e *Engine) npy(c *Call) any {
	shape := e.cfg.Experts
	if shape == (tokenize.ExpertShape{}) {
		return nil
	}
	wide, tokens := e.routed(c, len(c.OutputIDs))
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", tokens, shape.Layers, shape.TopK)
	data := wide
	if shape.Experts > 256 {
		head = strings.Replace(head, "|u1", "<i4", 1)
	} else {
		data = nil
		for at := 0; at < len(wide); at += 4 {
			data = append(data, wide[at])
		}
	}
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	file := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head))) //nolint:gosec // short
	return base64.StdEncoding.EncodeToString(append(append(file, head...), data...))
}

// appendInside appends the requested members of meta_info.
func (e *Engine) appendInside(dst []byte, g *generation, n int) []byte {
	c := &g.call
	if e.cfg.VersionSpans && n == len(c.OutputIDs) {
		dst = append(dst, `,"weight_versions":[`...)
		for i, s := range Spans(c.Version, n) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = fmt.Appendf(dst, `{"version":%q,"start":%d,"end":%d}`, s.Version, s.Start, s.End)
		}
		dst = append(dst, ']')
	}
	if g.experts {
		data, _ := e.routed(c, n)
		dst = fmt.Appendf(dst, `,"routed_experts":%q`, base64.StdEncoding.EncodeToString(data))
	}
	if g.masks {
		dst = append(dst, `,"output_token_sampling_mask":[`...)
		all := append(slices.Clip(c.InputIDs), c.OutputIDs[:n]...)
		for i := range n {
			if i > 0 {
				dst = append(dst, ',')
			}
			at := len(c.InputIDs) + i
			dst = tokenize.AppendIDs(dst, Mask(all[:at], all[at]))
		}
		dst = append(dst, ']')
	}
	return dst
}

// inside returns an error message if a request asks SGLang for values from inside the call that the
// engine cannot return, or "".
func (e *Engine) inside(g *generation, experts, masks, meta bool) string {
	switch {
	case experts && e.cfg.Experts == (tokenize.ExpertShape{}):
		return "return_routed_experts is true, but the server was not started with --enable-return-routed-experts."
	case masks && !e.cfg.SamplingMask:
		return "return_sampling_mask is not supported by this server."
	case masks && !meta:
		return "return_sampling_mask requires return_meta_info."
	}
	g.experts, g.masks = experts, masks
	return ""
}
