package lettasim

import (
	"regexp"
	"slices"
)

// A template is a recorded value together with the places where physical ids
// stand in it. Ids are exchanged in place: a new uuid is as long as the old one,
// so every other byte stays where it was.
type template struct {
	raw   []byte
	holes []hole
}

// A hole is the position of a uuid in the raw bytes, and which id it is.
type hole struct{ offset, id int }

// An idTable numbers the ids of a case.
type idTable struct {
	names  []string // with their prefix, as they were recorded
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

// idKeys are the members that hold physical ids. Everything else is left alone,
// whatever it looks like: a system text names its agent, and that is part of the
// prompt that the model saw.
var idKeys = map[string]bool{
	"id": true, "agent_id": true, "run_id": true, "step_id": true, "conversation_id": true, "message_id": true,
	"message_ids": true, "in_context_message_ids": true, "pending_request_id": true, "approval_request_id": true,
}

// opaqueKeys are members inside which no id is looked for.
var opaqueKeys = map[string]bool{"turns": true, "logprobs": true, "request_json": true, "response_json": true, "content": true, "tools": true, "llm_config": true}

func newTemplate(raw []byte, ids *idTable) template {
	t := template{raw: raw}
	t.find(0, len(raw), false, ids)
	return t
}

// find looks for ids in the value raw[start:end].
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

// with returns the bytes under other ids; nil ids are the recorded ones, and the
// result must then not be written to.
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
