package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// continueTag is appended to the final message before the render, so that the end of the message
// can be found in the rendered text. The transformers library has used this tag since version 4.57.
// Some templates strip the trailing space of the tag.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

func continueErrorf(format string, args ...any) error {
	return fmt.Errorf("continue_final_message: "+format, args...)
}

// tagFinal appends the tag to the final message and returns the text of the message without the
// tag.
func (r *run) tagFinal(in *Input) (text string, err error) {
	field := in.ContinueFinalMessage
	items := in.Messages.Items()
	switch {
	case in.AddGenerationPrompt:
		return "", continueErrorf("cannot be combined with add_generation_prompt")
	case len(items) == 0:
		return "", continueErrorf("the conversation is empty")
	}
	last := items[len(items)-1].Map()
	if last == nil {
		return "", continueErrorf("the final message must be a dict, not %s", typeName(items[len(items)-1]))
	}
	final, ok := last.Get(field)
	if !ok || final.kind == None {
		return "", continueErrorf("the final message has no %q to continue", field)
	}
	// Reasoning is stored under several keys, and a template reads only one of them.
	fields := []string{field}
	if in.Transformers >= Transformers521 && slices.Contains(reasoningKeys[:], field) {
		fields = slices.DeleteFunc(slices.Clone(reasoningKeys[:]), func(key string) bool {
			v, _ := last.Get(key)
			eq, err := r.equal(v, final)
			return !eq || err != nil
		})
	}
	if !slices.ContainsFunc(fields, func(key string) bool { return strings.Contains(r.t.src, key) }) {
		return "", continueErrorf("the template does not read %q", field)
	}

	var open Value // the value for the key, with the tag after the text
	if final.kind == List || final.kind == Tuple {
		if text, open, err = openBlocks(final.Items()); err != nil {
			return "", err
		}
		// Another key with the same list object gets the tag too. A key with an equal but separate
		// list does not.
		fields = slices.DeleteFunc(slices.Clone(reasoningKeys[:]), func(key string) bool {
			v, _ := last.Get(key)
			return !identical(v, final)
		})
		fields = append(fields, field)
	} else {
		if !final.isStr() {
			return "", continueErrorf("%q of the final message must be a str, not %s", field, typeName(final))
		}
		text, open = final.s, strOf(final.s+continueTag)
	}
	m := NewMap(last.Len())
	for i, k := range last.keys {
		v := last.vals[i]
		if k.isStr() && slices.Contains(fields, k.s) {
			v = open
		}
		m.add(k, v)
	}
	items = slices.Clone(items)
	items[len(items)-1] = MapValue(m)
	in.Messages = ListValue(items...)
	return text, nil
}

// openBlocks appends the tag to the last text part of a message with several parts.
func openBlocks(blocks []Value) (text string, open Value, err error) {
	for i, b := range slices.Backward(blocks) {
		m := b.Map()
		if b.isStr() && !strings.Contains(b.s, "text") {
			continue // in Python, the test "text" in part also works for a str
		}
		if m == nil {
			return "", open, continueErrorf("part %d of the final message must be a dict, not %s", i, typeName(b))
		}
		v, ok := m.Get("text")
		if !ok {
			continue
		}
		if !v.isStr() {
			return "", open, continueErrorf("the text of part %d of the final message must be a str, not %s", i, typeName(v))
		}
		part := NewMap(m.Len())
		for j, k := range m.keys {
			part.add(k, m.vals[j])
		}
		part.Set("text", strOf(v.s+continueTag))
		blocks = slices.Clone(blocks)
		blocks[i] = MapValue(part)
		return v.s, ListValue(blocks...), nil
	}
	return "", open, continueErrorf("no part of the final message is text")
}

func cutFinal(rendered []byte, text string) ([]byte, error) {
	tag := []byte(strings.TrimSpace(continueTag))
	at := bytes.LastIndex(rendered, tag)
	if at < 0 || !bytes.Contains(rendered, []byte(strings.TrimFunc(text, isSpace))) {
		return nil, continueErrorf("the rendered text does not contain the final message: the template changes or omits it")
	}
	if bytes.HasPrefix(rendered[at:], []byte(continueTag)) {
		return rendered[:at], nil
	}
	return bytes.TrimRightFunc(rendered[:at], isSpace), nil // the template stripped the trailing space of the tag
}
