package handover

import (
	"io"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
)

// A tinkerWriter writes one object per row. Its member datum is a tinker.Datum in the JSON of tinker's API:
// the input is all tokens but the last, and every list in loss_fn_inputs is about the next token. The advantage
// is the reward minus the mean of the group, and 0 on tokens that are not trained on. All rows of a sample
// have the same advantage.
type tinkerWriter struct {
	flat
	w       io.Writer
	rewards Rewards
	left    *Left
	buf     []byte
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
	advantage := strconv.AppendFloat(nil, w.rewards.centered(r), 'g', -1, 32)
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
