package continuity

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A verdict says whether a print in a prompt is an output printed again.
type verdict struct {
	// reason is Same or one of those that splice, where it is; else why that is not proven.
	reason Reason
	// apart says, where it is not proven, that the server cannot have made the print of
	// this output in any way that is known. Otherwise it may have.
	apart bool
}

func (v verdict) equal() bool { return v.reason == ReasonSame || v.reason.Spliced() }

// compare compares an output with what a prompt has in its place, both without the token
// that ends a turn. It decides by the decoded bytes, so tokens that cut a character are
// read as they are.
func (m *markers) compare(tok *bpe.Tokenizer, output, printed []int32) verdict {
	if slices.Equal(output, printed) {
		return verdict{reason: ReasonSame}
	}
	if slices.ContainsFunc(output, tok.IsSpecial) || slices.ContainsFunc(printed, tok.IsSpecial) {
		return verdict{reason: ReasonSpecial}
	}
	buf := make([]byte, 0, 6*(len(output)+len(printed)))
	buf, err := tok.AppendBytes(buf, output, bpe.DecodeOptions{})
	n := len(buf)
	if err == nil {
		buf, err = tok.AppendBytes(buf, printed, bpe.DecodeOptions{})
	}
	if err != nil {
		return verdict{reason: ReasonSpecial} // an id that no token has
	}
	return compareTexts(buf[:n:n], buf[n:])
}

func compareTexts(output, printed []byte) verdict {
	if bytes.Equal(output, printed) {
		return verdict{reason: ReasonTokens}
	}
	if !utf8.Valid(output) || !utf8.Valid(printed) {
		return verdict{reason: ReasonUnlike} // the print has U+FFFD for what is not a character
	}
	o, p := readTurn(output), readTurn(printed)
	switch {
	case o.malformed || p.malformed:
		return verdict{reason: ReasonMalformed}
	case len(p.calls) == 0 && len(o.calls) == 0:
		return compareAnswers(o.text, p.text)
	case len(p.calls) == 0: // a text, where the output has calls
		return verdict{ReasonCalls, apartTexts(output, printed)}
	case len(o.calls) == 0: // a call, where the output has none that is read here
		return verdict{ReasonCalls, apartTexts(output, []byte(p.calls[0].name))}
	case p.between:
		return verdict{reason: ReasonUnlike}
	}
	v, alike := compareCalls(o.calls, p.calls)
	switch {
	case !v.equal():
		return v
	case o.between:
		return verdict{reason: ReasonUnlike}
	case len(trim(p.text)) == 0 && len(trim(o.text)) > 0:
		return verdict{reason: ReasonDeleted}
	case !samePieces(o.text, p.text):
		return verdict{reason: ReasonUnlike}
	case alike:
		return verdict{reason: ReasonSpace}
	}
	return verdict{reason: ReasonPrinted}
}

// compareAnswers compares texts without calls.
func compareAnswers(output, printed []byte) verdict {
	if samePieces(output, printed) {
		return verdict{reason: ReasonSpace}
	}
	if i := bytes.LastIndex(output, thinkEnd); i >= 0 && bytes.Equal(trim(output[i+len(thinkEnd):]), trim(printed)) {
		return verdict{reason: ReasonThought}
	}
	return verdict{ReasonUnlike, apartTexts(output, printed)}
}

// apartTexts reports whether the server cannot have printed this text of the output. What
// stands behind the last thought is printed whole or not at all, but for white space; only
// characters beyond ASCII change when a text is encoded again.
func apartTexts(output, printed []byte) bool {
	return ascii(output) && ascii(printed) && !bytes.Contains(lastPiece(output), trim(lastPiece(printed)))
}

func lastPiece(s []byte) []byte {
	if i := bytes.LastIndex(s, thinkEnd); i >= 0 {
		return s[i+len(thinkEnd):]
	}
	return s
}

func ascii(s []byte) bool {
	return !slices.ContainsFunc(s, func(b byte) bool { return b >= utf8.RuneSelf })
}

// compareCalls compares calls one by one. alike says that their texts are the same, up to
// white space around them.
func compareCalls(output, printed []toolCall) (v verdict, alike bool) {
	alike = true
	for i := range min(len(output), len(printed)) {
		o, p := &output[i], &printed[i]
		if o.name != p.name || !sameValue(o.arguments, p.arguments) {
			return verdict{ReasonArguments, !mayPrint(output, printed)}, false
		}
		alike = alike && bytes.Equal(o.raw, p.raw)
	}
	if len(output) != len(printed) {
		return verdict{ReasonCalls, !mayPrint(output, printed)}, false
	}
	return verdict{reason: ReasonPrinted}, alike
}

// mayPrint reports whether the server may have made the printed calls of the output's. It
// drops surplus calls, puts them in another order, takes members out of the arguments,
// cuts what has }{ in it to nothing and rounds numbers. It makes no call and no member of
// its own.
func mayPrint(output, printed []toolCall) bool {
	for _, p := range printed {
		if !slices.ContainsFunc(output, func(o toolCall) bool { return o.name == p.name && someMembers(o.arguments, p.arguments) }) {
			return false
		}
	}
	return len(printed) <= len(output)
}

// A turn is the text of a turn of the model, taken apart as the server does.
type turn struct {
	text  []byte // before the first call
	calls []toolCall
	// between says that there is text between the calls or after them.
	between bool
	// malformed says that a call does not end, or is not what readCall takes.
	malformed bool
}

// The words around a call and a thought, as text: the model may sample their letters.
var (
	callStart, callEnd   = []byte("<tool_call>"), []byte("</tool_call>")
	thinkStart, thinkEnd = []byte("<think>"), []byte("</think>")
)

// readTurn takes a turn apart as the server does: a call goes up to the next end of one,
// wherever it begins.
func readTurn(s []byte) turn {
	var t turn
	text, rest, found := bytes.Cut(s, callStart)
	t.text = text
	for found {
		var inner []byte
		if inner, rest, found = bytes.Cut(rest, callEnd); !found {
			t.malformed = true
			return t
		}
		call, ok := readCall(trim(inner))
		if !ok {
			t.malformed = true
			return t
		}
		t.calls = append(t.calls, call)
		text, rest, found = bytes.Cut(rest, callStart)
		t.between = t.between || len(trim(text)) > 0
	}
	return t
}

// trim takes white space from both ends. Python's strip takes more characters; a text that
// ends in one of those is not recognized.
func trim(s []byte) []byte { return bytes.Trim(s, " \t\r\n") }

// samePieces reports whether two texts have the same thoughts and the same text around
// them, but for white space at their ends.
func samePieces(a, b []byte) bool {
	for {
		pa, wordA, restA := cutPiece(a)
		pb, wordB, restB := cutPiece(b)
		if !bytes.Equal(wordA, wordB) || !bytes.Equal(trim(pa), trim(pb)) {
			return false
		}
		if wordA == nil {
			return true
		}
		a, b = restA, restB
	}
}

// cutPiece returns what is before the next word of a thought, that word, and what follows.
// word is nil where there is none.
func cutPiece(s []byte) (piece, word, rest []byte) {
	i := bytes.IndexByte(s, '<')
	for i >= 0 {
		for _, word := range [][]byte{thinkStart, thinkEnd} {
			if bytes.HasPrefix(s[i:], word) {
				return s[:i], word, s[i+len(word):]
			}
		}
		next := bytes.IndexByte(s[i+1:], '<')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return s, nil, nil
}
