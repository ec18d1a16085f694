package tokenize

import "fmt"

// A TextEncoder turns text into token ids.
type TextEncoder interface {
	// AppendTokens appends the ids of text to dst and returns the result. If it returns an error,
	// the caller must ignore the result.
	AppendTokens(dst []int32, text string) ([]int32, error)
}

// A Literal builds calls with SourceLiteral. The calls consist of the assistant ids and the tool
// results in order, without prompts and without the text that the template adds between turns. Such
// calls cannot be checked, so their grade is Unverified.
//
// A Literal owns the memory of Call.Context. It is not safe for concurrent use.
type Literal struct {
	// Encoder encodes the content of each tool turn. It must not be nil.
	Encoder TextEncoder

	context []int32
	ends    []int
}

// Calls appends one Call for each assistant turn, as CallsFromTurns does. The Context of a Call
// holds the tokens of the tool turns directly before the call. Tool turns after the last assistant
// turn are dropped, because a row ends at its last sampled token. The calls are valid until the
// next use of l, and only as long as the turns are valid.
//
// Calls returns the errors from CallsFromTurns and from the encoder. After an error, dst is
// unchanged.
func (l *Literal) Calls(dst []Call, turns []Turn) ([]Call, error) {
	base := len(dst)
	dst, err := CallsFromTurns(dst, turns)
	if err != nil {
		return dst, err
	}
	l.context, l.ends = l.context[:0], l.ends[:0]
	for i := range turns {
		t := &turns[i]
		if t.Role == RoleAssistant {
			l.ends = append(l.ends, len(l.context))
			continue
		}
		if len(l.ends) == len(dst)-base {
			break // all later turns are after the last output
		}
		if l.context, err = l.Encoder.AppendTokens(l.context, t.Content); err != nil {
			l.context = nil
			return dst[:base], fmt.Errorf("tokenize: cannot encode tool turn %d: %w", i, err)
		}
	}
	lo := 0
	for k, hi := range l.ends {
		c := &dst[base+k]
		c.PromptIDs, c.Context = nil, l.context[lo:hi:hi]
		c.Source, c.Grade, c.Reason = SourceLiteral, Unverified, ReasonNone
		lo = hi
	}
	return dst, nil
}
