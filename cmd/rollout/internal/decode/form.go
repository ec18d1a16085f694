package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// The roles of messages. Unknown is the role of text in a prompt that no mark of the chat template begins, and
// of a prompt whose chat template is not known.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
	Unknown   = "unknown"
)

// A mark is a token with which a chat template begins or ends a message.
type mark struct {
	// role is the role of the message that begins. It is empty if the name of the role follows.
	role string
	// head ends the name of the role: a token, or a line break. If role and head are empty, the mark
	// ends a message.
	head string
	// maybe is true if no message begins unless text follows.
	maybe bool
}

// A form is the way in which chat templates mark messages. The Python package has the same forms in
// rollout/_forms.py.
type form struct {
	name  string
	needs []string // a tokenizer that has all these tokens has the form
	marks map[string]mark
	// harmony is true if the header of a message names a channel and a recipient.
	harmony bool
	// bareCalls is true if an answer that is only {"name": …, "parameters": …} is a call.
	bareCalls bool
}

// forms lists the forms. The first form that a tokenizer has is the form of its model.
var forms = []form{
	{name: "Llama 3", needs: []string{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, marks: map[string]mark{
		"<|start_header_id|>": {head: "<|end_header_id|>"}, "<|eot_id|>": {}, "<|eom_id|>": {},
	}, bareCalls: true},
	{name: "Llama 4", needs: []string{"<|header_start|>", "<|header_end|>", "<|eot|>"}, marks: map[string]mark{
		"<|header_start|>": {head: "<|header_end|>"}, "<|eot|>": {}, "<|eom|>": {},
	}, bareCalls: true},
	{name: "Kimi K2", needs: []string{"<|im_user|>", "<|im_middle|>"}, marks: map[string]mark{
		"<|im_user|>": {role: User, head: "<|im_middle|>"}, "<|im_assistant|>": {role: Assistant, head: "<|im_middle|>"},
		"<|im_system|>": {role: System, head: "<|im_middle|>"}, "<|im_end|>": {},
	}},
	{name: "ChatML", needs: []string{"<|im_start|>", "<|im_end|>"}, marks: map[string]mark{
		"<|im_start|>": {head: "\n"}, "<|im_end|>": {},
	}},
	{name: "gpt-oss", needs: []string{"<|start|>", "<|channel|>", "<|message|>"}, marks: map[string]mark{
		"<|start|>": {head: "<|message|>"}, "<|end|>": {}, "<|return|>": {}, "<|call|>": {},
	}, harmony: true},
	{name: "GLM 4", needs: []string{"<|user|>", "<|assistant|>", "<|observation|>"}, marks: map[string]mark{
		"<|system|>": {role: System}, "<|user|>": {role: User}, "<|assistant|>": {role: Assistant}, "<|observation|>": {role: Tool},
	}},
	{name: "Phi 3", needs: []string{"<|user|>", "<|assistant|>", "<|end|>"}, marks: map[string]mark{
		"<|system|>": {role: System}, "<|user|>": {role: User}, "<|assistant|>": {role: Assistant}, "<|end|>": {},
	}},
	{name: "DeepSeek V3", needs: []string{"<｜User｜>", "<｜Assistant｜>"}, marks: map[string]mark{
		"<｜begin▁of▁sentence｜>": {role: System, maybe: true}, "<｜User｜>": {role: User}, "<｜Assistant｜>": {role: Assistant},
		"<｜tool▁output▁begin｜>": {role: Tool}, "<｜tool▁output▁end｜>": {role: Assistant, maybe: true},
		"<｜tool▁outputs▁begin｜>": {}, "<｜tool▁outputs▁end｜>": {role: Assistant, maybe: true}, "<｜end▁of▁sentence｜>": {},
	}},
	{name: "Mistral", needs: []string{"[INST]", "[/INST]"}, marks: map[string]mark{
		"[INST]": {role: User}, "[/INST]": {role: Assistant, maybe: true}, "[SYSTEM_PROMPT]": {role: System}, "[/SYSTEM_PROMPT]": {},
		"[AVAILABLE_TOOLS]": {role: System}, "[/AVAILABLE_TOOLS]": {}, "[MODEL_SETTINGS]": {role: System}, "[/MODEL_SETTINGS]": {},
		"[TOOL_RESULTS]": {role: Tool}, "[/TOOL_RESULTS]": {role: Assistant, maybe: true}, "<s>": {}, "</s>": {},
	}},
	{name: "Gemma 3", needs: []string{"<start_of_turn>", "<end_of_turn>"}, marks: map[string]mark{
		"<start_of_turn>": {head: "\n"}, "<end_of_turn>": {},
	}},
	{name: "Gemma 4", needs: []string{"<|turn>", "<turn|>"}, marks: map[string]mark{
		"<|turn>": {head: "\n"}, "<turn|>": {}, "<|tool_response>": {role: Tool}, "<tool_response|>": {role: Assistant, maybe: true},
	}},
	{name: "Command R", needs: []string{"<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}, marks: map[string]mark{
		"<|SYSTEM_TOKEN|>": {role: System}, "<|USER_TOKEN|>": {role: User}, "<|CHATBOT_TOKEN|>": {role: Assistant}, "<|END_OF_TURN_TOKEN|>": {},
	}},
	{name: "Granite 3", needs: []string{"<|start_of_role|>", "<|end_of_role|>"}, marks: map[string]mark{
		"<|start_of_role|>": {head: "<|end_of_role|>"}, "<|end_of_text|>": {},
	}},
	{name: "Seed-OSS", needs: []string{"<seed:bos>", "<seed:eos>"}, marks: map[string]mark{
		"<seed:bos>": {head: "\n"}, "<seed:eos>": {},
	}},
}

// ErrForm means that it is not known how the chat template of the tokenizer marks messages.
var ErrForm = fmt.Errorf("its chat template is not known (known are the templates of %s)", strings.Join(formNames(), ", "))

func formNames() (all []string) {
	for i := range forms {
		all = append(all, forms[i].name)
	}
	return all
}

// syntax lists tokens that mean something inside a message. They stay in its text, also if they are special.
var syntax = []string{
	"<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>", "<|START_THINKING|>", "<|END_THINKING|>",
	"<|channel>", "<channel|>",
	"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<seed:tool_call>", "</seed:tool_call>",
	"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>", "<|python_start|>", "<|python_end|>",
	"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]",
	"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
	"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
	"<|tool_call|>", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|tool_call>", "<tool_call|>", `<|"|>`, "<|tool_call_start|>", "<|tool_call_end|>",
}

// harmonySyntax is like syntax, for the harmony form.
var harmonySyntax = []string{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"}

// A Decoder decodes the tokens of rows. It is safe for concurrent use.
type Decoder struct {
	tok   *bpe.Tokenizer
	form  *form // nil if it is not known
	marks map[int32]mark
	heads map[int32]bool   // tokens that end the name of a role
	kept  map[int32]string // special tokens that stay in the text of a message

	thinking [][2]string
	calls    []callSyntax
}

// NewFor returns a Decoder that ignores the marks of other models around reasoning and calls. The marks of
// the model are in the source of its chat template, or are tokens. So an answer can quote another model's call.
func NewFor(tok *bpe.Tokenizer, source string) *Decoder {
	has := func(mark string) bool {
		_, isToken := tok.ID(mark)
		return isToken || strings.Contains(source, mark)
	}
	d := New(tok)
	d.thinking = slices.DeleteFunc(slices.Clone(thinking), func(m [2]string) bool { return !has(m[1]) })
	d.calls = slices.DeleteFunc(slices.Clone(callSyntaxes), func(s callSyntax) bool { return !has(s.mark) })
	return d
}

// New returns a Decoder for the rows of a model. It recognizes the reasoning and the calls of all models,
// because it does not have the chat template.
func New(tok *bpe.Tokenizer) *Decoder {
	d := &Decoder{
		tok: tok, marks: map[int32]mark{}, heads: map[int32]bool{}, kept: map[int32]string{},
		thinking: thinking, calls: callSyntaxes,
	}
	d.keep(syntax)
	for i := range forms {
		if d.hasAll(forms[i].needs) {
			d.form = &forms[i]
			break
		}
	}
	if d.form == nil {
		return d
	}
	if d.form.harmony {
		d.keep(harmonySyntax)
	}
	for piece, m := range d.form.marks {
		if id, ok := tok.ID(piece); ok {
			d.marks[id] = m
		}
		if id, ok := tok.ID(m.head); ok && m.head != "\n" {
			d.heads[id] = true
		}
	}
	return d
}

// Known reports whether the chat template of the model is known. If it is not, the text of a prompt is one message
// of the role [Unknown].
func (d *Decoder) Known() bool { return d.form != nil }

func (d *Decoder) keep(pieces []string) {
	for _, piece := range pieces {
		if id, ok := d.tok.ID(piece); ok && d.tok.IsSpecial(id) {
			d.kept[id] = piece
		}
	}
}

func (d *Decoder) hasAll(pieces []string) bool {
	for _, piece := range pieces {
		if _, ok := d.tok.ID(piece); !ok {
			return false
		}
	}
	return true
}

// text returns the text of the ids, with the special tokens that stay in a message.
func (d *Decoder) text(ids []int32) string {
	var b strings.Builder
	from := 0
	for i, id := range ids {
		if piece, ok := d.kept[id]; ok {
			b.WriteString(Text(d.tok, ids[from:i]))
			b.WriteString(piece)
			from = i + 1
		}
	}
	if from == 0 {
		return Text(d.tok, ids)
	}
	b.WriteString(Text(d.tok, ids[from:]))
	return b.String()
}
