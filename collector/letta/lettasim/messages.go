package lettasim

import "net/http"

// systemTail is the text that the server appends to a system prompt. The text contains the same
// agent id for all agents, as if all agents were imported from the same file. So all samples of a
// task have the same prompt.
const systemTail = "\n\n\n\n<memory_metadata>\n- AGENT_ID: agent-00000000-0000-4000-8000-000000000000\n- CONVERSATION_ID: default\n" +
	"- System prompt last recompiled: 2026-01-05 09:59:58 AM UTC+0000\n- 0 previous messages between you and the user are stored in recall memory\n</memory_metadata>"

func (a *agent) setSystem(text string) {
	out := quote([]byte(`[{"id":`), a.systemID)
	out = append(out, `,"date":"2026-01-05T09:59:58+00:00","name":null,"message_type":"system_message","otid":null,"sender_id":null,"step_id":null,"is_err":null,"seq_id":null,"run_id":null,"content":`...)
	a.system = append(quote(out, text), `}]`...)
}

func (s *Server) getMessage(q *request) answer {
	if !isID(q.args[0], "message") {
		return badID("message")
	}
	if a := s.systems[q.args[0]]; a != nil {
		return ok(s.look(a, LookSystem).text(a.system))
	}
	for _, r := range s.runs {
		if s.finished(r) {
			var parts [][]byte // a stored message can consist of several messages in the list
			for _, m := range r.source.messages() {
				if messageID(m) == q.args[0] {
					parts = append(parts, asReasoning(m))
				}
			}
			if parts != nil {
				return ok(array(parts))
			}
		}
	}
	return detail(http.StatusNotFound, "Message with id %s not found.", q.args[0])
}

func messageID(m []byte) string { return member(m, "id") }

// member returns the value of a string member in the object b, or "".
func member(b []byte, key string) string {
	value := ""
	members(b, func(k string, from, to int) {
		if k == key && to-from >= 2 && b[from] == '"' {
			value = string(b[from+1 : to-1])
		}
	})
	return value
}
