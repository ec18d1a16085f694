package model

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A Diagnosis says which of template, tokenizer or server differs, and where.
type Diagnosis struct {
	Culprit string // empty: nothing differs
	Detail  []string
}

// Diagnose compares what we rebuilt of one call with what is known of the truth:
// the ids that the turn holds, or else the server's count, the messages of its
// trace and the text that the engine answered.
//
//	sampled ids do not decode to the engine's text             tokenizer
//	ids known:  same text, other ids                           tokenizer
//	            other text, and the trace's messages give it   server
//	            other text                                     template
//	count only: stored messages and trace give other texts     server
//	            the same text, and the count is another        template or tokenizer
//
// The server differing means that it showed the model other messages than it
// stored, which only matters where the trace does not have them either.
func Diagnose(x *prompt.Examined, tok *bpe.Tokenizer) Diagnosis {
	ours := x.Stored
	if ours.Err != nil {
		ours = x.Trace
	}
	if x.Spliced != 0 {
		return Diagnosis{"prompt", []string{
			"a tap with --continuity gave the engine sampled tokens in place of the server's text, so the model read another prompt:",
			"only the tap has it (--tap)",
		}}
	}
	switch {
	case len(x.PromptIDs) > 0 && slices.Equal(x.PromptIDs, ours.IDs),
		len(x.PromptIDs) == 0 && ours.Err == nil && int64(len(ours.IDs)) == x.Counted:
		return Diagnosis{}
	}
	if at := firstUndecodable(tok, x.OutputIDs); at >= 0 {
		return Diagnosis{"tokenizer", []string{fmt.Sprintf("sampled token %d is id %d, which the tokenizer does not have", at, x.OutputIDs[at])}}
	}
	if theirs, ok := sameAnswer(tok, x); !ok {
		return Diagnosis{"tokenizer", append([]string{"the sampled ids do not decode to what the engine answered"},
			firstPiece("engine", x.Response, "decoded", theirs)...)}
	}
	if ours.Err != nil {
		return Diagnosis{"template", []string{"the prompt cannot be rebuilt: " + ours.Err.Error()}}
	}
	if len(x.PromptIDs) > 0 {
		return diagnoseIDs(x, ours, tok)
	}
	if x.Stored.Err == nil && x.Trace.Err == nil && x.Stored.Text != x.Trace.Text {
		return Diagnosis{"server", append([]string{"it showed the model other messages than it stored; the trace has them" + counts(x)},
			firstPiece("trace", x.Trace.Text, "stored", x.Stored.Text)...)}
	}
	detail := []string{
		fmt.Sprintf("the server counted %d tokens, ours has %d (%+d) for the same messages", x.Counted, len(ours.IDs), int64(len(ours.IDs))-x.Counted),
	}
	if x.Response != "" {
		detail = append(detail, "the sampled ids decode to the engine's text, so the template is the likely cause:",
			"is it the one that the engine was started with?")
	}
	return Diagnosis{"template or tokenizer", append(detail,
		"ours begins "+strings.Replace(excerpt(ours.Text, 0), "▸", "", 1),
		"and ends    "+excerptEnd(ours.Text))}
}

// diagnoseIDs compares ids with ids.
func diagnoseIDs(x *prompt.Examined, ours prompt.Rebuilt, tok *bpe.Tokenizer) Diagnosis {
	at := 0
	for at < len(x.PromptIDs) && at < len(ours.IDs) && x.PromptIDs[at] == ours.IDs[at] {
		at++
	}
	pieces := []string{
		fmt.Sprintf("first difference at token %d of %d (ours has %d)", at, len(x.PromptIDs), len(ours.IDs)),
		"server " + spelled(tok, x.PromptIDs, at),
		"ours   " + spelled(tok, ours.IDs, at),
	}
	if bad := firstUndecodable(tok, x.PromptIDs); bad >= 0 {
		return Diagnosis{"tokenizer", append([]string{fmt.Sprintf("prompt token %d is id %d, which the tokenizer does not have", bad, x.PromptIDs[bad])}, pieces...)}
	}
	text, _ := tok.AppendText(nil, x.PromptIDs, bpe.DecodeOptions{}) // every id was looked at
	switch {
	case string(text) == ours.Text:
		return Diagnosis{"tokenizer", append([]string{"the same text is other ids"}, pieces...)}
	case x.Trace.Err == nil && string(text) == x.Trace.Text:
		return Diagnosis{"server", append([]string{"it showed the model other messages than it stored; the trace has them"}, pieces...)}
	}
	return Diagnosis{"template", append([]string{"the rendered texts differ"}, pieces...)}
}

