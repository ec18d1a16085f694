package decode

import (
	"encoding/json"
	"regexp"
	"strings"
)

var (
	recipient  = regexp.MustCompile(`\bto=(?:functions\.)?([^\s<]+)`)
	harmonyEnd = regexp.MustCompile(`<\|(?:end|return|call)\|>\s*$`)
)

// harmonyRole returns the name of the role in a header. The result of a tool has the header
// "functions.add to=assistant<|channel|>commentary".
func harmonyRole(head string) string {
	if strings.Contains(head, "to=assistant") {
		return Tool
	}
	head, _, _ = strings.Cut(head, "<|channel|>")
	head, _, _ = strings.Cut(strings.TrimSpace(head), " ")
	return head
}

// harmony splits the text of an answer of gpt-oss. It consists of messages with a header each: the analysis is
// reasoning, and a message to a function is a call. Text without a header is content. If tools is false, calls are
// content.
func (m *Message) harmony(calls *int, tools bool) {
	var content, reasoning []string
	for part := range strings.SplitSeq(m.Content, "<|start|>") {
		header, body, ok := strings.Cut(part, "<|message|>")
		if !ok {
			header, body = "", strings.TrimPrefix(part, Assistant)
			if strings.Contains(part, "<|channel|>") && !harmonyEnd.MatchString(part) {
				continue // a header that is cut off
			}
		}
		body = strings.TrimSpace(harmonyEnd.ReplaceAllString(body, ""))
		to := recipient.FindStringSubmatch(header)
		switch arguments, valid := object(json.RawMessage(body)); {
		case to != nil && valid && body != "" && tools:
			m.add([]Call{{Name: to[1], Arguments: arguments}}, calls)
		case to == nil && strings.Contains(header, "<|channel|>analysis"):
			reasoning = append(reasoning, body)
		case body != "":
			content = append(content, body)
		}
	}
	m.Content, m.Reasoning = strings.Join(content, "\n"), strings.Join(reasoning, "\n")
}
