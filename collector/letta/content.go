package letta

import "strings"

// A Content is what a message says: a text, or a list of parts. The server takes
// and sends both forms. The zero Content is null.
type Content struct {
	// Text is set for the text form.
	Text string
	// Parts is set for the other form.
	Parts []ContentPart
}

// String is the text as the server's native path sees it: that of the text parts
// joined by newlines. Parts of other kinds have none and vanish.
// Source: adapters/sglang_native_adapter.py:99-157.
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

// read reads a string, a list of parts, or null.
func (c *Content) read(s *scanner) {
	*c = Content{}
	if s.space() == '[' {
		listOf(s, &c.Parts)
		return
	}
	s.str(&c.Text)
}

// A ContentPart is one part of a content.
type ContentPart struct {
	// JSON is the whole part: what parts of other kinds than text have is in it alone.
	JSON RawJSON
	// Type is text, image, tool_call, tool_return, reasoning, redacted_reasoning,
	// omitted_reasoning, summarized_reasoning, or another word of a newer server.
	Type string
	// Text is the text of a part of type text.
	Text string
}

func (p *ContentPart) read(s *scanner) {
	from := s.start()
	kind := s.union("type", func() { *p = ContentPart{} }, func(kind, name string) {
		if kind == "text" && name == "text" {
			s.str(&p.Text)
		}
	})
	p.Type, p.JSON = kind, s.since(from)
}
