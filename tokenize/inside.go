package tokenize

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Inside selects the values from inside the calls that rows keep. The zero value keeps none of them,
// because most trainers do not use them and they need a lot of space.
type Inside struct {
	// WeightVersions keeps the names of the weight versions (Row.WeightVersions).
	WeightVersions bool
	// Experts is the shape of the routed experts that rows keep (Row.Experts). Zero keeps none.
	Experts ExpertShape
	// SamplingMask keeps the sampling masks (Row.SamplingMask).
	SamplingMask bool
}

// An ExpertShape is the shape of a model's routed experts: in each of Layers layers, the router sends
// a token to TopK of Experts experts. It depends on the engine whether layers without a router count:
// the engine's values must have exactly this shape.
type ExpertShape struct{ Layers, TopK, Experts int }

// maxExperts is the maximum number of experts whose ids fit in an int16.
const maxExperts = math.MaxInt16 + 1

// maxExpertIDs limits the number of ids of one token.
const maxExpertIDs = 1 << 16

// ParseExpertShape parses a shape such as 48x8/128: 48 layers, and 8 of 128 experts in each.
func ParseExpertShape(text string) (s ExpertShape, err error) {
	layers, rest, ok := strings.Cut(text, "x")
	topK, experts, ok2 := strings.Cut(rest, "/")
	for _, n := range []struct {
		to   *int
		text string
	}{{&s.Layers, layers}, {&s.TopK, topK}, {&s.Experts, experts}} {
		if v, err := strconv.ParseUint(n.text, 10, 31); err == nil {
			*n.to = int(v)
		}
	}
	if !ok || !ok2 || s.check() != nil {
		return ExpertShape{}, fmt.Errorf("%q is not LAYERSxTOP_K/EXPERTS, such as 48x8/128 for 48 layers with 8 of 128 experts each", text)
	}
	return s, nil
}

func (s ExpertShape) check() error {
	switch {
	case s.Layers < 1, s.TopK < 1, s.Experts < s.TopK, s.Experts > maxExperts, s.Layers > maxExpertIDs/s.TopK:
		return fmt.Errorf("the shape of the routed experts is %dx%d/%d, but must be at least 1x1/1, at most /%d, and have at most %d ids for each token",
			s.Layers, s.TopK, s.Experts, maxExperts, maxExpertIDs)
	}
	return nil
}

// String returns the text that ParseExpertShape accepts, or "" for the zero value.
func (s ExpertShape) String() string {
	if s == (ExpertShape{}) {
		return ""
	}
	return fmt.Sprintf("%dx%d/%d", s.Layers, s.TopK, s.Experts)
}

