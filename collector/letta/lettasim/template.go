package lettasim

import (
	"regexp"
	"slices"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A template is a recorded value with the positions of the ids to replace. Ids are replaced in
// place, because a new UUID has the same length.
type template struct {
	raw   []byte
	holes []hole
}

// A hole is the position of a UUID in the raw bytes and the number of the id in the idTable.
type hole struct{ offset, id int }

// An idTable assigns a number to each id in a case.
type idTable struct {
	names  []string // the recorded ids, including their prefixes
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

// idKeys contains the members whose ids are replaced. Other ids are not replaced. For example, the
// agent id in a system text is part of the prompt that the model saw.
var idKeys = map[string]bool{
	"id": true, "agent_id": true, "run_id": true, "step_id": true, "conversation_id": true, "message_id": true,
	"message_ids": true, "in_context_message_ids": true, "pending_request_id": true, "approval_request_id": true,
}

// opaqueKeys contains the members that are not searched for ids.
var opaqueKeys = map[string]bool{"turns": true, "logprobs": true, "request_json": true, "response_json": true, "content": true, "tools": true, "llm_config": true}

func newTemplate(raw []byte, ids *idTable) template {
	t := template{raw: raw}
	t.find(newScanner(raw), false, ids)
	return t
}

func (t *template) find(s *strictjson.Scanner, isID bool, ids *idTable) {
	switch s.Kind() {
	case '{':
		for key := range s.Members {
			if !opaqueKeys[key] {
				t.find(s, idKeys[key], ids)
			}
		}
	case '[':
		for range s.Elements {
			t.find(s, isID, ids)
		}
	case '"':
		if value := s.Raw(); isID && physicalID.MatchString(value) {
			t.holes = append(t.holes, hole{offset: s.Offset() - 1 - 36, id: ids.of(value[1 : len(value)-1])})
		}
	default:
		s.Skip()
	}
}

// The method with returns a copy of the bytes with the given ids. If ids is nil, it returns the
// recorded bytes, which the caller must not modify.
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
