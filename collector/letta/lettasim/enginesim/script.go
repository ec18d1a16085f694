package enginesim

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// A script has the model's replies after a user message that names it.
type script struct {
	// replies answer the calls, in order. Calls beyond the last are answered with "Done.".
	replies []reply
	// make, if not nil, returns the replies instead.
	make func(c conversation) []reply
}

// A reply is one generation.
type reply struct {
	// text is the model's output, with its think blocks and tool calls. %word% and %n% stand for a
	// word and a number drawn from the prompt, %seed% for the marker's seed, and %step% for the
	// number of the call, from 0.
	text   string
	repeat int // how many times text is repeated; 0 means once
	// split selects how the text is cut into tokens: by the tokenizer (empty), at each character
	// (chars), or at random places outside special tokens (random).
	split  string
	length bool // the output ends at the token limit, without the stop id
	// equal, if not empty, makes log-probabilities depend only on this word, the position and the
	// id.
	equal string
	// plant has the text of log-probabilities by position: NaN, null, -0.0 or -Infinity. A negative
	// position counts from the end.
	plant   map[int]string
	version string // the weight version of this call, if it is not the engine's
	delayMS int    // how long the call takes, in milliseconds
}

// toolCall returns a tool call in the format of Qwen3's template.
func toolCall(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// think returns a think block and a text.
func think(thought, text string) string { return "<think>\n" + thought + "\n</think>\n\n" + text }

// reply returns the script's reply to the conversation's current call.
func (s *script) reply(c *conversation) reply {
	replies := s.replies
	if s.make != nil {
		replies = s.make(*c)
	}
	if c.Step >= len(replies) {
		return reply{text: "Done."}
	}
	return replies[c.Step]
}

var words = strings.Fields("amber basin cedar delta ember fjord grove harbor island juniper kelp lagoon meadow nectar orchid prairie quartz river summit tundra")

// said returns the reply's text with its variables replaced.
func (r *reply) said(c *conversation, draw *rand.Rand) string {
	text := strings.NewReplacer(
		"%word%", words[draw.IntN(len(words))], "%n%", strconv.Itoa(draw.IntN(1000)),
		"%seed%", c.Params["seed"], "%step%", strconv.Itoa(c.Step),
	).Replace(r.text)
	return strings.Repeat(text, max(1, r.repeat))
}
