package continuity

// A Reason is the result of a decision about a prompt. The words are a closed list, because they
// are label values of a counter.
type Reason uint8

// The reasons. The second group splices the prompt; if there are several differences, the reason is
// the last one in this list. The third group leaves the prompt unchanged, because a splice is not
// proven.
const (
	ReasonNew  Reason = iota // no earlier call of this conversation is known
	ReasonSame               // the prompt already continues the engine's own tokens

	ReasonContinued // the last output is unchanged; an earlier output was spliced
	ReasonTokens    // the same text in other tokens
	ReasonSpace     // other white space at the ends of texts, or between calls
	ReasonPrinted   // a call with the same value, printed differently
	ReasonDeleted   // the text before a call is gone

	ReasonForm      // the prompt does not end where the model's turn begins
	ReasonUnknown   // an output of a call with the same prompt is unknown
	ReasonAmbiguous // several outputs can have this print
	ReasonGap       // another turn of the model follows that was not seen
	ReasonEnd       // the output did not end in the end token
	ReasonSpecial   // the output or its print has special tokens, or invalid ids
	ReasonThought   // the text before an answer is gone: templates remove thoughts
	ReasonMalformed // a call is not the JSON that the template prints
	ReasonCalls     // another number of calls
	ReasonArguments // a call with another name or other arguments
	ReasonUnlike    // another text
	ReasonLong      // the spliced prompt would exceed MaxPrompt
	ReasonClient    // no tool result follows the turn: a client can have written it
	ReasonTaken     // another prompt already continued the output

	reasons // their number
)

var reasonWords = [reasons]string{
	"new", "same",
	"continued", "tokens", "space", "call", "text",
	"form", "unknown", "ambiguous", "gap", "end", "special", "thought", "malformed", "calls", "arguments", "unlike", "long", "client", "taken",
}

// Spliced reports whether the prompt was spliced.
func (r Reason) Spliced() bool { return ReasonContinued <= r && r <= ReasonDeleted }

// Outcome returns the group of the reason: same, spliced or refused.
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
