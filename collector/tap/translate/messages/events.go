package messages

import (
	"encoding/json"
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Waiting appends a ping. The SDKs for Python and JavaScript ignore it, even as the first event.
func (reply) Waiting(dst []byte) []byte {
	return append(dst, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// Events appends the events of a message. Each block has one delta with its text.
func (reply) Events(dst []byte, a *translate.Answer) []byte {
	w := eventWriter{dst: dst}
	w.begin("message_start")
	w.dst = append(w.dst, `,"message":`...)
	w.dst = appendHead(w.dst, a)
	w.dst = append(w.dst, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	w.dst = append(appendUsage(w.dst, a, 0), '}')
	w.end()

	if spoken(a.Reasoning) {
		w.start(`{"type":"thinking","thinking":"","signature":""}`)
		w.delta("thinking_delta", "thinking", string(a.Reasoning))
		w.delta("signature_delta", "signature", `"`+a.ID+`"`)
		w.stop()
	}
	for _, text := range [...]json.RawMessage{a.Content, a.Refusal} {
		if spoken(text) {
			w.start(`{"type":"text","text":""}`)
			w.delta("text_delta", "text", string(text))
			w.stop()
		}
	}
	for i := range a.Calls {
		w.start(string(append(appendCall(nil, a, i), "{}}"...)))
		w.delta("input_json_delta", "partial_json", string(strictjson.AppendText(nil, input(a.Calls[i].Arguments))))
		w.stop()
	}

	w.begin("message_delta")
	w.dst = append(w.dst, `,"delta":{`...)
	w.dst = appendStop(w.dst, a)
	w.dst = append(w.dst, `},"usage":`...)
	w.dst = appendUsage(w.dst, a, a.OutputTokens)
	w.end()
	w.begin("message_stop")
	w.end()
	return w.dst
}

// Failed appends an event that reports an error.
func (reply) Failed(dst []byte, e *translate.Error) []byte {
	dst = append(dst, "event: error\ndata: "...)
	return append(append(dst, Dialect{}.Error(e)...), "\n\n"...)
}

// An eventWriter appends events. index is the index of the current block.
type eventWriter struct {
	dst   []byte
	index int64
}

// begin appends the beginning of an event, up to its type.
func (w *eventWriter) begin(kind string) {
	w.dst = append(append(w.dst, "event: "...), kind...)
	w.dst = append(append(w.dst, "\ndata: {\"type\":\""...), kind...)
	w.dst = append(w.dst, '"')
}

func (w *eventWriter) end() { w.dst = append(w.dst, "}\n\n"...) }

func (w *eventWriter) indexed(kind string) {
	w.begin(kind)
	w.dst = strconv.AppendInt(append(w.dst, `,"index":`...), w.index, 10)
}

func (w *eventWriter) start(block string) {
	w.indexed("content_block_start")
	w.dst = append(append(w.dst, `,"content_block":`...), block...)
	w.end()
}

// delta appends a delta with a JSON string.
func (w *eventWriter) delta(kind, member, text string) {
	w.indexed("content_block_delta")
	w.dst = append(append(w.dst, `,"delta":{"type":"`...), kind...)
	w.dst = append(append(append(w.dst, `","`...), member...), `":`...)
	w.dst = append(append(w.dst, text...), '}')
	w.end()
}

func (w *eventWriter) stop() {
	w.indexed("content_block_stop")
	w.end()
	w.index++
}