// counts says whether the prompt that the trace gives has the server's count.
func counts(x *prompt.Examined) string {
	switch {
	case int64(len(x.Trace.IDs)) != x.Counted:
		return fmt.Sprintf(", and its count differs too: %d, the server counted %d", len(x.Trace.IDs), x.Counted)
	case x.Unlike != "":
		return ", and its count agrees, but " + x.Unlike
	}
	return ", and its count agrees: auto takes it"
}

func firstUndecodable(tok *bpe.Tokenizer, ids []int32) int {
	return slices.IndexFunc(ids, func(id int32) bool { return !tok.Has(id) })
}

// sameAnswer reports whether the sampled ids decode to the engine's text, which may
// lack the last, a stop token, and special ones. Without a trace nothing is known.
func sameAnswer(tok *bpe.Tokenizer, x *prompt.Examined) (decoded string, ok bool) {
	if x.Response == "" {
		return "", true
	}
	for _, skip := range []bool{true, false} {
		b, err := tok.AppendText(nil, x.OutputIDs, bpe.DecodeOptions{SkipSpecial: skip})
		if err != nil {
			return "", false
		}
		if decoded = string(b); strings.HasPrefix(decoded, x.Response) {
			return decoded, true
		}
	}
	return decoded, false
}

// spelled shows a few tokens of ids from at on.
func spelled(tok *bpe.Tokenizer, ids []int32, at int) string {
	if at >= len(ids) {
		return "ends here"
	}
	spell := SpellerOf(tok)
	var words []string
	for _, id := range ids[at:min(at+8, len(ids))] {
		words = append(words, spell(id))
	}
	return fmt.Sprintf("%v %s …", ids[at:min(at+8, len(ids))], strings.Join(words, " "))
}

// firstPiece shows where two texts part.
func firstPiece(nameA, a, nameB, b string) []string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	for at > 0 && at < len(a) && !utf8.RuneStart(a[at]) {
		at--
	}
	width := max(len(nameA), len(nameB))
	return []string{
		fmt.Sprintf("first difference at byte %d", at),
		fmt.Sprintf("%-*s %s", width, nameA, excerpt(a, at)),
		fmt.Sprintf("%-*s %s", width, nameB, excerpt(b, at)),
	}
}

// How much of a text is shown, and how much of it before the place in question.
const (
	excerptRunes  = 60
	excerptBefore = 16
)

// excerpt is some text around at, which ▸ marks, on one line.
func excerpt(text string, at int) string {
	if at >= len(text) {
		return "ends here"
	}
	before := []rune(text[max(0, at-4*excerptBefore):at])
	before = before[max(0, len(before)-excerptBefore):]
	runes := []rune(text[at:min(len(text), at+4*excerptRunes)])
	return `"` + quoteless(string(before)) + `▸` + quoteless(string(runes[:min(len(runes), excerptRunes)])) + `" …`
}

// excerptEnd is the end of a text, on one line.
func excerptEnd(text string) string {
	runes := []rune(text[max(0, len(text)-4*excerptRunes):])
	return `… "` + quoteless(string(runes[max(0, len(runes)-excerptRunes):])) + `"`
}

// Doubted reports whether neither what the turn holds nor its own trace gives the
// prompt of a call, and what is stored does not count as proven.
func Doubted(x *prompt.Examined) bool {
	return x.Gap != "" && len(x.PromptIDs) == 0 && (x.Unlike != "" || x.Trace.Err != nil || int64(len(x.Trace.IDs)) != x.Counted)
}

// SameDifference is by how many tokens the stored prompts differ from the server's
// counts, if it is the same for all of several calls; else 0.
func SameDifference(calls []prompt.Examined) int64 {
	if len(calls) < 2 {
		return 0
	}
	by := int64(len(calls[0].Stored.IDs)) - calls[0].Counted
	for i := range calls {
		x := &calls[i]
		if x.Stored.Err != nil || x.Counted < 0 || int64(len(x.Stored.IDs))-x.Counted != by {
			return 0
		}
	}
	return by
}
