package continuity

import (
	"bytes"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A verdict is the result of a comparison between a print and an output.
type verdict struct {
	// If the print is proven to be a rendering of the output, the reason is ReasonSame or one of
	// the reasons for a splice. Otherwise, the reason explains why this is not proven.
	reason Reason
	// apart is true if no known behavior of the server turns this output into this print.
	apart bool
}

func (v verdict) equal() bool { return v.reason == ReasonSame || v.reason.Spliced() }

// compare decides whether printed is a print of output. Both come without the end token. The
// comparison uses decoded bytes, because a character can be split between tokens.
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
		return verdict{reason: ReasonSpecial} // the vocabulary does not contain one of the ids
	}
	return compareTexts(buf[:n:n], buf[n:])
}

func compareTexts(output, printed []byte) verdict {
	if bytes.Equal(output, printed) {
		return verdict{reason: ReasonTokens}
	}
	if !utf8.Valid(output) || !utf8.Valid(printed) {
		return verdict{reason: ReasonUnlike} // the server replaces invalid characters with U+FFFD
	}
	o, p := readTurn(output), readTurn(printed)
	switch {
	case o.malformed || p.malformed:
		return verdict{reason: ReasonMalformed}
	case len(p.calls) == 0 && len(o.calls) == 0:
		return compareAnswers(o.text, p.text)
	case len(p.calls) == 0: // only the output has calls
		return verdict{ReasonCalls, apartTexts(output, printed)}
	case len(o.calls) == 0: // only the print has calls
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

func compareAnswers(output, printed []byte) verdict {
	if samePieces(output, printed) {
		return verdict{reason: ReasonSpace}
	}
	if i := bytes.LastIndex(output, thinkEnd); i >= 0 && bytes.Equal(trim(output[i+len(thinkEnd):]), trim(printed)) {
		return verdict{reason: ReasonThought}
	}
	return verdict{ReasonUnlike, apartTexts(output, printed)}
}

// apartTexts reports whether printed cannot be a print of output. Apart from white space, the
// server prints all or none of the text after the last thought. When it re-encodes text, only
// non-ASCII characters can change.
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

// compareCalls compares calls pairwise. The result alike is true if the two calls of each pair have
// the same text, except for white space around a call.
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

// mayPrint reports whether printed can be a print of the output's calls. The server can drop
// surplus calls, reorder calls, remove arguments, remove all arguments of a call that contains }{,
// and round numbers. It never adds a call or a member.
func mayPrint(output, printed []toolCall) bool {
	for _, p := range printed {
		if !slices.ContainsFunc(output, func(o toolCall) bool { return o.name == p.name && someMembers(o.arguments, p.arguments) }) {
			return false
		}
	}
	return len(printed) <= len(output)
}

type turn struct {
	text  []byte // text before the first call
	calls []toolCall
	// between is true if there is text between or after the calls.
	between bool
	// malformed is true if a call has no end tag or if readCall rejects it.
	malformed bool
}

// The tags around calls and thoughts. They are matched as text, because the model can also sample
// them as ordinary tokens.
var (
	callStart, callEnd = []byte("<tool_call>"), []byte("</tool_call>")
	thinkEnd           = []byte("</think>")
	thinkTags          = regexp.MustCompile("</?think>")
)

// readTurn parses a turn in the same way as the server: a call extends to the next end tag.
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

// trim removes only these four characters, whereas Python's strip also removes other white space.
func trim(s []byte) []byte { return bytes.Trim(s, " \t\r\n") }

// samePieces reports whether a and b have the same thought tags and the same pieces between them,
// except for white space at the ends of a piece.
func samePieces(a, b []byte) bool {
	trimmed := func(x, y string) bool { return bytes.Equal(trim([]byte(x)), trim([]byte(y))) }
	return slices.EqualFunc(thinkTags.FindAll(a, -1), thinkTags.FindAll(b, -1), bytes.Equal) &&
		slices.EqualFunc(thinkTags.Split(string(a), -1), thinkTags.Split(string(b), -1), trimmed)
}
