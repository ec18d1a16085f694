package proxy

import "encoding/json"

// A Renderer renders the prompts of sessions, and parses the sampled outputs. It belongs to one model.
// Its methods can run concurrently.
type Renderer interface {
	// Render returns the token ids of the prompt, which ends where the model's answer begins. An error means
	// that the conversation cannot be rendered. The client receives the text of the error with status 400.
	// Render must not keep c, because its memory is valid only until Render returns.
	Render(c *Conversation) ([]int32, error)
	// Parse returns the assistant message of an output as JSON, in the form of a chat completion: content,
	// reasoning_content and tool_calls, each call with an id. Text that it cannot parse must be in the
	// content. calls reports whether the message has tool calls. Parse must not modify o or keep it.
	Parse(o *Output) (message []byte, calls bool)
}

// A Conversation contains the members of a chat completion that determine its prompt. All values are
// JSON.
type Conversation struct {
	Messages []json.RawMessage
	Tools    json.RawMessage // nil if there are none
	// Variables is the object chat_template_kwargs, and Effort the value reasoning_effort. Both are
	// variables of the template. They are nil if the request lacks them.
	Variables, Effort json.RawMessage
	// Separator separates the texts if the content of a message is a list of parts. vLLM uses a line break
	// (vllm/entrypoints/chat_utils.py), and SGLang a space
	// (python/sglang/srt/parser/jinja_template_utils.py).
	Separator string
}

// An Output contains the tokens that an engine sampled for a rendered prompt.
type Output struct {
	Prompt, IDs []int32         // token ids; IDs includes the token that ended the output
	Stop        string          // the stop string that ended the output; empty if none did
	Tools       json.RawMessage // the tools that the output can call, as JSON; nil if it can call none
	// Single means that the request has parallel_tool_calls false. The message must have at most one call, the
	// first. vLLM does the same in its chat completions (maybe_filter_parallel_tool_calls).
	Single bool
}
