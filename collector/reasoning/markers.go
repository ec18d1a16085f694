package reasoning

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A pair consists of the marker that opens reasoning and the marker that closes the reasoning.
type pair struct {
	open, close string
	// around contains the markers before and after the answer.
	around [2]string
}

const apriel = "Here are my reasoning steps:"

// known lists the marker pairs that models use. It is based on 82 templates and on the reasoning
// parsers in inference engines.
var known = []pair{
	{open: "<think>", close: "</think>", around: [2]string{"<response>", "</response>"}}, // <response>: Granite
	{open: "<thinking>", close: "</thinking>"},
	{open: "<thought>", close: "</thought>"},
	{open: "<thoughts>", close: "</thoughts>"},
	{open: "<reasoning>", close: "</reasoning>"},
	{open: "[THINK]", close: "[/THINK]"},           // Mistral
	{open: "<seed:think>", close: "</seed:think>"}, // Seed
	{open: "◁think▷", close: "◁/think▷"},           // Kimi-VL
	{open: "<|START_THINKING|>", close: "<|END_THINKING|>", around: [2]string{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}}, // Command
	{open: "<|START_THINKING|>", close: "<|END_THINKING|>", around: [2]string{"<|START_TEXT|>", "<|END_TEXT|>"}},         // Command
	{open: "<|channel>", close: "<channel|>"},                                                                                      // Gemma 4
	{open: "<|inner_prefix|>", close: "<|inner_suffix|>"},                                                                          // Apertus
	{open: "<|reasoning_thinking_start|>", close: "<|reasoning_thinking_end|>"},                                                    // Llama 4
	{open: "<|thinking|>", close: "<|/thinking|>"},                                                                                 // several models
	{open: "<|begin_of_thought|>", close: "<|end_of_thought|>", around: [2]string{"<|begin_of_solution|>", "<|end_of_solution|>"}}, // OpenThinker
	{open: apriel, close: "[BEGIN FINAL RESPONSE]", around: [2]string{"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"}},           // Apriel
}

// The markers in an output that consists of messages with headers.
const (
	start   = "<|start|>"
	message = "<|message|>"
	channel = "<|channel|>"
)

var messageMarks = []string{start, message, channel, "<|constrain|>", "<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>"}

// ofAnyModel returns the known pairs for outputs from an unknown model. It omits the opening marker
// that is a plain sentence, and the marker <response> around an answer.
func ofAnyModel() []pair {
	pairs := slices.Clone(known)
	for i := range pairs {
		p := &pairs[i]
		if p.open == apriel {
			p.open = "\xff" // never occurs in valid text
		}
		if p.around[0] == "<response>" {
			p.around = [2]string{}
		}
	}
	return pairs
}

// markersOf returns the known pairs that the template or the tokenizer contains, plus the pair that
// the template prints around reasoning. The second result reports whether outputs consist of
// messages with headers.
func markersOf(m Model) (pairs []pair, headers bool) {
	source := m.Template.Source()
	headers = strings.Contains(source, start) && strings.Contains(source, message)
	if headers {
		return nil, true
	}
	has := func(marker string) bool {
		_, ok := m.Tokenizer.ID(marker)
		return ok
	}
	for _, p := range known {
		if !strings.Contains(source, p.around[0]) {
			p.around = [2]string{}
		}
		// A template that only closes reasoning contains only the closing marker. If a template
		// assembles a marker from pieces, its source might contain neither marker.
		named := strings.Contains(source, p.close) || strings.Contains(source, p.open) && strings.ContainsAny(p.open, "<[◁")
		if named || m.Tokenizer != nil && has(p.open) && has(p.close) {
			pairs = append(pairs, p)
		}
	}
	if p, ok := printed(m); ok && !slices.ContainsFunc(pairs, func(k pair) bool { return k.close == p.close || k.open == p.open }) {
		pairs = append(pairs, p)
	}
	return pairs, false
}

// anyTime is the time that is passed to templates. No marker depends on the time.
var anyTime = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// printed returns the text that the template prints before and after reasoning_content.
func printed(m Model) (p pair, ok bool) {
	const thought, answer = "Tq7thought", "Aq7answer"
	user, reply := chat.NewMap(2), chat.NewMap(5)
	user.Set("role", chat.StringValue("user"))
	user.Set("content", chat.StringValue("Uq7question"))
	reply.Set("role", chat.StringValue("assistant"))
	reply.Set("content", chat.StringValue(answer))
	for _, key := range []string{"reasoning_content", "reasoning", "thinking", "thought"} {
		reply.Set(key, chat.StringValue(thought))
	}
	text, err := m.Template.Render(nil, chat.Input{Messages: chat.ListValue(chat.MapValue(user), chat.MapValue(reply)), Transformers: m.Transformers, Now: anyTime})
	if err != nil {
		return p, false
	}
	before, rest, found := strings.Cut(string(text), thought)
	between, _, follows := strings.Cut(rest, answer)
	if !found || !follows {
		return p, false
	}
	p.close, _, _ = strings.Cut(strings.TrimSpace(between), "\n")
	before = strings.TrimSpace(before)
	first, _ := utf8.DecodeRuneInString(p.close)
	at := strings.LastIndex(before, string(first))
	if p.close == "" || at < 0 || strings.Contains(p.close, thought) {
		return p, false
	}
	p.open = before[at:]
	return p, !strings.ContainsAny(p.open, "\n")
}

// generationPrompt renders a short conversation. The text ends with the generation prompt, which
// the template adds before the model's turn.
func generationPrompt(m Model) (text string, ok bool) {
	user := chat.NewMap(2)
	user.Set("role", chat.StringValue("user"))
	user.Set("content", chat.StringValue("Hello"))
	out, err := m.Template.Render(nil, chat.Input{Messages: chat.ListValue(chat.MapValue(user)), AddGenerationPrompt: true, Transformers: m.Transformers, Now: anyTime})
	return string(out), err == nil
}

// A Model contains the template and the tokenizer from which the markers are taken.
type Model struct {
	Template     *chat.Template
	Tokenizer    *bpe.Tokenizer
	Transformers chat.Transformers
}
