package continuity

// A Reason is the result of a decision about a prompt. The set of reasons is fixed, because each
// reason is a label value of a counter.
type Reason uint8

// The reasons. If the reason is in the second group, the prompt is spliced. If the print has
// several differences, the reason is the last reason in the group that applies. If the reason is in
// the third group, the prompt is sent unchanged, because a splice is not proven to be correct.
const (
	ReasonNew  Reason = iota // no earlier call in this conversation is known
	ReasonSame               // the prompt already continues the tokens that the engine sampled

	ReasonContinued // the last output is printed unchanged, but an earlier output was spliced
	ReasonTokens    // the text is the same but encoded as other tokens
	ReasonSpace     // white space differs at the ends of text or around calls
	ReasonPrinted   // a call has the same value but different text
	ReasonDeleted   // the text before the first call is missing

	ReasonForm      // the prompt does not end with the header of a model turn
	ReasonUnknown   // the output of a call with the same prompt is unknown
	ReasonAmbiguous // several outputs can have this print
	ReasonGap       // another model turn follows, and the call of that turn is not in the table
	ReasonEnd       // the output does not end with the end token
	ReasonSpecial   // the output or its print contains special tokens or invalid ids
	ReasonThought   // the thought before an answer is missing, because templates remove thoughts
	ReasonMalformed // a call does not have the JSON form that the template renders
	ReasonCalls     // the number of calls differs
	ReasonArguments // the name or an argument of a call differs
	ReasonUnlike    // the text differs
	ReasonLong      // the spliced prompt would exceed MaxPrompt
	ReasonClient    // the turn has no call, or something other than tool results follows it, so a client might have written it
	ReasonTaken     // another prompt has already continued the output

	reasons // the number of reasons
)

var reasonWords = [reasons]string{
	"new", "same",
	"continued", "tokens", "space", "call", "text",
	"form", "unknown", "ambiguous", "gap", "end", "special", "thought", "malformed", "calls", "arguments", "unlike", "long", "client", "taken",
}

// Spliced reports whether the prompt was spliced.
func (r Reason) Spliced() bool { return ReasonContinued <= r && r <= ReasonDeleted }

// Outcome returns the group of the reason: "same", "spliced" or "refused".
func (r Reason) Outcome() string {
	switch {
	case r.Spliced():
		return "spliced"
	case r < ReasonContinued:
		return "same"
	}
	return "refused"
}

func (r Reason) String() string { return reasonWords[r] }
