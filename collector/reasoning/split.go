package reasoning

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A Splitter separates answers from reasoning. It implements collector.Splitter and is safe for
// concurrent use.
type Splitter struct {
	// If Include is true, Reply.Output keeps the reasoning.
	Include bool

	pairs   []pair
	headers bool
	all     bool // the model is unknown, so all known markers are used
	tok     *bpe.Tokenizer
	keep    map[int32]bool // ids of the markers that are special tokens, which the engine's text omits
	opening string         // rendered text that ends with the template's generation prompt; empty if unknown
}

// New returns a Splitter for the markers of a model. These are the known markers in the model's
// template or tokenizer, and the markers that the template prints around reasoning_content. If m is
// nil or has no template, the Splitter works for any model.
func New(m *Model) *Splitter {
	if m == nil || m.Template == nil {
		return &Splitter{pairs: ofAnyModel(), all: true}
	}
	s := &Splitter{tok: m.Tokenizer}
	s.pairs, s.headers = markersOf(*m)
	s.opening, _ = generationPrompt(*m)
	if s.tok == nil {
		return s
	}
	marks := slices.Clone(messageMarks)
	if !s.headers {
		marks = nil
	}
	for _, p := range s.pairs {
		marks = append(marks, p.open, p.close, p.around[0], p.around[1])
	}
	s.keep = map[int32]bool{}
	for _, mark := range marks {
		if id, ok := s.tok.ID(mark); ok && s.tok.IsSpecial(id) {
			s.keep[id] = true
		}
	}
	return s
}

// Split sets r.Reasoning to the model's reasoning and, unless Include is set, r.Output to the
// answer.
func (s *Splitter) Split(r *collector.Reply, calls []tokenize.Call) {
	answer, thought := s.split(r, calls)
	r.Reasoning = thought
	if !s.Include {
		r.Output = answer
	}
}

func (s *Splitter) split(r *collector.Reply, calls []tokenize.Call) (answer, thought string) {
	if len(s.pairs) == 0 && !s.headers {
		return r.Text, ""
	}
	st, ids := state{opened: s.opening}, []int32(nil)
	if call := callOf(r, calls); call != nil {
		st.cut, ids = call.FinishReason == tokenize.FinishLength, call.OutputIDs
		if tail, ok := s.tail(call.PromptIDs); ok {
			st.opened = tail
		}
	}
	answer, thought = s.parts(r.Text, st)
	if len(s.keep) == 0 && answer != "" && s.marked(r.Text) {
		return answer, thought
	}
	full, known := s.decode(ids)
	if !known {
		return answer, thought
	}
	_, opened := s.opener(st.opened)
	switch special := s.marked(full) && slices.ContainsFunc(ids, func(id int32) bool { return s.keep[id] }); {
	case special, opened && len(s.keep) > 0:
		return s.parts(full, st) // the engine's text lacks the markers
	case s.marked(r.Text):
		if answer == "" { // the server might have removed a marker inside a tool call
			return s.parts(full, st)
		}
		return answer, thought
	case s.headers:
		return r.Text, "" // the model wrote no header
	case s.marked(full):
		_, thought = s.parts(full, st) // the server removed the reasoning
		return r.Text, thought
	}
	return answer, thought
}

// A state contains facts about an output that the text of the output does not show.
type state struct {
	opened string // the end of the prompt; empty if unknown
	cut    bool   // the token limit ended the output
}

// callOf returns the call in the last send that produced the text of the reply. If no call has this
// text, callOf returns the last call of the send. If the calls do not match the turns, it returns
// nil.
func callOf(r *collector.Reply, calls []tokenize.Call) *tokenize.Call {
	n := 0
	for i := range r.Sends {
		n += tokenize.AssistantTurns(r.Sends[i].Turns)
	}
	if n != len(calls) || len(r.Sends) == 0 {
		return nil
	}
	turns, last := r.Sends[len(r.Sends)-1].Turns, (*tokenize.Call)(nil)
	for k := range slices.Backward(turns) {
		if turns[k].Role != tokenize.RoleAssistant {
			continue
		}
		n--
		if strings.TrimSpace(turns[k].Content) == strings.TrimSpace(r.Text) {
			return &calls[n]
		}
		if last == nil {
			last = &calls[n]
		}
	}
	return last
}