// MarshalText returns the text that ParseExpertShape accepts, or "" for the zero value.
func (s ExpertShape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// IDBytes returns the number of bytes of an expert id: 1 if the model has at most 128 experts,
// otherwise 2.
func (s ExpertShape) IDBytes() int {
	if s.Experts <= math.MaxInt8+1 {
		return 1
	}
	return 2
}

// TokenBytes returns the number of bytes for one token.
func (s ExpertShape) TokenBytes() int { return s.Layers * s.TopK * s.IDBytes() }

// Experts contains the routed experts of consecutive tokens, from the first token on. Each token has
// Shape.Layers times Shape.TopK ids in this order. An id is a little-endian signed integer of
// Shape.IDBytes bytes. The id -1 means that the engine returned no expert. IDs is nil if nothing is
// known.
type Experts struct {
	Shape ExpertShape
	IDs   []byte
}

// Tokens returns the number of tokens.
func (e *Experts) Tokens() int {
	if e.IDs == nil {
		return 0
	}
	return len(e.IDs) / e.Shape.TokenBytes()
}

// Append appends the id of an expert. It returns false, and appends nothing, unless the id is between
// -1 and Shape.Experts - 1.
func (e *Experts) Append(id int64) bool {
	switch {
	case id < -1 || id >= int64(e.Shape.Experts):
		return false
	case e.Shape.IDBytes() == 1:
		e.IDs = append(e.IDs, byte(id))
	default:
		e.IDs = binary.LittleEndian.AppendUint16(e.IDs, uint16(id)) //nolint:gosec // -1 wraps around as intended
	}
	return true
}

// check returns an error unless e is nil or contains valid ids for n tokens.
func (e *Experts) check(n int) error {
	if e.IDs == nil {
		return nil
	}
	if err := e.Shape.check(); err != nil {
		return err
	}
	if len(e.IDs) != n*e.Shape.TokenBytes() {
		return fmt.Errorf("%d bytes of routed experts for %d tokens, want %d per token", len(e.IDs), n, e.Shape.TokenBytes())
	}
	for at := 0; at < len(e.IDs); at += e.Shape.IDBytes() {
		id := int(int8(e.IDs[at])) //nolint:gosec // -1 is stored as 255
		if e.Shape.IDBytes() == 2 {
			id = int(int16(binary.LittleEndian.Uint16(e.IDs[at:]))) //nolint:gosec // -1 is stored as 65535
		}
		if id < -1 || id >= e.Shape.Experts {
			return fmt.Errorf("token %d has expert %d of %d", at/e.Shape.TokenBytes(), id, e.Shape.Experts)
		}
	}
	return nil
}

// checkInside returns an error if the values from inside the call do not fit the call or the
// configuration.
func (a *Aligner) checkInside(c *Call) error {
	if e := &c.Experts; a.cfg.Inside.Experts != (ExpertShape{}) && e.IDs != nil {
		if e.Shape != a.cfg.Inside.Experts {
			return fmt.Errorf("the routed experts have the shape %s, but the rows have %s", e.Shape, a.cfg.Inside.Experts)
		}
		if err := e.check(len(c.PromptIDs) + len(c.OutputIDs) - 1); err != nil {
			return err
		}
	}
	if a.cfg.Inside.SamplingMask && c.MaskLengths != nil {
		return checkMask(c.SamplingMask, c.MaskLengths, c.OutputIDs)
	}
	return nil
}

// checkMask returns an error unless there is one mask or an empty mask for each token, and each mask
// contains its token.
func checkMask(mask, lengths, ids []int32) error {
	if len(lengths) != len(ids) {
		return fmt.Errorf("%d sampling masks for %d tokens", len(lengths), len(ids))
	}
	for i, n := range lengths {
		if n < 0 || int(n) > len(mask) {
			return fmt.Errorf("the sampling mask of token %d has %d ids, but %d are left", i, n, len(mask))
		}
		if n > 0 && !slices.Contains(mask[:n], ids[i]) {
			return fmt.Errorf("the sampling mask of token %d does not contain the token, %d", i, ids[i])
		}
		if n > 0 && slices.Min(mask[:n]) < 0 {
			return fmt.Errorf("the sampling mask of token %d contains %d", i, slices.Min(mask[:n]))
		}
		mask = mask[n:]
	}
	if len(mask) > 0 {
		return fmt.Errorf("%d ids in the sampling masks belong to no token", len(mask))
	}
	return nil
}

// appendInside appends the values from inside call c. The output of c begins at token lo of the row,
// which begins with the whole prompt of c. Until endInside, the values can end before the end of the
// row.
func (r *Row) appendInside(c *Call, lo int, keep Inside) {
	if keep.WeightVersions {
		for _, s := range outputSpans(c.WeightVersion, c.WeightSpans, len(c.OutputIDs)) {
			r.endVersion("", lo+int(s.Start))
			r.endVersion(s.Version, lo+int(s.End))
		}
	}
	// The first call that has a value for a token decides: the call that sampled the token or, for the
	// last token of an output, the next call.
	if known := r.Experts.Tokens(); keep.Experts != (ExpertShape{}) && c.Experts.Tokens() > known {
		r.Experts.Shape = keep.Experts
		r.Experts.IDs = append(r.Experts.IDs, c.Experts.IDs[known*keep.Experts.TokenBytes():]...)
	}
	if keep.SamplingMask && len(c.SamplingMask) > 0 {
		r.MaskLengths = append(padded32(r.MaskLengths, lo), c.MaskLengths...)
		r.SamplingMask = append(r.SamplingMask, c.SamplingMask...)
	}
}

// endVersion ends a run of tokens with the same version before token end.
func (r *Row) endVersion(version string, end int) {
	k := len(r.WeightVersionEnds)
	switch {
	case k > 0 && int(r.WeightVersionEnds[k-1]) >= end || end == 0:
	case k > 0 && r.WeightVersions[k-1] == version:
		r.WeightVersionEnds[k-1] = int32(end)
	default:
		r.WeightVersions, r.WeightVersionEnds = append(r.WeightVersions, version), append(r.WeightVersionEnds, int32(end))
	}
}

// padded32 appends zeros until list has length n.
func padded32(list []int32, n int) []int32 {
	return append(list, make([]int32, max(0, n-len(list)))...)
}

// trimInside removes the values of all tokens from position n on.
func (r *Row) trimInside(n int) {
	for k := len(r.WeightVersionEnds); k > 0; k-- {
		if k > 1 && int(r.WeightVersionEnds[k-2]) >= n {
			continue
		}
		r.WeightVersions, r.WeightVersionEnds = r.WeightVersions[:k], r.WeightVersionEnds[:k]
		r.WeightVersionEnds[k-1] = min(r.WeightVersionEnds[k-1], int32(n))
		break
	}
	if e := &r.Experts; e.Tokens() > n {
		e.IDs = e.IDs[:n*e.Shape.TokenBytes()]
	}
	if len(r.MaskLengths) > n {
		for _, k := range r.MaskLengths[n:] {
			r.SamplingMask = r.SamplingMask[:len(r.SamplingMask)-int(k)]
		}
		r.MaskLengths = r.MaskLengths[:n]
	}
}

// endInside appends fillers for the tokens at the end of the row that have no values.
func (r *Row) endInside() {
	n := len(r.InputIDs)
	if slices.ContainsFunc(r.WeightVersions, func(v string) bool { return v != "" }) {
		r.endVersion("", n)
	} else {
		r.WeightVersions, r.WeightVersionEnds = nil, nil
	}
	if e := &r.Experts; e.IDs != nil {
		for want := n * e.Shape.TokenBytes(); len(e.IDs) < want; {
			e.IDs = append(e.IDs, 0xff) // -1
		}
	}
	if r.MaskLengths != nil {
		r.MaskLengths = padded32(r.MaskLengths, n)
	}
}

// checkInside verifies the values from inside the calls.
func (r *Row) checkInside() error {
	n := len(r.InputIDs)
	if err := cmp.Or(r.Experts.check(n), r.checkVersions(n)); err != nil {
		return rowError(-1, -1, ErrInvariant, "%v", err)
	}
	if r.MaskLengths == nil {
		if r.SamplingMask != nil {
			return rowError(-1, -1, ErrLength, "%d ids in sampling masks without lengths", len(r.SamplingMask))
		}
		return nil
	}
	if err := checkMask(r.SamplingMask, r.MaskLengths, r.InputIDs); err != nil {
		return rowError(-1, -1, ErrInvariant, "%v", err)
	}
	for k, role := range r.TurnRoles {
		for i := r.TurnOffsets[k]; i < r.TurnOffsets[k+1] && Role(role) != RoleAssistant; i++ {
			if r.MaskLengths[i] != 0 {
				return rowError(k, int(i), ErrInvariant, "a sampling mask for a token that was not sampled")
			}
		}
	}
	return nil
}

func (r *Row) checkVersions(n int) error {
	names, ends := r.WeightVersions, r.WeightVersionEnds
	if len(names) != len(ends) {
		return fmt.Errorf("%d weight versions, but %d ends", len(names), len(ends))
	}
	begin, k := int32(0), 0
	for i, end := range ends {
		if end <= begin || i > 0 && names[i] == names[i-1] {
			return fmt.Errorf("the run of weight version %q from token %d to %d is empty or continues the one before it", names[i], begin, end)
		}
		for ; names[i] != "" && k < len(r.TurnRoles) && r.TurnOffsets[k] < end; k++ {
			if Role(r.TurnRoles[k]) != RoleAssistant && r.TurnOffsets[k+1] > begin {
				return fmt.Errorf("weight version %q covers token %d, which was not sampled", names[i], max(begin, r.TurnOffsets[k]))
			}
			if r.TurnOffsets[k+1] > end {
				break
			}
		}
		begin = end
	}
	if len(ends) > 0 && int(begin) != n {
		return fmt.Errorf("the runs of the weight versions end at token %d of %d", begin, n)
	}
	return nil
}
