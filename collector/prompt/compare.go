package prompt

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// compare renders the trace of the witness's call and compares the result with the text of the
// call's rebuilt prompt. If they differ, compare sets the gap of the send. The parameter in must be
// the input of the prompt that was rendered last.
func (b *rebuild) compare(s *send, in input) {
	s.compared = true
	shown := s.witness.like(in.messages)
	if shareValues(shown, in) {
		return // the tools also come from the witness, so the template prints the same text
	}
	text, err := b.r.render(input{messages: shown, tools: s.witness.tools})
	switch {
	case err != nil:
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + ": " + err.Error()}
	case !bytes.Equal(text, b.r.text):
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + " shows a different prompt", contradicted: true}
	}
}

// shareValues compares the messages of a trace with in.messages. If a message is equal, it reuses
// the template value that in.messages has cached. shareValues reports whether all messages are
// equal.
func shareValues(shown history, in input) bool {
	all := len(shown) == len(in.messages)
	for i := range shown {
		if i < len(in.messages) && shown[i].shows(&in.messages[i], in.scrub) {
			shown[i].seen = in.messages[i].value(in.scrub)
		} else {
			all = false // for example, the trace omits the tool name of a result
		}
	}
	return all
}

// like returns the messages of a trace after it has undone the changes that the server is known to
// make. In a trace, long tool text is truncated and NUL characters are missing. The token count
// shows whether the model received the full text.
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

// cutMark matches the mark that the server writes into a trace when it truncates the text of a tool
// result.
//
// Source: schemas/message.py:68 (truncate_tool_return).
var cutMark = regexp.MustCompile(`\.\.\. \[truncated \d+ chars\]`)

// cutFrom reports whether text equals full except for the pieces that were cut out and replaced by
// marks.
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
