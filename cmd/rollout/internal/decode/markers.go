package decode

import (
	"errors"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
)

// A mark is a token with which a chat template begins or ends a message.
type mark struct {
	// role is the role of the message that begins. It is empty if the name of the role follows.
	role string
	// head ends the name of the role: a token, or a line break. If role and head are empty, the mark
	// ends a message.
	head string
}

// forms lists the marks of chat templates. The first form whose marks are all tokens of the tokenizer
// is the form of its model.
var forms = []map[string]mark{
	{"<|start_header_id|>": {head: "<|end_header_id|>"}, "<|eot_id|>": {}},                                                        // Llama 3
	{"<|header_start|>": {head: "<|header_end|>"}, "<|eot|>": {}},                                                                 // Llama 4
	{"<|im_start|>": {head: "\n"}, "<|im_end|>": {}},                                                                              // ChatML, such as Qwen
	{"<|system|>": {role: System}, "<|user|>": {role: User}, "<|assistant|>": {role: Assistant}, "<|observation|>": {role: Tool}}, // GLM 4
	{"<start_of_turn>": {head: "\n"}, "<end_of_turn>": {}},                                                                        // Gemma 3
}

// names maps the names of roles in templates to roles. Other names are the names of tools.
var names = map[string]string{
	"system": System, "developer": System, "user": User, "assistant": Assistant, "model": Assistant,
	"tool": Tool, "ipython": Tool, "observation": Tool,
}

// ErrMarks means that the chat template of the tokenizer marks messages in an unknown way.
var ErrMarks = errors.New("its chat template is not known (known are ChatML, Llama 3 and 4, GLM 4 and Gemma 3)")

// A Decoder decodes the tokens of rows. It is safe for concurrent use.
type Decoder struct {
	tok   *bpe.Tokenizer
	marks map[int32]mark
	heads map[int32]bool // tokens that end the name of a role
}

// New returns a Decoder, or ErrMarks.
func New(tok *bpe.Tokenizer) (*Decoder, error) {
	for _, form := range forms {
		d := &Decoder{tok, map[int32]mark{}, map[int32]bool{}}
		for piece, m := range form {
			if id, ok := tok.ID(piece); ok {
				d.marks[id] = m
			}
			if id, ok := tok.ID(m.head); ok && m.head != "\n" {
				d.heads[id] = true
			}
		}
		if len(d.marks) == len(form) {
			return d, nil
		}
	}
	return nil, ErrMarks
}
