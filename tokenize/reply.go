package tokenize

// A Reply is what a Decoder found in one reply: the turns, in arenas that the
// Reply owns, and the small rest as JSON. Reuse it; Reset keeps the memory.
type Reply struct {
	// Turns holds the turns in order, views into the arenas of this Reply.
	Turns []Turn

	// HasTurns tells a list of turns, even an empty one, from null or no key. The
	// server leaves turns out where the model gives no token data.
	HasTurns bool

	// Rest is the reply's JSON object without turns and logprobs, each other member
	// copied verbatim. It is valid JSON and valid until the next Reset.
	Rest []byte

	// Bytes is the length of the reply.
	Bytes int64
}

// Reset empties r and keeps its memory. All views into r become invalid.
func (r *Reply) Reset() {
	r.Turns, r.Rest, r.HasTurns, r.Bytes = r.Turns[:0], r.Rest[:0], false, 0
}
