package enginesim

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// A script is what the model does after a user's message that names it.
type script struct {
	// replies answer the calls, in order. Calls beyond the last are answered with "Done.".
	replies []reply
	// make makes the replies instead, if it is set.
	make func(c conversation) []reply
}

// A reply is one generation.
type reply struct {
	// text is what the model says: text, think blocks and tool calls, as the model prints
	// them. %word%, %n%, %seed% and %step% stand for a word and a number drawn from the
	// prompt, for the marker's seed, and for the number of the call, from 0.
	text   string
	repeat int // how often text is said; 0 is once
	// split is how the text is cut into tokens: as the tokenizer does it (empty), each
	// character by itself (chars), or at random places outside special tokens (random).
	split  string
	length bool // the output ends for its length, without the stop id
	// equal makes log-probabilities a function of this word, position and id alone.
	equal string
	// plant has log-probabilities by position, as JSON text: NaN, null, -0.0, -Infinity.
	// A position below 0 counts from the end.
	plant   map[int]string
	version string // the weight version of this call, if it is not the engine's
	delayMS int    // how long the call takes, in milliseconds
}

// toolCall is a call of a tool in the words of Qwen3's template.
func toolCall(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// think is a block of thought before a text.
func think(thought, text string) string { return "<think>\n" + thought + "\n</think>\n\n" + text }

// reply is what the script answers to a call of the conversation.
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

// said is the reply's text with its variables in place.
func (r *reply) said(c *conversation, draw *rand.Rand) string {
	text := strings.NewReplacer(
		"%word%", words[draw.IntN(len(words))], "%n%", strconv.Itoa(draw.IntN(1000)),
		"%seed%", c.Params["seed"], "%step%", strconv.Itoa(c.Step),
	).Replace(r.text)
	return strings.Repeat(text, max(1, r.repeat))
}
