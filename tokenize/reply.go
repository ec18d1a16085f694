package tokenize

import "github.com/rollout-rl/rollout/tokenize/internal/textview"

// A Reply is the result of decoding one reply: the turns, stored in arenas that the Reply owns, and
// the rest of the reply as JSON. A Reply can be reused, because Reset keeps the memory.
//
// Each Turn points into these arenas. The next use of the Reply overwrites the arenas, so copy any
// data that is needed longer. (The Aligner copies its data.)
type Reply struct {
	Turns []Turn

	// HasTurns is true if the reply has a list of turns, even if the list is empty. The server
	// omits `turns` or sends null if the model returns no token data.
	HasTurns bool

	// Rest is the reply's JSON object without `turns` and `logprobs`. Every other member is copied
	// verbatim. The content is valid JSON. It can be used until the next Reset.
	Rest []byte

	Bytes int64

	ids      []int32   // prompts and outputs of all turns
	logprobs []float32 // of all turns
	text     []byte    // contents and tool names of all turns
	spans    []turnSpan
}

// A turnSpan describes a Turn by positions in the arenas, because the arenas can still move in
// memory.
type turnSpan struct {
	role                                    Role
	prompt, output, logprobs, content, tool span
	mismatch                                int
}

// A span is the part [lo, hi) of an arena. lo is -1 for null.
type span struct{ lo, hi int }

var noSpan = span{-1, -1}

// Reset empties r and keeps its memory. All views into r become invalid.
func (r *Reply) Reset() {
	clear(r.Turns)
	r.Turns, r.Rest, r.HasTurns, r.Bytes = r.Turns[:0], r.Rest[:0], false, 0
	r.ids, r.logprobs, r.text, r.spans = r.ids[:0], r.logprobs[:0], r.text[:0], r.spans[:0]
}

// settle builds Turns after the arenas have stopped growing.
func (r *Reply) settle() {
	for i := range r.spans {
		s := &r.spans[i]
		r.Turns = append(r.Turns, Turn{
			Role:       s.role,
			PromptIDs:  view(r.ids, s.prompt),
			OutputIDs:  view(r.ids, s.output),
			Logprobs:   view(r.logprobs, s.logprobs),
			IDMismatch: s.mismatch,
			Content:    r.textView(s.content),
			ToolName:   r.textView(s.tool),
		})
	}
}

// view returns the part of the arena that s describes: nil for null, non-nil for an empty list. The
// capacity of the result is clipped, so an append cannot overwrite the next view.
func view[T any](arena []T, s span) []T {
	switch {
	case s.lo < 0:
		return nil
	case s.lo == s.hi:
		return []T{}
	}
	return arena[s.lo:s.hi:s.hi]
}

func (r *Reply) textView(s span) string {
	if s.lo < 0 || s.lo == s.hi {
		return ""
	}
	return textview.Of(r.text[s.lo:s.hi])
}