// tailTokens is the number of ids at the end of the prompt that are decoded. It is larger than any
// generation prompt.
const tailTokens = 64

func (s *Splitter) tail(prompt []int32) (string, bool) {
	if s.tok == nil || len(prompt) == 0 {
		return "", false
	}
	b, err := s.tok.AppendText(nil, prompt[max(0, len(prompt)-tailTokens):], bpe.DecodeOptions{})
	return string(b), err == nil
}

// decode returns the text of an output, including markers but without other special tokens.
func (s *Splitter) decode(ids []int32) (string, bool) {
	if s.tok == nil || len(ids) == 0 {
		return "", false
	}
	var b []byte
	for len(ids) > 0 {
		n := slices.IndexFunc(ids, s.tok.IsSpecial)
		if n < 0 {
			n = len(ids)
		}
		var err error
		if b, err = s.tok.AppendText(b, ids[:n], bpe.DecodeOptions{}); err != nil {
			return "", false
		}
		if ids = ids[n:]; len(ids) > 0 {
			if s.keep[ids[0]] {
				b = append(b, s.tok.Piece(ids[0])...)
			}
			ids = ids[1:]
		}
	}
	return string(b), true
}

func (s *Splitter) marked(text string) bool {
	if s.headers {
		return strings.Contains(text, message) || strings.Contains(text, channel)
	}
	return slices.ContainsFunc(s.pairs, func(p pair) bool { return strings.Contains(text, p.open) || strings.Contains(text, p.close) })
}

// toolCalls matches the tool calls that Letta 0.16 removes from the text of an answer.
var toolCalls = regexp.MustCompile(`(?s)<tool_call>.*?</tool_call>`)

func (s *Splitter) parts(text string, st state) (answer, thought string) {
	switch {
	case s.headers, s.all && strings.Contains(text, message):
		answer, thought = messages(text, st)
	case s.all && strings.HasPrefix(text, bareAnalysis) && strings.Contains(text, bareFinal):
		answer, thought = bare(text)
	default:
		answer, thought = s.blocks(text, st)
	}
	return strings.TrimSpace(toolCalls.ReplaceAllString(answer, "")), strings.TrimSpace(thought)
}

// bareAnalysis and bareFinal are the parts of message headers that remain if the special tokens are
// omitted.
const (
	bareAnalysis = "analysis"
	bareFinal    = "assistantfinal"
)

// bare splits an output that consists of messages without their markers.
func bare(text string) (answer, thought string) {
	text, ok := strings.CutPrefix(text, bareAnalysis)
	if !ok {
		return strings.TrimPrefix(text, strings.TrimPrefix(bareFinal, "assistant")), ""
	}
	at := strings.LastIndex(text, bareFinal)
	if at < 0 {
		return "", text // the token limit cut the output before the answer
	}
	return text[at+len(bareFinal):], text[:at]
}

// messages splits an output that consists of messages with headers. The answer consists of the
// messages in the channel final. A message without a channel is also part of the answer, unless it
// has a recipient other than the user.
func messages(text string, st state) (answer, thought string) {
	if !strings.Contains(text, message) {
		if strings.Contains(text, channel) {
			return "", "" // the output was cut inside the header
		}
		return bare(text)
	}
	if at := strings.LastIndex(st.opened, start); at >= 0 {
		text = st.opened[at+len(start):] + text // the prompt contains the start of the header
	}
	var answers, thoughts []string
	for part := range strings.SplitSeq(text, start) {
		header, body, ok := strings.Cut(part, message)
		if !ok {
			continue
		}
		for _, end := range []string{"<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>"} {
			body, _, _ = strings.Cut(body, end)
		}
		_, name, channels := strings.Cut(header, channel)
		switch {
		case channels && strings.HasPrefix(name, "final"), !channels && !strings.Contains(header, "to="), strings.Contains(header, "to=user"):
			answers = append(answers, body)
		case strings.HasPrefix(name, "analysis"), strings.Contains(header, "to=self"):
			thoughts = append(thoughts, strings.TrimSpace(body))
		}
	}
	return strings.Join(answers, "\n"), strings.Join(thoughts, "\n")
}

