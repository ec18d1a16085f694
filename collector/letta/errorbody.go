package letta

import (
	"cmp"
	"encoding/json"
	"strings"
)

// parseErrorBody returns the code and the text in the body of an error answer. The server uses
// these forms (letta-ai/letta 0.16.7, server/rest_api/app.py:477-793):
//
//	{"detail": "text"}
//	{"detail": {"code": "PENDING_APPROVAL", "message": "text", …}}
//	{"detail": [{"loc": […], "msg": "text", "type": "missing"}]}     FastAPI's own 422
//	{"detail": "<Python repr>", "trace_id": "", "examples": […]}       422
//	{"error": {"type": "llm_timeout", "message": "text", "detail": "text"}}
//	{"detail": "text", "run_id": "run-…"}
//
// A proxy can send any other body. Secrets are removed from the results again, because unescaping
// can reveal a secret.
func parseErrorBody(text string, secrets scrubber) (code, detail string) {
	body := []byte(text)
	oneLine := func(s string) string { return oneLine(secrets.scrub(s)) }
	var b struct {
		Detail  json.RawMessage `json:"detail"`
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(body, &b) != nil {
		return "", oneLine(stripTags(string(body)))
	}
	for _, part := range []json.RawMessage{b.Error, b.Detail, b.Message} {
		if RawJSON(part).IsNull() {
			continue
		}
		if code, detail = parseErrorPart(part, oneLine); code != "" || detail != "" {
			return code, detail
		}
	}
	return "", oneLine(string(body))
}

func parseErrorPart(raw json.RawMessage, oneLine func(string) string) (code, detail string) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return "", oneLine(text)
	}
	var object struct {
		Code    any             `json:"code"`
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(raw, &object) == nil {
		code, _ = object.Code.(string)
		code = cmp.Or(code, object.Type)
		detail = object.Message
		var more string
		if json.Unmarshal(object.Detail, &more) == nil && more != "" && more != detail {
			detail = strings.TrimPrefix(detail+": "+more, ": ")
		}
		return oneLine(code), oneLine(detail)
	}
	var list []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		var all []string
		for _, e := range list {
			loc, _ := json.Marshal(e.Loc)
			all = append(all, string(loc)+": "+e.Msg)
		}
		return "", oneLine(strings.Join(all, "; "))
	}
	return "", oneLine(string(raw))
}

// stripTags removes the tags of a proxy's HTML page.
func stripTags(s string) string {
	if !strings.Contains(s, "<") {
		return s
	}
	var b strings.Builder
	depth := 0
	for _, r := range s {
		switch {
		case r == '<':
			depth++
		case r == '>' && depth > 0:
			depth--
			b.WriteByte(' ')
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}
