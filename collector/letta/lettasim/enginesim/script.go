package enginesim

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// A script contains the model's replies to a user message that names the script.
type script struct {
	// replies contains the reply to each call, in order. Further calls are answered with "Done.".
	replies []reply
	// make, if not nil, returns the replies. The field replies is then ignored.
	make func(c conversation) []reply
}

// A reply describes one generation.
type reply struct {
	// text is the model's output, including think blocks and tool calls. %word% and %n% stand for a
	// random word and number that depend on the prompt. %seed% stands for the marker's seed, and
	// %step% for the number of the call, from 0.
	text   string
	repeat int // how many times text occurs in the output; 0 means once
	// split selects how the text is split into tokens: by the tokenizer (empty), after each
	// character (chars), or additionally at random places outside special tokens (random).
	split  string
	length bool // if true, the output ends at the token limit, without the stop id
	// equal, if not empty, makes the log-probabilities depend only on this word, the position and
	// the id.
	equal string
	// plant maps a position to the JSON text that replaces the log-probability there: NaN, null,
	// -0.0 or -Infinity. A negative position counts from the end.
	plant   map[int]string
	version string // the weight version of this call; empty means the engine's version
	delayMS int    // how long the call takes, in milliseconds
}

// toolCall returns a tool call in the format of Qwen3's template.
func toolCall(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// think returns a think block followed by text.
func think(thought, text string) string { return "<think>\n" + thought + "\n</think>\n\n" + text }

// reply returns the script's reply to the current call in the conversation.
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
