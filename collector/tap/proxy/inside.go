package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file reads routed experts and sampling masks.
//
// SGLang (sgl-project/sglang, python/sglang/srt/managers/io_struct.py and
// entrypoints/openai/serving_chat.py): the request member return_routed_experts adds routed_experts to
// meta_info, or to sglext if the answer has no meta_info. It is base64 of int32 values [tokens - 1,
// layers, top_k] without their shape. So a wrong shape with the same number of values per token, such as
// 24x16 instead of 48x8, is not found. return_sampling_mask adds output_token_sampling_mask to meta_info:
// one list of ids per sampled token.
//
// vLLM (vllm-project/vllm, vllm/entrypoints/openai/chat_completion/protocol.py and
// docs/features/sampling_mask.md): --enable-return-routed-experts adds routed_experts to each choice,
// as base64 of a .npy file with the same shape. --return-sampling-mask adds sampling_mask, one list of
// ids per sampled token, to the choices of /inference/v1/generate.
//
// The last sampled token has no experts, because no forward pass has used it.

// maxExpertsText limits the base64 text of the routed experts of a call, and maxInsideAnswer an answer
// with such a text: 2 KB per token for 48 layers with 8 experts each.
const (
	maxExpertsText  = 500 << 20
	maxInsideAnswer = 512 << 20
)

// insideAsks returns the members that make SGLang return values from inside a call. vLLM needs none.
func insideAsks(i tokenize.Inside) (asks []ask) {
	if i.Experts != (tokenize.ExpertShape{}) {
		asks = append(asks, ask{"return_routed_experts", "true"})
	}
	if i.SamplingMask {
		asks = append(asks, ask{"return_sampling_mask", "true"})
	}
	return asks
}

// A noIDsError is ErrNoIDs for an engine that does not return another requested value.
type noIDsError string

func (e noIDsError) Error() string        { return string(e) }
func (e noIDsError) Is(target error) bool { return target == ErrNoIDs }

const (
	errNoExperts noIDsError = "the engine returns no routed experts of the configured shape; start vLLM or SGLang with --enable-return-routed-experts"
	errNoMasks   noIDsError = "the engine returns no sampling masks for chat completions; use a version of SGLang with return_sampling_mask"
)

// lacks returns an error if c, the call of a successful trial, lacks a requested value.
func lacks(i tokenize.Inside, c *tap.Call) error {
	switch {
	case i.Experts != (tokenize.ExpertShape{}) && c.Experts.IDs == nil:
		return errNoExperts
	case i.SamplingMask && c.MaskLengths == nil:
		return errNoMasks
	}
	return nil
}

// routed parses routed experts. It skips them unless the tap records them.
func (a *answer) routed(s *tokenize.Scanner) error {
	if a.inside.Experts == (tokenize.ExpertShape{}) || s.Next() != '"' {
		return s.Skip()
	}
	text, err := s.Text(maxExpertsText)
	if err != nil {
		return err
	}
	a.experts = tokenize.Experts{Shape: a.inside.Experts, IDs: []byte{}}
	a.misshapen = decodeExperts(&a.experts, text) != nil
	return nil
}

// masks parses a list of sampling masks. It skips them unless the tap records them.
func (a *answer) masks(s *tokenize.Scanner) error {
	if !a.inside.SamplingMask || s.Next() != '[' {
		return s.Skip()
	}
	a.mask, a.maskLengths = []int32{}, []int32{}
	return s.Array(func(int) error {
		before := len(a.mask)
		if s.Next() != '[' {
			a.maskLengths = append(a.maskLengths, -1) // not a mask, so masksFit returns false
			return s.Skip()
		}
		var err error
		a.mask, err = s.IDs(a.mask)
		a.maskLengths = append(a.maskLengths, int32(len(a.mask)-before)) //nolint:gosec // at most maxTokens
		return err
	})
}