// blocks splits an output at its reasoning markers.
func (s *Splitter) blocks(text string, st state) (answer, thought string) {
	var thoughts []string
	p, inside := s.opener(st.opened)
	closed := st.opened != "" && !inside && s.ends(st.opened)
	if !inside {
		var rest string
		if p, rest, inside = s.begins(text); inside {
			text = rest
		}
	}
	if inside {
		// The output can repeat the opening marker that the prompt already contains.
		text = strings.TrimPrefix(strings.TrimLeftFunc(text, unicode.IsSpace), p.open)
		body, rest, ended := strings.Cut(text, p.close)
		if thoughts = append(thoughts, strings.TrimSpace(body)); !ended {
			return "", strings.Join(thoughts, "\n")
		}
		text = rest
	} else if body, rest, ended := s.unopened(text, st.opened != ""); ended && !closed {
		thoughts, text = append(thoughts, strings.TrimSpace(body)), rest
	}
	var b strings.Builder
	for {
		at, p := s.next(text)
		if at < 0 {
			break
		}
		body, rest, ended := strings.Cut(text[at+len(p.open):], p.close)
		switch {
		case ended, st.cut, strings.TrimSpace(lastLine(text[:at])) == "":
			thoughts = append(thoughts, strings.TrimSpace(body))
			if !ended {
				return "", strings.Join(thoughts, "\n")
			}
			b.WriteString(text[:at])
		default:
			rest = text[at+len(p.open):]
			b.WriteString(text[:at+len(p.open)]) // a quotation
		}
		text = rest
	}
	b.WriteString(text)
	return s.unwrap(b.String()), strings.Join(thoughts, "\n")
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// opener returns the pair whose opening marker is at the end of the prompt.
func (s *Splitter) opener(prompt string) (pair, bool) {
	prompt = strings.TrimRightFunc(prompt, unicode.IsSpace)
	for _, p := range s.pairs {
		if strings.HasSuffix(prompt, p.open) {
			return p, true
		}
	}
	return pair{}, false
}

// ends reports whether the prompt ends with a closing marker.
func (s *Splitter) ends(prompt string) bool {
	prompt = strings.TrimRightFunc(prompt, unicode.IsSpace)
	return slices.ContainsFunc(s.pairs, func(p pair) bool { return strings.HasSuffix(prompt, p.close) })
}

// begins reports whether the text starts with an opening marker. If so, it also returns the marker's
// pair and the text after the marker.
func (s *Splitter) begins(text string) (pair, string, bool) {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	for _, p := range s.pairs {
		if rest, ok := strings.CutPrefix(text, p.open); ok {
			return p, rest, true
		}
	}
	return pair{}, text, false
}

// next returns the offset and the pair of the first opening marker, or -1.
func (s *Splitter) next(text string) (at int, first pair) {
	at = -1
	for _, p := range s.pairs {
		if i := strings.Index(text, p.open); i >= 0 && (at < 0 || i < at) {
			at, first = i, p
		}
	}
	return at, first
}

// unopened splits text at the first closing marker if no opening marker precedes the closing
// marker. If strict is true, the marker must be at the start or the end of a line.
func (s *Splitter) unopened(text string, strict bool) (body, rest string, ok bool) {
	at, mark := -1, ""
	for _, p := range s.pairs {
		if i := strings.Index(text, p.close); i >= 0 && (at < 0 || i < at) {
			at, mark = i, p.close
		}
	}
	if at < 0 {
		return "", text, false
	}
	if open, _ := s.next(text); open >= 0 && open < at {
		return "", text, false
	}
	body, rest = text[:at], text[at+len(mark):]
	line, _, _ := strings.Cut(rest, "\n")
	return body, rest, !strict || strings.TrimSpace(lastLine(body)) == "" || strings.TrimSpace(line) == ""
}

func (s *Splitter) unwrap(text string) string {
	for _, p := range s.pairs {
		if p.around[0] == "" {
			continue
		}
		trimmed := strings.TrimSpace(text)
		rest, ok := strings.CutPrefix(trimmed, p.around[0])
		if ok || p.around[0] == p.close {
			text = strings.TrimSuffix(strings.TrimSpace(rest), p.around[1])
		}
	}
	return text
}
