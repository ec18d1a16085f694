package enginesim

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Script is what the model does after a user's message that names it.
type Script struct {
	// Replies answer the calls, in order. Calls beyond the last are answered with "Done.".
	Replies []Reply `json:"replies"`
	// Make makes the replies instead of Replies, where it is set.
	Make func(c Conversation) []Reply `json:"-"`
}

// A Reply is one generation.
type Reply struct {
	// Text is what the model says: text, think blocks and tool calls, as the model prints
	// them. %word%, %n%, %seed% and %step% stand for a word and a number drawn from the
	// prompt, for the marker's seed, and for the number of the call, from 0.
	Text string `json:"text,omitempty"`
	// Repeat is how often Text is said; 0 is once.
	Repeat int `json:"repeat,omitempty"`
	// Split is how the text is cut into tokens: as the tokenizer does it (empty), each
	// character by itself (chars), or at random places outside special tokens (random).
	Split string `json:"split,omitempty"`
	// OutputIDs are the sampled ids instead of the ids of Text, the stop id included.
	OutputIDs []int32 `json:"output_ids,omitempty"`
	// Finish is stop (empty), length or abort. Only a stop appends the stop id.
	Finish string `json:"finish,omitempty"`
	// Equal makes log-probabilities a function of this word, position and id alone.
	Equal string `json:"equal,omitempty"`
	// Plant are log-probabilities by position, as JSON text: NaN, null, -0.0, -Infinity.
	// A position below 0 counts from the end.
	Plant map[int]string `json:"plant,omitempty"`
	// Version is the weight version of this call, if it is not the engine's.
	Version string `json:"version,omitempty"`

	// Status is an HTTP status to answer instead, and Drop closes the connection without
	// an answer. Times bounds how often, over all conversations with this script, seed
	// and step; 0 is always.
	Status int  `json:"status,omitempty"`
	Drop   bool `json:"drop,omitempty"`
	Times  int  `json:"times,omitempty"`
	// Late drops the connection after the tokens were sampled and kept in the log.
	Late bool `json:"late,omitempty"`
	// DelayMS is how long the call takes, in milliseconds.
	DelayMS int `json:"delay_ms,omitempty"`
}

// ToolCall is a call of a tool in the words of Qwen3's template.
func ToolCall(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// Think is a block of thought before a text.
func Think(thought, text string) string { return "<think>\n" + thought + "\n</think>\n\n" + text }

// ReadScripts reads scripts by name from one JSON object and adds them to the built-in
// ones, which they replace by name.
func ReadScripts(r io.Reader) (map[string]Script, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	read := map[string]Script{}
	if err := d.Decode(&read); err != nil {
		return nil, fmt.Errorf("enginesim: scripts: want {\"NAME\": {\"replies\": [{\"text\": …}]}}: %w", err)
	}
	all := Builtin()
	for _, name := range slices.Sorted(maps.Keys(read)) {
		for i, reply := range read[name].Replies {
			if err := reply.validate(); err != nil {
				return nil, fmt.Errorf("enginesim: script %s: reply %d: %w", name, i, err)
			}
		}
		all[name] = read[name]
	}
	return all, nil
}

func (r *Reply) validate() error {
	switch {
	case !slices.Contains([]string{"", "chars", "random"}, r.Split):
		return fmt.Errorf("split %q: want chars or random", r.Split)
	case !slices.Contains([]string{"", "stop", "length", "abort"}, r.Finish):
		return fmt.Errorf("finish %q: want stop, length or abort", r.Finish)
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return fmt.Errorf("status %d: want 400 to 599", r.Status)
	case r.Repeat < 0 || r.Times < 0 || r.DelayMS < 0:
		return fmt.Errorf("repeat, times and delay_ms: must be ≥ 0")
	}
	return nil
}

func (r *Reply) delay() time.Duration { return time.Duration(r.DelayMS) * time.Millisecond }

// reply is what the script answers to a call of the conversation.
func (s *Script) reply(c *Conversation) Reply {
	replies := s.Replies
	if s.Make != nil {
		replies = s.Make(*c)
	}
	if c.Step >= len(replies) {
		return Reply{Text: "Done."}
	}
	return replies[c.Step]
}

var words = strings.Fields("amber basin cedar delta ember fjord grove harbor island juniper kelp lagoon meadow nectar orchid prairie quartz river summit tundra")

// said is the reply's text with its variables in place.
func (r *Reply) said(c *Conversation, draw *rand.Rand) string {
	text := strings.NewReplacer(
		"%word%", words[draw.IntN(len(words))], "%n%", strconv.Itoa(draw.IntN(1000)),
		"%seed%", c.Params["seed"], "%step%", strconv.Itoa(c.Step),
	).Replace(r.Text)
	return strings.Repeat(text, max(1, r.Repeat))
}
