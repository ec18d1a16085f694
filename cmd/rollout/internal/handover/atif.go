package handover

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
)

// schemaVersion is the version of ATIF that the writer writes.
const schemaVersion = "ATIF-v1.8"

// An atifWriter writes one trajectory per row and line. The rows of a sample have the same session_id.
//
// A step is a message. The steps that the policy sampled have metrics with the prompt, the sampled ids and
// their log-probabilities. If a sampled token has no log-probability, metrics.logprobs is absent, because 0
// would claim certainty; metrics.extra then contains logprobs and loss_mask. The results of tools are in
// the observation of the step that called them. extra.rollout contains all other columns of the row.
type atifWriter struct {
	flat
	w       io.Writer
	options Options
	left    *Left
	buf     []byte
}

// Write implements Writer.
func (a *atifWriter) Write(r *sink.StoredRow) (bool, error) {
	b := append(a.buf[:0], `{"schema_version":"`+schemaVersion+`","session_id":`...)
	b = rowjson.AppendText(b, r.RolloutID)
	b = rowjson.AppendText(append(b, `,"trajectory_id":`...), name(r))
	b = rowjson.AppendText(append(b, `,"agent":{"name":"rollout","version":`...), a.options.Program)
	if r.Model != "" {
		b = rowjson.AppendText(append(b, `,"model_name":`...), r.Model)
	}
	b = append(b, `},"steps":[`...)
	messages := a.options.Decoder.Messages(r)
	a.left.countRoles(messages)
	steps, prompt, sampled := 0, 0, 0
	for len(messages) > 0 {
		m, results := messages[0], 0
		if m.Role == decode.Tool {
			m = decode.Message{Role: decode.System, Span: -1} // no step calls the tool
		} else {
			messages = messages[1:]
		}
		for results < len(messages) && messages[results].Role == decode.Tool && m.Role != decode.User {
			results++
		}
		if steps++; steps > 1 {
			b = append(b, ',')
		}
		b = appendStep(b, r, steps, &m, messages[:results])
		messages = messages[results:]
		if m.Span >= 0 {
			prompt, sampled = prompt+int(r.TurnOffsets[m.Span]), sampled+int(r.TurnOffsets[m.Span+1]-r.TurnOffsets[m.Span])
		}
		if len(b) > 1<<20 { // the prompts of a row with many calls are long
			if _, err := a.w.Write(b); err != nil {
				return false, err
			}
			b = b[:0]
		}
	}
	b = appendInt(append(b, `],"final_metrics":{"total_prompt_tokens":`...), prompt)
	b = appendInt(append(b, `,"total_completion_tokens":`...), sampled)
	b = appendInt(append(b, `,"total_steps":`...), steps)
	b = rowjson.AppendFacts(append(b, `},"extra":{"rollout":`...), r)
	if rest := r.InputIDs[endOfSampled(r):]; len(rest) > 0 {
		b = rowjson.AppendIDs(append(b, `,"trailing_token_ids":`...), rest)
	}
	a.buf = append(b, "}}\n"...)
	_, err := a.w.Write(a.buf)
	return true, err
}

// endOfSampled returns the position after the last assistant span of the row.
func endOfSampled(r *sink.StoredRow) int32 {
	for k, role := range slices.Backward(r.TurnRoles) {
		if sampledSpan(role) {
			return r.TurnOffsets[k+1]
		}
	}
	return 0
}

// appendStep appends a step with the results of its tools.
func appendStep(b []byte, r *sink.StoredRow, id int, m *decode.Message, results []decode.Message) []byte {
	b = appendInt(append(b, `{"step_id":`...), id)
	source := m.Role
	switch m.Role {
	case decode.Assistant:
		source = "agent"
	case decode.Unknown: // ATIF has no source for it
		source = decode.User
	}
	b = append(append(append(b, `,"source":"`...), source...), '"')
	b = rowjson.AppendText(append(b, `,"message":`...), m.Content)
	if m.Reasoning != "" {
		b = rowjson.AppendText(append(b, `,"reasoning_content":`...), m.Reasoning)
	}
	for i, c := range m.Calls {
		b = append(b, []string{`,"tool_calls":[`, `,`}[min(i, 1)]...)
		b = rowjson.AppendText(append(b, `{"tool_call_id":`...), c.ID)
		b = rowjson.AppendText(append(b, `,"function_name":`...), c.Name)
		b = append(appendCompact(append(b, `,"arguments":`...), c.Arguments), '}')
	}
	if len(m.Calls) > 0 {
		b = append(b, ']')
	}
	for i, result := range results {
		b = append(b, []string{`,"observation":{"results":[`, `,`}[min(i, 1)]...)
		b = append(b, '{')
		if result.CallID != "" {
			b = append(rowjson.AppendText(append(b, `"source_call_id":`...), result.CallID), ',')
		}
		b = append(rowjson.AppendText(append(b, `"content":`...), result.Content), '}')
	}
	if len(results) > 0 {
		b = append(b, `]}`...)
	}
	switch {
	case m.Role != decode.Assistant:
	case m.Span < 0:
		b = append(b, `,"is_copied_context":true`...) // an answer in a prompt; another row trains on it
	default:
		b = appendMetrics(append(b, `,"llm_call_count":1,"metrics":`...), r, m.Span)
	}
	return append(b, '}')
}

// appendCompact appends a JSON object on one line.
func appendCompact(b []byte, object string) []byte {
	out := bytes.NewBuffer(b)
	if json.Compact(out, []byte(object)) != nil {
		return append(b, `{}`...) // cannot happen, because package decode checked the object
	}
	return out.Bytes()
}

// appendMetrics appends the ids and the log-probabilities of an assistant span.
func appendMetrics(b []byte, r *sink.StoredRow, span int) []byte {
	from, to := r.TurnOffsets[span], r.TurnOffsets[span+1]
	b = appendInt(append(b, `{"prompt_tokens":`...), int(from))
	b = appendInt(append(b, `,"completion_tokens":`...), int(to-from))
	b = rowjson.AppendIDs(append(b, `,"prompt_token_ids":`...), r.InputIDs[:from])
	b = rowjson.AppendIDs(append(b, `,"completion_token_ids":`...), r.InputIDs[from:to])
	mask, comma := r.LossMask[from:to], `,"extra":{`
	if slices.Contains(mask, 0) {
		b = append(b, comma+`"loss_mask":[`...)
		for i, m := range mask {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '0'+byte(m))
		}
		b, comma = append(b, `],"logprobs":`...), ","
	} else {
		b = append(b, `,"logprobs":`...)
	}
	b = rowjson.AppendFloats(b, r.Logprobs[from:to])
	if r.Versions != nil {
		b = rowjson.AppendIDs(append(b, comma+`"versions":`...), r.Versions[from:to])
		comma = ","
	}
	if comma == "," {
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
