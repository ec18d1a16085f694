package rescore

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A decoder turns the rows of a sample into what a scorer sees at collection. The text comes from the
// tokens of the rows.
type decoder struct {
	tokens *decode.Decoder
	// conversation is true if the scorer reads the conversation.
	conversation bool
}

// errLost means that the tokens of the last call are in no row.
var errLost = errors.New("the tokens of the model's last call are lost, so its answer is unknown")

// reply returns the reply of a sample, and the call that wrote its text. The rows are all rows of the sample.
func (d *decoder) reply(rows []sink.StoredRow) (*collector.Reply, []tokenize.Call) {
	first := &rows[0]
	r := &collector.Reply{AgentID: first.AgentID, Model: first.Model}
	text, call := d.answer(rows)
	r.Output, r.Text = text, text
	send := collector.Send{StopReason: first.StopReason}
	var list []tokenize.Call
	if call != nil {
		send.Turns = []tokenize.Turn{{Role: tokenize.RoleAssistant, Content: text, OutputIDs: call.OutputIDs}}
		list = []tokenize.Call{*call}
	}
	r.Sends = []collector.Send{send}
	switch {
	case !d.conversation:
	case first.Messages != nil:
		r.Messages = json.RawMessage(*first.Messages)
	default:
		r.Messages = d.messages(rows)
	}
	return r, list
}

// answer returns the text of the last assistant message in the main conversation, and its call. A call that
// wrote only tool calls has no such message. The search ends at the last message of the user, as the
// text of a server's last response does.
func (d *decoder) answer(rows []sink.StoredRow) (string, *tokenize.Call) {
	var last *tokenize.Call
	for i := len(rows) - 1; i >= 0; i-- {
		r := &rows[i]
		if r.Chain != 0 {
			continue
		}
		n := calls(r) // number of calls before the span
		for k, role := range slices.Backward(r.TurnRoles) {
			from, to := r.TurnOffsets[k], r.TurnOffsets[k+1]
			if tokenize.Role(role) == tokenize.RoleUser {
				return "", last
			}
			if tokenize.Role(role) != tokenize.RoleAssistant {
				continue
			}
			n--
			call := &tokenize.Call{PromptIDs: r.InputIDs[:from], OutputIDs: r.InputIDs[from:to]}
			if n < len(r.FinishReasons) {
				call.FinishReason = r.FinishReasons[n]
			}
			if text := d.tokens.Answer(call.OutputIDs); text != "" {
				return text, call
			}
			if last == nil {
				last = call
			}
		}
	}
	return "", last
}

// calls returns the number of the policy's spans in a row.
func calls(r *sink.StoredRow) (n int) {
	for _, role := range r.TurnRoles {
		if tokenize.Role(role) == tokenize.RoleAssistant {
			n++
		}
	}
	return n
}

// messages returns the main conversation, decoded from the tokens.
func (d *decoder) messages(rows []sink.StoredRow) json.RawMessage {
	var all [][]decode.Message
	for i := range rows {
		if rows[i].Chain == 0 {
			all = append(all, d.tokens.Messages(&rows[i]))
		}
	}
	return decode.AppendJSON(nil, decode.Merge(all))
}

// A failedCall is a call of a sample that is in no row.
type failedCall struct {
	call      int
	untrained bool // the call is valid, but was not to be trained on
}

// lostAnswer reports whether the tokens of the sample's last call were quarantined.
func lostAnswer(rows []sink.StoredRow, failed []failedCall) bool {
	n := len(failed)
	for i := range rows {
		n += len(rows[i].FinishReasons)
	}
	for _, f := range failed {
		if f.call == n-1 && !f.untrained {
			return true
		}
	}
	return false
}
