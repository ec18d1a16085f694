package handover

import (
	"io"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
)

// Means contains the mean reward of each group. It takes about 50 bytes per group.
type Means map[sink.KeyID]*mean

type mean struct {
	sum float64
	n   int
}

// Add adds the sample of a row. A sample without a reward, or with keep=false, does not count. Every row of a
// run can be added in any order; a sample counts once.
func (m Means) Add(r *sink.StoredRow) {
	if r.SegmentIndex != 0 || !new(Left).trainable(r) {
		return
	}
	id := sink.IDOf(r.GroupID)
	if m[id] == nil {
		m[id] = &mean{}
	}
	m[id].sum += *r.Reward
	m[id].n++
}

// advantage returns the reward of the row minus the mean of its group.
func (m Means) advantage(r *sink.StoredRow) float32 {
	group := m[sink.IDOf(r.GroupID)]
	return float32(*r.Reward - group.sum/float64(group.n))
}

// A tinkerWriter writes one object per row. Its member datum is a tinker.Datum in the JSON of tinker's API:
// the input is all tokens but the last, and every list in loss_fn_inputs is about the next token. The advantage
// is the reward minus the mean of the group, and 0 on tokens that are not trained on. All rows of a sample
// have the same advantage.
type tinkerWriter struct {
	flat
	w     io.Writer
	means Means
	left  *Left
	buf   []byte
}

// Write implements Writer.
func (w *tinkerWriter) Write(r *sink.StoredRow) (bool, error) {
	if !w.left.trainable(r) {
		return false, nil
	}
	if !slices.Contains(r.LossMask[1:], 1) {
		w.left.Short++
		return false, nil
	}
	w.buf = w.append(w.buf[:0], r)
	_, err := w.w.Write(w.buf)
	return true, err
}

func (w *tinkerWriter) append(b []byte, r *sink.StoredRow) []byte {
	n := len(r.InputIDs) - 1
	advantage := strconv.AppendFloat(nil, float64(w.means.advantage(r)), 'g', -1, 32)
	end := func(b []byte, dtype string) []byte {
		b = append(append(append(b, `,"dtype":"`...), dtype...), `","shape":[`...)
		return append(appendInt(b, n), `]}`...)
	}
	b = rowjson.AppendIDs(append(b, `{"datum":{"model_input":{"chunks":[{"type":"encoded_text","tokens":`...), r.InputIDs[:n])
	b = rowjson.AppendIDs(append(b, `}]},"loss_fn_inputs":{"target_tokens":{"data":`...), r.InputIDs[1:])
	b = rowjson.AppendFloats(append(end(b, "int64"), `,"logprobs":{"data":`...), r.Logprobs[1:])
	b = append(end(b, "float32"), `,"advantages":{"data":[`...)
	for i, m := range r.LossMask[1:] {
		if i > 0 {
			b = append(b, ',')
		}
		if m == 0 {
			b = append(b, '0')
		} else {
			b = append(b, advantage...)
		}
	}
	b = append(b, ']')
	b = rowjson.AppendText(append(end(b, "float32"), `}},"sample_key":`...), r.SampleKey)
	b = appendInt(append(b, `,"segment_index":`...), int(r.SegmentIndex))
	b = rowjson.AppendText(append(b, `,"group_id":`...), r.GroupID)
	b = appendReward(append(b, `,"reward":`...), r.Reward)
	return append(b, "}\n"...)
}
