package continuity

import "github.com/rollout-rl/rollout/tokenize/enum"

// A Reason says what was decided about one prompt, and why. The words are a closed list:
// they are the label of the counter.
type Reason uint8

// The reasons. Those of the second part splice the prompt; where several differences meet,
// the reason is the last of them in this list. Those of the third part leave the prompt as
// it is, because a splice is not proven.
const (
	ReasonNew  Reason = iota // no earlier call of this conversation is known
	ReasonSame               // the prompt already continues the engine's own tokens

	ReasonContinued // the last output is printed as it was; an earlier one was spliced
	ReasonTokens    // the same text in other tokens
	ReasonSpace     // other white space at the ends of texts, or between calls
	ReasonPrinted   // a call with the same value, printed otherwise
	ReasonDeleted   // the text before a call is gone

	ReasonForm      // the prompt does not end where the model's turn begins
	ReasonUnknown   // the output of a call with the same prompt is not known
	ReasonAmbiguous // several outputs can have been printed so
	ReasonGap       // another turn of the model follows that was not seen
	ReasonEnd       // the output did not end in the token that ends a turn
	ReasonSpecial   // the output or its print has special tokens, or ids of no token
	ReasonThought   // the text before an answer is gone, as templates do with thoughts
	ReasonMalformed // a call is not the JSON that the template prints
	ReasonCalls     // another number of calls
	ReasonArguments // a call with another name or other arguments
	ReasonUnlike    // another text
	ReasonLong      // the spliced prompt would be longer than is allowed
	ReasonClient    // no tool result follows the turn: a client can have written it
	ReasonTaken     // another prompt already continued the output

	reasons // how many there are
)

var reasonWords = enum.List[Reason]{
	Noun: "reason",
	Words: []string{
		"new", "same",
		"continued", "tokens", "space", "call", "text",
		"form", "unknown", "ambiguous", "gap", "end", "special", "thought", "malformed", "calls", "arguments", "unlike", "long", "client", "taken",
	},
}

// AllReasons returns the reasons in the order of the list.
func AllReasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Spliced reports whether the engine was given the history's own tokens.
func (r Reason) Spliced() bool { return ReasonContinued <= r && r <= ReasonDeleted }

// Outcome returns what became of the prompt: same, spliced or refused.
func (r Reason) Outcome() string {
	switch {
	case r.Spliced():
		return "spliced"
	case r < ReasonContinued:
		return "same"
	}
	return "refused"
}

func (r Reason) String() string { return reasonWords.String(r) }

// MarshalText returns the word of r.
func (r Reason) MarshalText() ([]byte, error) { return reasonWords.Marshal(r) }

// UnmarshalText sets r to the reason of that word.
func (r *Reason) UnmarshalText(text []byte) error { return reasonWords.Unmarshal(text, r) }
