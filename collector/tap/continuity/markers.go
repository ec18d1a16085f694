package continuity

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// ErrTemplate means that [New] cannot find the model's turns in prompts rendered with the template.
var ErrTemplate = errors.New("continuity: template not supported")

// The text around a turn in the ChatML format.
const (
	startText  = "<|im_start|>"
	endText    = "<|im_end|>"
	headerText = startText + "assistant\n"
)

// markers are the tokens that delimit the model's turns in a prompt.
type markers struct {
	start, end int32   // the first and the last token of a turn
	header     []int32 // the ids with which a model turn begins; header[0] is start
	// result is the trimmed text between the token start and a tool result. No user message begins
	// with this text.
	result []byte
	// resultIDs contains the usual ids of result. Other ids can also encode this text.
	resultIDs []int32
}

// findMarkers finds the markers in the model's template. It renders three conversations to prove
// that
//
//   - the template renders a model turn as the header, the text and calls, and the end token;
//   - a prompt ends with the header;
//   - a tool result begins differently from user text.
func findMarkers(cfg *Config) (markers, error) {
	var m markers
	tok := cfg.Tokenizer
	if tok.Family() == bpe.FamilyChars {
		return m, fmt.Errorf("%w: the tokenizer has a character vocabulary, which drops leading spaces", ErrTemplate)
	}
	for _, marker := range []struct {
		text string
		id   *int32
	}{{startText, &m.start}, {endText, &m.end}} {
		id, ok := tok.ID(marker.text)
		if !ok || !tok.IsSpecial(id) {
			return m, fmt.Errorf("%w: the tokenizer has no special token %s; only ChatML templates are supported (Qwen, Hermes and others)", ErrTemplate, marker.text)
		}
		*marker.id = id
	}
	var err error
	if m.header, err = tok.AppendTokens(nil, headerText); err != nil {
		return m, err
	}
	if len(m.header) < 2 || m.header[0] != m.start || slices.Contains(m.header[1:], m.start) || slices.Contains(m.header, m.end) {
		return m, fmt.Errorf("%w: the tokenizer encodes %q as %v, which is not a usable turn header", ErrTemplate, headerText, m.header)
	}
	return m, m.prove(cfg)
}

// prove renders conversations and returns an error if a model turn is not rendered as expected. It
// sets m.result and m.resultIDs.
func (m *markers) prove(cfg *Config) error {
	const (
		answer = "The sum is five."
		call   = `{"name": "add", "arguments": {"a": 2, "b": "x"}}`
		before = `{"role": "system", "content": "S"}, {"role": "user", "content": "U"}`
		result = "It has a result."
		words  = "It has words."
		asks   = `, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": ` + call + `}]}, {"role": "tool", "content": "` + result + `"}`
		says   = `, {"role": "assistant", "content": "` + answer + `"}, {"role": "user", "content": "` + words + `"}`
	)
	now := cfg.Now() // all renderings must use the same time
	first, _, err := render(cfg, before, now)
	if err != nil {
		return err
	}
	if !slices.Equal(m.last(first), m.header) {
		return fmt.Errorf("%w: its prompts do not end in %q, so the template adds text to the model's turn", ErrTemplate, headerText)
	}
	var begins [2]string // the start of the message after the turn
	for i, later := range []struct{ what, messages, want, next string }{
		{"an answer", says, answer, words},
		{"a tool call", asks, "<tool_call>\n" + call + "\n</tool_call>", result},
	} {
		next, text, err := render(cfg, before+later.messages, now)
		if err != nil {
			return err
		}
		want, err := cfg.Tokenizer.AppendTokens(nil, later.want)
		if err != nil {
			return err
		}
		if !slices.Equal(m.last(next), m.header) || len(next) < len(first) || !slices.Equal(next[:len(first)], first) {
			return fmt.Errorf("%w: a prompt does not begin with the previous prompt", ErrTemplate)
		}
		if end := slices.Index(next[len(first):], m.end); end < 0 || m.compare(cfg.Tokenizer, want, next[len(first):][:end]).reason != ReasonSame {
			return fmt.Errorf("%w: it does not render %s as %q followed by %s", ErrTemplate, later.what, later.want, endText)
		}
		at := strings.LastIndex(text, later.next)
		if at < 0 {
			return fmt.Errorf("%w: it does not render the message after %s", ErrTemplate, later.what)
		}
		begins[i] = text[strings.LastIndex(text[:at], startText)+len(startText) : at]
	}
	m.result = trim([]byte(begins[1]))
	if len(m.result) == 0 || strings.HasPrefix(begins[0]+words, string(m.result)) {
		return fmt.Errorf("%w: it renders a tool result like a user message", ErrTemplate)
	}
	m.resultIDs, err = cfg.Tokenizer.AppendTokens(nil, string(m.result))
	return err
}

func (m *markers) calls(tok *bpe.Tokenizer, printed []int32) bool {
	text, err := tok.AppendBytes(make([]byte, 0, 4*len(printed)), printed, bpe.DecodeOptions{})
	return err == nil && bytes.Contains(text, callStart)
}

// results reports whether ids consists of one or more tool results followed by a header. Only the
// server writes tool results, whereas a client can write user and assistant text.
func (m *markers) results(tok *bpe.Tokenizer, ids []int32) bool {
	ids = ids[:len(ids)-len(m.header)]
	for n := 0; ; n++ {
		from := slices.Index(ids, m.start)
		if from < 0 {
			return n > 0
		}
		end := m.endOf(ids, from)
		if end < 0 {
			return false
		}
		head := ids[from+1 : end]
		if len(head) > len(m.resultIDs) && slices.Equal(head[:len(m.resultIDs)], m.resultIDs) {
			ids = ids[end+1:]
			continue
		}
		text, err := tok.AppendBytes(nil, head[:min(len(head), len(m.result))], bpe.DecodeOptions{})
		if err != nil || !bytes.HasPrefix(text, m.result) {
			return false
		}
		ids = ids[end+1:]
	}
}

func (m *markers) last(ids []int32) []int32 {
	return ids[max(0, len(ids)-len(m.header)):]
}

func render(cfg *Config, messages string, now time.Time) (ids []int32, text string, err error) {
	list, err := chat.FromJSON([]byte("[" + messages + "]"))
	if err != nil {
		return nil, "", err
	}
	out, err := cfg.Template.Render(nil, chat.Input{Messages: list, AddGenerationPrompt: true, Transformers: cfg.Transformers, Now: now})
	if err != nil {
		return nil, "", fmt.Errorf("%w: it cannot render a conversation with a tool: %w", ErrTemplate, err)
	}
	ids, err = cfg.Tokenizer.AppendTokens(nil, string(out))
	return ids, string(out), err
}

// A place is a position in a prompt at which the header of a model turn ends.
type place struct {
	at   int    // number of ids before the place, including the header
	hash uint64 // hash of these ids
}

// places appends the places in asked to dst. The last place can be the end of asked.
func (m *markers) places(dst []place, seed uint64, asked []int32) []place {
	h, n := seed, 0
	for i, id := range asked {
		// Multiply once for each id, and mix the high bits into the low bits.
		h = (h ^ uint64(uint32(id))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		switch id {
		case m.header[n]:
			n++
		case m.start:
			n = 1
		default:
			n = 0
		}
		if n == len(m.header) {
			dst, n = append(dst, place{i + 1, h}), 0
		}
	}
	return dst
}

// open reports whether asked ends with the header of a model turn.
func open(places []place, asked []int32) bool {
	return len(places) > 0 && places[len(places)-1].at == len(asked)
}
