package decode

import "strings"

// An Output contains the tokens that the model sampled for one call.
type Output struct {
	Prompt, IDs []int32
	// Stop is the stop string that ended the output, or empty. The content ends before it.
	Stop string
	// Tools reports whether the output can call tools. If it cannot, the text of a call is content.
	Tools bool
	// IsText reports whether the value of a tool's parameter is always a string. Some models write all
	// values as text, so only the tool's schema shows whether 42 is a number. If IsText is nil, no
	// value is always a string.
	IsText func(tool, parameter string) bool
}

// promptEnd is the number of tokens at the end of the prompt that begun reads.
const promptEnd = 8

// Output returns the message of an output. All text that is neither reasoning nor a valid call is content.
// If the text contains neither, the content keeps the white space at its ends. A call has no ID unless the
// model wrote one.
func (d *Decoder) Output(o Output) Message {
	text := d.text(o.IDs)
	if i := strings.LastIndex(text, o.Stop); i >= 0 && o.Stop != "" {
		text = text[:i]
	}
	full := d.begun(o.Prompt) + text
	m := Message{Role: Assistant, Content: full}
	switch harmony := d.form != nil && d.form.harmony; {
	case harmony:
		m.harmony(nil, o.Tools)
	case o.Tools:
		m.split(d, nil)
	default:
		m.Content = strings.TrimSpace(m.think(d.thinking))
	}
	if m.Content == strings.TrimSpace(full) {
		m.Content = text
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		if c.texts != nil && o.IsText != nil {
			c.Arguments = joined(c.texts, func(parameter string) bool { return o.IsText(c.Name, parameter) })
		}
	}
	return m
}

// begun returns the mark that begins the reasoning, if the prompt ends with it, or "". Some templates write
// this mark themselves.
func (d *Decoder) begun(prompt []int32) string {
	end := strings.TrimSpace(d.text(prompt[max(0, len(prompt)-promptEnd):]))
	for _, mark := range d.thinking {
		if strings.HasSuffix(end, mark[0]) {
			return mark[0]
		}
	}
	return ""
}
