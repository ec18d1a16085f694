package continuity

// A Reason is the result of a decision about a prompt. The words for reasons are a closed list,
// because they are label values of a counter.
type Reason uint8

// The reasons. With a reason from the second group, the prompt is spliced. If the print has several
// differences, the reason is the last applicable one in the group. With a reason from the third
// group, the prompt is sent unchanged, because a splice is not proven to be right.
const (
	ReasonNew  Reason = iota // no earlier call of this conversation is known
	ReasonSame               // the prompt already continues the engine's own tokens

	ReasonContinued // the last output is printed unchanged, but an earlier output was spliced
	ReasonTokens    // the same text, encoded as other tokens
	ReasonSpace     // different white space at the ends of text or around calls
	ReasonPrinted   // a call has the same value but different text
	ReasonDeleted   // the text before the first call is missing

	ReasonForm      // the prompt does not end with the header of a model turn
	ReasonUnknown   // the output of a call with the same prompt is unknown
	ReasonAmbiguous // several outputs can have this print
	ReasonGap       // another model turn follows whose call is not in the table
	ReasonEnd       // the output does not end with the end token
	ReasonSpecial   // the output or its print contains special tokens or invalid ids
	ReasonThought   // the thought before an answer is missing, because templates remove thoughts
	ReasonMalformed // a call is not JSON in the form that the template renders
	ReasonCalls     // the number of calls differs
	ReasonArguments // the name or an argument of a call differs
	ReasonUnlike    // the text differs
	ReasonLong      // the spliced prompt would exceed MaxPrompt
	ReasonClient    // the turn has no call, or not only tool results follow it, so a client can have written it
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
