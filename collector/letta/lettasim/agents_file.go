package lettasim

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
)

// exportAgent answers with an agent file, which contains the state and the system message.
func (s *Server) exportAgent(q *request) answer {
	a, problem := s.findAgent(q.args[0])
	if problem != nil {
		return detail(http.StatusInternalServerError, "Export failed: The following agent IDs were not found: ['%s']", q.args[0])
	}
	o := a.state.clone()
	o.set("messages", append(append([]byte(`[{"type":"message","role":"system","content":[{"type":"text","text":`), quote(nil, a.systemText())...), `}]}]`...))
	body := o.append([]byte(`{"agents":[`))
	return ok(append(body, `],"groups":[],"blocks":[],"files":[],"sources":[],"tools":[],"mcp_servers":[],"metadata":{"revision_id":"lettasim"},"created_at":null}`...))
}

func (a *agent) systemText() string {
	var list []struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(a.system, &list) != nil || len(list) == 0 {
		return ""
	}
	return list[0].Content
}

// importAgent creates an agent from an agent file and keeps the file's system text unchanged.
func (s *Server) importAgent(q *request) answer {
	bad := func(text string) answer { return detail(http.StatusBadRequest, "Invalid agent file: %s", text) }
	form := q.Clone(q.Context())
	form.Body = io.NopCloser(strings.NewReader(string(q.body)))
	if err := form.ParseMultipartForm(maxRequestBytes); err != nil {
		return unprocessable("missing", "'body', 'file'", "Field required")
	}
	file, _, err := form.FormFile("file")
	if err != nil {
		return unprocessable("missing", "'body', 'file'", "Field required")
	}
	defer func() { _ = file.Close() }() // read only
	text, err := io.ReadAll(file)
	if err != nil {
		return bad("unreadable")
	}
	var af struct {
		Agents []struct {
			newAgent
			LLMConfig struct {
				Handle string `json:"handle"`
			} `json:"llm_config"`
			Tools    []json.RawMessage `json:"tools"`
			Messages []struct {
				Role    string
				Content json.RawMessage
			} `json:"messages"`
		} `json:"agents"`
	}
	if err := json.Unmarshal(text, &af); err != nil || len(af.Agents) != 1 {
		return bad("want the v2 format with one agent")
	}
	in := af.Agents[0]
	n := in.newAgent
	n.Model = cmp.Or(n.Model, in.LLMConfig.Handle)
	if m := form.FormValue("model"); m != "" {
		n.Model = m
	}
	if !slices.Contains(s.handles(), n.Model) {
		return s.noModel(n.Model)
	}
	name := form.FormValue("name")
	if name == "" && n.Name != nil {
		name = *n.Name
	}
	if form.FormValue("append_copy_suffix") != "false" {
		name += "_copy"
	}
	n.Name = &name
	a, problem := s.makeAgent(n)
	if problem != nil {
		return *problem
	}
	s.mu.Lock()
	if a.life == nil {
		for _, m := range in.Messages {
			if m.Role == "system" {
				a.setSystem(plainText(m.Content))
				break
			}
		}
		if len(in.Tools) > 0 {
			tools := array(in.Tools)
			o := a.state.clone()
			o.set("tools", tools)
			a.state, a.sigs = o, signatures(tools)
		}
	}
	s.mu.Unlock()
	return ok(append(quoteAll([]byte(`{"agent_ids":`), []string{a.id}), '}'))
}

// plainText returns the text in the content of a message. The content is a string or a list of
// parts. plainText joins parts with newlines.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n")
}
