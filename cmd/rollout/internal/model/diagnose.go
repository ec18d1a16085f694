package model

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A Diagnosis names the part that differs (template, tokenizer or server) and contains the details.
type Diagnosis struct {
	Culprit string // "" if nothing differs
	Detail  []string
}

// Diagnose compares the rebuilt prompt of one call with the known facts. The known facts are the
// ids in the turn, the messages in the trace, and the text returned by the engine. If the turn has
// no ids, Diagnose uses the server's token count instead.
//
//	the sampled ids do not decode to the engine's text             tokenizer
//	ids known:  the same text, but different ids                   tokenizer
//	            different text, but equal to text from the trace   server
//	            different text                                     template
//	count only: stored messages and trace render differently       server
//	            the same text, but a different count               template or tokenizer
//
// "server" means that the model received messages that differ from the messages that the server
// stored. This difference matters only if the trace does not contain the received messages either.
func Diagnose(x *prompt.Examined, tok *bpe.Tokenizer) Diagnosis {
	ours := x.Stored
	if ours.Err != nil {
		ours = x.Trace
	}
	if x.Spliced != 0 {
		return Diagnosis{"prompt", []string{
			"a tap with --continuity replaced the server's text with sampled tokens, so the model saw a different prompt",
			"only the tap has that prompt (use --tap)",
		}}
	}
	switch {
	case len(x.PromptIDs) > 0 && slices.Equal(x.PromptIDs, ours.IDs),
		len(x.PromptIDs) == 0 && ours.Err == nil && int64(len(ours.IDs)) == x.Counted:
		return Diagnosis{}
	}
	if at := firstUndecodable(tok, x.OutputIDs); at >= 0 {
		return Diagnosis{"tokenizer", []string{fmt.Sprintf("sampled token %d is id %d, which is not in the tokenizer", at, x.OutputIDs[at])}}
	}
	if theirs, ok := sameAnswer(tok, x); !ok {
		return Diagnosis{"tokenizer", append([]string{"the sampled ids do not decode to the engine's answer"},
			firstPiece("engine", x.Response, "decoded", theirs)...)}
	}
	if ours.Err != nil {
		return Diagnosis{"template", []string{"the prompt cannot be rebuilt: " + ours.Err.Error()}}
	}
	if len(x.PromptIDs) > 0 {
		return diagnoseIDs(x, ours, tok)
	}
	if x.Stored.Err == nil && x.Trace.Err == nil && x.Stored.Text != x.Trace.Text {
		return Diagnosis{"server", append([]string{"the server stored other messages than it sent to the model; the trace contains the sent messages" + counts(x)},
			firstPiece("trace", x.Trace.Text, "stored", x.Stored.Text)...)}
	}
	detail := []string{
		fmt.Sprintf("the server counted %d tokens, but the rebuilt prompt has %d (%+d) for the same messages", x.Counted, len(ours.IDs), int64(len(ours.IDs))-x.Counted),
	}
	if x.Response != "" {
		detail = append(detail, "the sampled ids decode to the engine's text, so the template is the likely cause",
			"check that the engine uses the same template")
	}
	return Diagnosis{"template or tokenizer", append(detail,
		"the rebuilt prompt begins "+strings.Replace(excerpt(ours.Text, 0), "▸", "", 1),
		"and ends                  "+excerptEnd(ours.Text))}
}

func diagnoseIDs(x *prompt.Examined, ours prompt.Rebuilt, tok *bpe.Tokenizer) Diagnosis {
	at := 0
	for at < len(x.PromptIDs) && at < len(ours.IDs) && x.PromptIDs[at] == ours.IDs[at] {
		at++
	}
	pieces := []string{
		fmt.Sprintf("first difference at token %d of %d (the rebuilt prompt has %d)", at, len(x.PromptIDs), len(ours.IDs)),
		"server  " + spelled(tok, x.PromptIDs, at),
		"rebuilt " + spelled(tok, ours.IDs, at),
	}
	if bad := firstUndecodable(tok, x.PromptIDs); bad >= 0 {
		return Diagnosis{"tokenizer", append([]string{fmt.Sprintf("prompt token %d is id %d, which is not in the tokenizer", bad, x.PromptIDs[bad])}, pieces...)}
	}
	text, _ := tok.AppendText(nil, x.PromptIDs, bpe.DecodeOptions{}) // cannot fail, because every id was checked
	switch {
	case string(text) == ours.Text:
		return Diagnosis{"tokenizer", append([]string{"the same text has different ids"}, pieces...)}
	case x.Trace.Err == nil && string(text) == x.Trace.Text:
		return Diagnosis{"server", append([]string{"the server stored other messages than it sent to the model; the trace contains the sent messages"}, pieces...)}
	}
	return Diagnosis{"template", append([]string{"the rendered prompts differ"}, pieces...)}
}

func counts(x *prompt.Examined) string {
	switch {
	case int64(len(x.Trace.IDs)) != x.Counted:
		return fmt.Sprintf(". The trace's token count differs too (the trace has %d tokens, but the server counted %d)", len(x.Trace.IDs), x.Counted)
	case x.Unlike != "":
		return ". The trace's token count agrees with the server's count, but " + x.Unlike
	}
	return ". The trace's token count agrees with the server's count, so --prompts auto uses the trace"
}

func firstUndecodable(tok *bpe.Tokenizer, ids []int32) int {
	return slices.IndexFunc(ids, func(id int32) bool { return !tok.Has(id) })
}

// sameAnswer reports whether the sampled ids decode to the engine's text. The text can lack the
// final stop token and special tokens. If there is no trace, sameAnswer returns true.
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

// The maximum number of runes in an excerpt, and the number of runes before the marked position.
const (
	excerptRunes  = 60
	excerptBefore = 16
)

// excerpt returns the text around the position at on one line, with ▸ at that position.
func excerpt(text string, at int) string {
	if at >= len(text) {
		return "ends here"
	}
	before := []rune(text[max(0, at-4*excerptBefore):at])
	before = before[max(0, len(before)-excerptBefore):]
	runes := []rune(text[at:min(len(text), at+4*excerptRunes)])
	return `"` + quoteless(string(before)) + `▸` + quoteless(string(runes[:min(len(runes), excerptRunes)])) + `" …`
}

func excerptEnd(text string) string {
	runes := []rune(text[max(0, len(text)-4*excerptRunes):])
	return `… "` + quoteless(string(runes[max(0, len(runes)-excerptRunes):])) + `"`
}

// Doubted reports whether the prompt of a call is unproven. It is unproven if the turn has no ids,
// the trace does not reproduce the prompt, and the stored messages do not count as proof.
func Doubted(x *prompt.Examined) bool {
	return x.Gap != "" && len(x.PromptIDs) == 0 && (x.Unlike != "" || x.Trace.Err != nil || int64(len(x.Trace.IDs)) != x.Counted)
}

// SameDifference returns the number of tokens by which the stored prompts differ from the server's
// counts. If there are fewer than two calls, or the differences are not all equal, it returns 0.
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
