package letta

import "strings"

// A Content is the content of a message: a string or a list of parts. The zero Content is null.
type Content struct {
	// Text is set if the content is a string.
	Text string
	// Parts is set if the content is a list.
	Parts []ContentPart
}

// String returns the text parts joined by newlines, as on the server's native path. Other parts are
// dropped. Source: adapters/sglang_native_adapter.py:99-157.
func (c Content) String() string {
	if c.Parts == nil {
		return c.Text
	}
	var texts []string
	for i := range c.Parts {
		if c.Parts[i].Type == "text" {
			texts = append(texts, c.Parts[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

func (c *Content) read(s *scanner) {
	if *c = (Content{}); s.Kind() == '[' {
		into(s, &c.Parts)
	} else {
		into(s, &c.Text)
	}
}

// A ContentPart is one part of a Content.
type ContentPart struct {
	// JSON is the JSON text of the part. If the part is not text, JSON is the only field that
	// contains its data.
	JSON RawJSON
	// Type is text, image, tool_call, tool_return, reasoning, redacted_reasoning,
	// omitted_reasoning, summarized_reasoning, or a type that only a newer server uses.
	Type string `letta:"type,kind"`
	// Text is the text of a part of type text.
	Text string `letta:"text" kinds:"text"`
}