// fillInside copies the values from inside the call into c. The tokens must already be in c. If the
// values do not belong to exactly these tokens, fillInside returns the reason why the call is not usable.
func (a *answer) fillInside(c *tap.Call) (unread string) {
	tokens := len(c.Prompt) + len(c.Output) - 1
	switch {
	case a.misshapen, a.experts.IDs != nil && a.experts.Tokens() != tokens:
		return session.UnreadExperts
	case a.maskLengths != nil && !masksFit(a.mask, a.maskLengths, c.Output):
		return session.UnreadMask
	}
	c.Experts, c.SamplingMask, c.MaskLengths = a.experts, a.mask, a.maskLengths
	return ""
}

// masksFit reports whether each id has a mask that contains the id.
func masksFit(mask, lengths, ids []int32) bool {
	if len(lengths) != len(ids) {
		return false
	}
	for i, n := range lengths {
		if n < 0 || n > 0 && !slices.Contains(mask[:n], ids[i]) {
			return false
		}
		mask = mask[n:]
	}
	return true
}

var (
	errExperts = errors.New("not base64 of routed experts in the configured shape")
	npyShape   = regexp.MustCompile(`'shape': \((\d+), (\d+), (\d+)\)`)
	npyType    = regexp.MustCompile(`'descr': '[<|]([iu])([1248])'`)
)

// decodeExperts appends the ids in a text from an engine to e.
func decodeExperts(e *tokenize.Experts, text string) error {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return errExperts
	}
	kind, size := "i", 4
	if bytes.HasPrefix(raw, []byte("\x93NUMPY")) {
		if raw, kind, size, err = npy(raw, e.Shape); err != nil {
			return err
		}
	}
	if len(raw)%(size*e.Shape.Layers*e.Shape.TopK) != 0 {
		return errExperts
	}
	e.IDs = slices.Grow(e.IDs, len(raw)/size*e.Shape.IDBytes())
	for ; len(raw) > 0; raw = raw[size:] {
		if !e.Append(integer(raw, kind, size)) {
			return errExperts
		}
	}
	return nil
}

// integer decodes a little-endian integer of the given size. An unsigned value of eight bytes that does
// not fit becomes negative, so it is not a valid expert.
func integer(b []byte, kind string, size int) int64 {
	var v uint64
	for i := range size {
		v |= uint64(b[i]) << (8 * i)
	}
	if kind == "i" {
		shift := 64 - 8*size
		return int64(v<<shift) >> shift //nolint:gosec // extends the sign
	}
	return int64(v) //nolint:gosec // see above
}

// npy returns the data of a .npy file with an array [tokens, layers, top_k] of integers, and their kind
// and size. Format: numpy/lib/format.py.
func npy(raw []byte, shape tokenize.ExpertShape) (data []byte, kind string, size int, err error) {
	if len(raw) < 12 {
		return nil, "", 0, errExperts
	}
	at, n := 10, int(binary.LittleEndian.Uint16(raw[8:]))
	if raw[6] > 1 {
		at, n = 12, int(binary.LittleEndian.Uint32(raw[8:])&(1<<24-1))
	}
	if at+n > len(raw) {
		return nil, "", 0, errExperts
	}
	head := string(raw[at : at+n])
	dims, typ := npyShape.FindStringSubmatch(head), npyType.FindStringSubmatch(head)
	if dims == nil || typ == nil || !strings.Contains(head, "'fortran_order': False") ||
		dims[2] != strconv.Itoa(shape.Layers) || dims[3] != strconv.Itoa(shape.TopK) {
		return nil, "", 0, errExperts
	}
	size = int(typ[2][0] - '0')
	data = raw[at+n:]
	if want := fmt.Sprint(len(data) / (size * shape.Layers * shape.TopK)); dims[1] != want {
		return nil, "", 0, errExperts
	}
	return data, typ[1], size, nil
}

// maxAnswer limits the size of an answer that is not a stream.
func (p *Proxy) maxAnswer() int {
	if p.cfg.Inside.Experts != (tokenize.ExpertShape{}) {
		return maxInsideAnswer
	}
	return maxAnswer
}
