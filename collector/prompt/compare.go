package prompt

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// compare compares what stored gives for the call of the witness with what the trace
// shows, as the template prints both. Where they differ, the proof of the send has a gap.
// The prompt of in must be the last one that was rendered.
func (b *rebuild) compare(s *send, in input) {
	s.compared = true
	shown := s.witness.like(in.messages)
	if shareValues(shown, in) {
		return // and the tools are the witness's own: the template prints the same
	}
	same, err := b.r.same(input{messages: shown, tools: s.witness.tools})
	switch {
	case err != nil:
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of its step: " + err.Error()}
	case !same:
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + " shows another text", contradicted: true}
	}
}

// shareValues gives the messages of a trace the values of those that are the same in in,
// and reports whether all of them are.
func shareValues(shown history, in input) bool {
	all := len(shown) == len(in.messages)
	for i := range shown {
		if i < len(in.messages) && shown[i].shows(&in.messages[i], in.scrub) {
			shown[i].seen = in.messages[i].value(in.scrub)
		} else {
			all = false // as a result without the name of its tool, which traces leave out
		}
	}
	return all
}

// same reports whether the template prints in as it printed the last prompt.
func (r *renderer) same(in input) (bool, error) {
	out, err := r.render(in)
	return err == nil && bytes.Equal(out, r.text), err
}

// like returns the messages of the trace with what a trace is known to change undone:
// a long text of a tool is cut in it, and a NUL character is lost where it is stored.
// The count of tokens tells whether the model was given the whole text.
func (t *traced) like(h history) history {
	if len(h) != len(t.messages) {
		return t.messages
	}
	out := append(history(nil), t.messages...)
	for i := range out {
		m, full := &out[i], h[i].content
		if m.role != h[i].role || m.content == full {
			continue
		}
		if m.role == roleTool && cutFrom(m.content, full) || strings.ReplaceAll(full, "\x00", "") == m.content {
			m.content, m.seen, m.scrubbed = full, chat.Value{}, chat.Value{}
		}
	}
	return out
}

// cutMark is what the server writes in a trace where it cut the text of a tool.
//
// Source: schemas/message.py:68 (truncate_tool_return).
var cutMark = regexp.MustCompile(`\.\.\. \[truncated \d+ chars\]`)

// cutFrom reports whether text is full with pieces cut out, each marked.
func cutFrom(text, full string) bool {
	marks := cutMark.FindAllStringIndex(text, -1)
	if len(marks) == 0 {
		return false
	}
	from := 0
	for i, mark := range marks {
		piece := text[from:mark[0]]
		at := strings.Index(full, piece)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		full, from = full[at+len(piece):], mark[1]
	}
	return strings.HasSuffix(full, text[from:])
}
