package lettasim

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// TaskOptions configures [Server.Tasks].
type TaskOptions struct {
	// Cases adds one task for every recorded case. The task's id is the name of the case.
	Cases bool
	// Scripted is the number of scripted tasks (scripted-0001, …). Each task asks for the sum of two
	// numbers and includes the answer.
	Scripted int
}

// Tasks returns tasks that this server can answer, as JSON Lines. The task for a case contains the
// recorded user messages and, in its member agent, the settings of the recorded client. A task
// cannot define a client tool. So if a client tool returned a result in the case, the configuration
// must define the client tool bash.
func (s *Server) Tasks(o TaskOptions) []byte {
	var out []byte
	if o.Cases {
		for _, c := range s.cfg.Cases {
			out = append(c.appendTask(out), '\n')
		}
	}
	for i := range max(0, o.Scripted) {
		id := fmt.Sprintf("scripted-%04d", i+1)
		r := draw(s.cfg.Seed, "task", id)
		a, b := r.n(100), r.n(100)
		out = fmt.Appendf(out, `{"id":"%s","prompt":"Add %d and %d.","answer":"%d"}`+"\n", id, a, b, a+b)
	}
	return out
}

func (c *Case) appendTask(dst []byte) []byte {
	var texts []string
	asked := newObject()
	for _, x := range c.rec.Exchanges {
		var body struct {
			MaxSteps      *int    `json:"max_steps"`
			OverrideModel *string `json:"override_model"`
			Messages      []struct {
				Role      string
				Content   json.RawMessage
				Approvals []struct{ Approve *bool }
			}
		}
		if json.Unmarshal(x.Request.Body, &body) != nil {
			continue
		}
		if body.MaxSteps != nil {
			asked.set("max_steps", strconv.AppendInt(nil, int64(*body.MaxSteps), 10))
		}
		if body.OverrideModel != nil {
			asked.text("override_model", *body.OverrideModel)
		}
		for _, m := range body.Messages {
			var text string
			if m.Role == "user" && json.Unmarshal(m.Content, &text) == nil {
				texts = append(texts, text)
			}
			for _, a := range m.Approvals {
				if a.Approve != nil {
					asked.text("approvals", map[bool]string{true: "approve", false: "deny"}[*a.Approve])
				}
			}
		}
	}
	dst = quote(append(dst, `{"id":`...), c.Name)
	switch len(texts) {
	case 0:
		dst = quote(append(dst, `,"prompt":`...), "Hi. [case:"+c.Name+"]")
	case 1:
		dst = quote(append(dst, `,"prompt":`...), texts[0])
	default:
		dst = quoteAll(append(dst, `,"messages":`...), texts)
	}
	if o, err := parseObject(c.rec.Agent); err == nil && flagsOf(o).Reasoning {
		asked.set("keep_reasoning", []byte("true"))
	}
	if len(asked.keys) > 0 {
		dst = asked.append(append(dst, `,"agent":`...))
	}
	return append(dst, '}')
}
