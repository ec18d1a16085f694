package letta

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A Content is what a message says: a text, or a list of parts. The server takes
// and sends both forms. The zero Content is null.
type Content struct {
	// Text is set for the text form.
	Text *string
	// Parts is set for the other form.
	Parts []ContentPart
}

// TextOf is a content of the text form.
func TextOf(s string) Content { return Content{Text: &s} }

// String is the text as the server's native path sees it: that of the text parts
// joined by newlines. Parts of other kinds have none and vanish.
// Source: adapters/sglang_native_adapter.py:99-157.
func (c Content) String() string {
	if c.Text != nil {
		return *c.Text
	}
	var texts []string
	for _, p := range c.Parts {
		if t, ok := p.(*TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// IsZero says that the content is null.
func (c Content) IsZero() bool { return c.Text == nil && c.Parts == nil }

// UnmarshalJSON takes a string, an array of parts, or null.
func (c *Content) UnmarshalJSON(b []byte) error {
	*c = Content{}
	if len(b) > 0 && b[0] == '[' {
		parts, err := unmarshalUnion(b, newContentPart)
		c.Parts = parts
		return err
	}
	return json.Unmarshal(b, &c.Text)
}

// MarshalJSON writes the form that is set.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return marshalText(c.Parts)
	}
	return marshalText(c.Text)
}

// A ContentPart is one part of a content: a pointer to one of the …Content types,
// or a *Raw.
type ContentPart interface{ contentPart() }

func (*TextContent) contentPart()                {}
func (*ImageContent) contentPart()               {}
func (*ToolCallContent) contentPart()            {}
func (*ToolReturnContent) contentPart()          {}
func (*ReasoningContent) contentPart()           {}
func (*RedactedReasoningContent) contentPart()   {}
func (*OmittedReasoningContent) contentPart()    {}
func (*SummarizedReasoningContent) contentPart() {}
func (*Raw) contentPart()                        {}

func newContentPart(data []byte) (ContentPart, error) {
	kind, err := kindOf(data, "type")
	if err != nil {
		return nil, err
	}
	switch kind {
	case "text":
		return new(TextContent), nil
	case "image":
		return new(ImageContent), nil
	case "tool_call":
		return new(ToolCallContent), nil
	case "tool_return":
		return new(ToolReturnContent), nil
	case "reasoning":
		return new(ReasoningContent), nil
	case "redacted_reasoning":
		return new(RedactedReasoningContent), nil
	case "omitted_reasoning":
		return new(OmittedReasoningContent), nil
	case "summarized_reasoning":
		return new(SummarizedReasoningContent), nil
	}
	return &Raw{Kind: kind}, nil
}

// A TextContent is a piece of text.
type TextContent struct {
	Type      string  `json:"type"` // text
	Text      string  `json:"text"`
	Signature *string `json:"signature,omitempty"`
	Extra     Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *TextContent) UnmarshalJSON(b []byte) error {
	type plain TextContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c TextContent) MarshalJSON() ([]byte, error) {
	type plain TextContent
	return marshalKeeping(plain(c), c.Extra)
}

// An ImageContent is a picture.
type ImageContent struct {
	Type   string      `json:"type"` // image
	Source ImageSource `json:"source"`
	Extra  Extra       `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ImageContent) UnmarshalJSON(b []byte) error {
	type plain ImageContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ImageContent) MarshalJSON() ([]byte, error) {
	type plain ImageContent
	return marshalKeeping(plain(c), c.Extra)
}

// An ImageSource says where the picture is: at a URL, in Data, or in a file that
// the server holds.
type ImageSource struct {
	Type      string  `json:"type"` // url, base64, letta
	URL       *string `json:"url,omitempty"`
	Data      *string `json:"data,omitempty"`
	MediaType *string `json:"media_type,omitempty"`
	Detail    *string `json:"detail,omitempty"`
	FileID    *string `json:"file_id,omitempty"`
	Extra     Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ImageSource) UnmarshalJSON(b []byte) error {
	type plain ImageSource
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ImageSource) MarshalJSON() ([]byte, error) {
	type plain ImageSource
	return marshalKeeping(plain(c), c.Extra)
}

// A ToolCallContent is a call of a tool as a part of a content.
type ToolCallContent struct {
	Type      string          `json:"type"` // tool_call
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"` // an object, kept as text: numbers and key order matter
	Signature *string         `json:"signature,omitempty"`
	Extra     Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ToolCallContent) UnmarshalJSON(b []byte) error {
	type plain ToolCallContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ToolCallContent) MarshalJSON() ([]byte, error) {
	type plain ToolCallContent
	return marshalKeeping(plain(c), c.Extra)
}

// A ToolReturnContent is the result of a tool as a part of a content.
type ToolReturnContent struct {
	Type       string `json:"type"` // tool_return
	ToolCallID string `json:"tool_call_id"`
	Content    string `json:"content"`
	IsError    bool   `json:"is_error"`
	Extra      Extra  `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ToolReturnContent) UnmarshalJSON(b []byte) error {
	type plain ToolReturnContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ToolReturnContent) MarshalJSON() ([]byte, error) {
	type plain ToolReturnContent
	return marshalKeeping(plain(c), c.Extra)
}

// A ReasoningContent is what the model thought.
type ReasoningContent struct {
	Type      string  `json:"type"` // reasoning
	IsNative  bool    `json:"is_native"`
	Reasoning string  `json:"reasoning"`
	Signature *string `json:"signature,omitempty"`
	Extra     Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ReasoningContent) UnmarshalJSON(b []byte) error {
	type plain ReasoningContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ReasoningContent) MarshalJSON() ([]byte, error) {
	type plain ReasoningContent
	return marshalKeeping(plain(c), c.Extra)
}

// A RedactedReasoningContent is thinking that the provider encrypted.
type RedactedReasoningContent struct {
	Type  string `json:"type"` // redacted_reasoning
	Data  string `json:"data"`
	Extra Extra  `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *RedactedReasoningContent) UnmarshalJSON(b []byte) error {
	type plain RedactedReasoningContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c RedactedReasoningContent) MarshalJSON() ([]byte, error) {
	type plain RedactedReasoningContent
	return marshalKeeping(plain(c), c.Extra)
}

// An OmittedReasoningContent stands for thinking that the provider did not send.
type OmittedReasoningContent struct {
	Type      string  `json:"type"` // omitted_reasoning
	Signature *string `json:"signature,omitempty"`
	Extra     Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *OmittedReasoningContent) UnmarshalJSON(b []byte) error {
	type plain OmittedReasoningContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c OmittedReasoningContent) MarshalJSON() ([]byte, error) {
	type plain OmittedReasoningContent
	return marshalKeeping(plain(c), c.Extra)
}

// A SummarizedReasoningContent is a summary of what the model thought.
type SummarizedReasoningContent struct {
	Type             string             `json:"type"` // summarized_reasoning
	ID               string             `json:"id"`
	Summary          []ReasoningSummary `json:"summary"`
	EncryptedContent *string            `json:"encrypted_content,omitempty"`
	Extra            Extra              `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *SummarizedReasoningContent) UnmarshalJSON(b []byte) error {
	type plain SummarizedReasoningContent
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c SummarizedReasoningContent) MarshalJSON() ([]byte, error) {
	type plain SummarizedReasoningContent
	return marshalKeeping(plain(c), c.Extra)
}

// A ReasoningSummary is one part of a summary.
type ReasoningSummary struct {
	Index int    `json:"index"`
	Text  string `json:"text"`
	Extra Extra  `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ReasoningSummary) UnmarshalJSON(b []byte) error {
	type plain ReasoningSummary
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ReasoningSummary) MarshalJSON() ([]byte, error) {
	type plain ReasoningSummary
	return marshalKeeping(plain(c), c.Extra)
}

// isNull says that the text is absent or the word null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}
