package lettasim

import (
	"regexp"
	"slices"
)

// A template is a recorded value with the positions of its physical ids. Ids are replaced in place:
// a new UUID has the same length, so all other bytes keep their positions.
type template struct {
	raw   []byte
	holes []hole
}

// A hole is the position of a UUID in the raw bytes, and the number of its id.
type hole struct{ offset, id int }

// An idTable numbers the ids of a case.
type idTable struct {
	names  []string // the recorded ids with their prefix
	number map[string]int
}

func (t *idTable) of(name string) int {
	n, ok := t.number[name]
	if !ok {
		n = len(t.names)
		t.names = append(t.names, name)
		if t.number == nil {
			t.number = map[string]int{}
		}
		t.number[name] = n
	}
	return n
}

var physicalID = regexp.MustCompile(`^"(agent|run|step|message|conv|provider_trace)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"$`)

// idKeys are the members that contain physical ids. Ids elsewhere are not replaced. For example, a
// system text names its agent, which is part of the prompt that the model saw.
var idKeys = map[string]bool{
	"id": true, "agent_id": true, "run_id": true, "step_id": true, "conversation_id": true, "message_id": true,
	"message_ids": true, "in_context_message_ids": true, "pending_request_id": true, "approval_request_id": true,
}

// opaqueKeys are members that are not searched for ids.
var opaqueKeys = map[string]bool{"turns": true, "logprobs": true, "request_json": true, "response_json": true, "content": true, "tools": true, "llm_config": true}

func newTemplate(raw []byte, ids *idTable) template {
	t := template{raw: raw}
	t.find(0, len(raw), false, ids)
	return t
}

func (t *template) find(start, end int, isID bool, ids *idTable) {
	b := t.raw[start:end]
	i := skipSpace(b, 0)
	if i == len(b) {
		return
	}
	switch b[i] {
	case '{':
		members(b, func(key string, from, to int) {
			if !opaqueKeys[key] {
				t.find(start+from, start+to, idKeys[key], ids)
			}
		})
	case '[':
		elements(b, func(from, to int) { t.find(start+from, start+to, isID, ids) })
	case '"':
		if value := b[i:skipString(b, i)]; isID && physicalID.Match(value) {
			name := string(value[1 : len(value)-1])
			t.holes = append(t.holes, hole{offset: start + i + 1 + len(name) - 36, id: ids.of(name)})
		}
	}
}

// with returns the bytes with other ids. With nil it returns the shared, recorded bytes.
func (t template) with(ids []string) []byte {
	if ids == nil {
		return t.raw
	}
	out := slices.Clone(t.raw)
	for _, h := range t.holes {
		name := ids[h.id]
		copy(out[h.offset:h.offset+36], name[len(name)-36:])
	}
	return out
}
