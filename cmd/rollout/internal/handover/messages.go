package handover

import (
	"bytes"
	"io"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
)

// A conversation is a conversation of a sample.
type conversation struct {
	row      *sink.StoredRow
	messages []decode.Message
	stored   bool // the messages come from the column messages and describe the whole sample
}

// countRoles counts the messages whose role is not known.
func (l *Left) countRoles(all []decode.Message) {
	for i := range all {
		if all[i].Role == decode.Unknown {
			l.Roleless++
		}
	}
}

// conversationOf returns the conversation of a row. Without a decoder, it returns the stored conversation of
// the sample for the first row of the sample, and false for its other rows.
func conversationOf(r *sink.StoredRow, d *decode.Decoder, left *Left) (c conversation, ok bool) {
	if d != nil {
		messages := d.Messages(r)
		left.countRoles(messages)
		return conversation{r, messages, false}, true
	}
	if r.SegmentIndex != 0 {
		return c, false
	}
	if r.Messages != nil {
		if messages, err := decode.Stored(*r.Messages); err == nil {
			return conversation{r, messages, true}, true
		}
	}
	left.Textless++
	return c, false
}

// copied reports whether a message is an answer that the policy did not sample in this row.
func (c *conversation) copied(m *decode.Message) bool {
	return m.Role == decode.Assistant && m.Span < 0 && !c.stored
}

// A messagesWriter writes one object per conversation, with the list messages of OpenAI's Chat Completions API.
// An answer that is only context of the row has weight 0, as in OpenAI's files for fine-tuning.
type messagesWriter struct {
	flat
	w       io.Writer
	options Options
	left    *Left
	buf     []byte
}

// Write implements Writer.
func (w *messagesWriter) Write(r *sink.StoredRow) (bool, error) {
	c, ok := conversationOf(r, w.options.Decoder, w.left)
	if !ok {
		return false, nil
	}
	b := append(w.buf[:0], `{"messages":[`...)
	for i := range c.messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.messages[i].AppendJSON(b)
		if c.copied(&c.messages[i]) {
			b = append(b[:len(b)-1], `,"weight":0}`...)
		}
	}
	w.buf = append(appendIdentity(append(b, ']', ','), &c), "}\n"...)
	_, err := w.w.Write(w.buf)
	return true, err
}

// appendReward appends a reward. A whole number ends with .0, because readers take the type of a column from its
// first values.
func appendReward(b []byte, reward *float64) []byte {
	if reward == nil {
		return append(b, `null`...)
	}
	n := len(b)
	if b = strconv.AppendFloat(b, *reward, 'g', -1, 64); !bytes.ContainsAny(b[n:], ".e") {
		b = append(b, `.0`...)
	}
	return b
}

// appendIdentity appends the members that identify and describe a conversation.
func appendIdentity(b []byte, c *conversation) []byte {
	r := c.row
	b = appendReward(append(b, `"reward":`...), r.Reward)
	for _, m := range []struct{ name, text string }{
		{"sample_key", r.SampleKey}, {"rollout_id", r.RolloutID}, {"task_id", r.TaskID}, {"group_id", r.GroupID}, {"status", r.Status}, {"model", r.Model},
	} {
		b = rowjson.AppendText(append(append(append(b, `,"`...), m.name...), `":`...), m.text)
	}
	b = appendInt(append(b, `,"sample_index":`...), int(r.SampleIndex))
	if !c.stored {
		b = appendInt(append(b, `,"segment_index":`...), int(r.SegmentIndex))
		b = rowjson.AppendText(append(b, `,"chain_kind":`...), r.ChainKind)
		b = strconv.AppendBool(append(b, `,"truncated":`...), r.Truncated)
	}
	b = appendInt(append(b, `,"segment_count":`...), int(r.SegmentCount))
	return strconv.AppendBool(append(b, `,"keep":`...), r.Keep == nil || *r.Keep)
}
