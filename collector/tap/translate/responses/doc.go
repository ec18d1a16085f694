// Package responses translates OpenAI's Responses API into chat completions and back.
//
//	call, err := responses.Dialect{}.Request(body)
//	…                                           // send call.Chat to an engine
//	body = call.Reply.Whole(nil, answer)        // or Events for a stream
//
// [Dialect.Tables] contains a rule for each member of a request. A text keeps its bytes: a string of the
// request is copied into the chat completion as it is, and a string of the engine into the answer.
//
// # Assistant messages
//
// An answer of this API is a list of items: reasoning, then a message, then tool calls. Clients send the
// items back in the input of the next request, and they become the engine's message again:
//
//	item                message
//	reasoning           reasoning_content
//	message             content; null if there is no message item
//	function_call       an element of tool_calls
//	custom_tool_call    an element of tool_calls
//
// An empty answer has one message item with an empty text, so that the next request contains the answer.
//
// The ids of the items contain the answer's id, such as msg_<answer>_1. Items of different answers are
// different messages. If the client sends no ids, a message or reasoning after a tool call begins a new
// message, and so do a second message and reasoning after a message.
//
// # System messages
//
// The instructions and the system and developer messages at the beginning of the input become one system
// message, with an empty line between the texts: Codex sends two, and many chat templates accept only
// one. Later ones stay in their place.
//
// # Tools
//
// Chat completions have only functions. A custom tool becomes a function with the parameter input. A
// tool of a namespace becomes a function with the name <namespace>__<name>. The tool calls of the
// answer get their own form again. If the model calls a custom tool with other arguments than an input,
// the client gets the text of the arguments as the input. An input becomes arguments as Python prints
// them, {"input": "…"}. If the model printed them with other white space, the message has equal
// arguments in other bytes.
//
// # Reading order
//
//	rules     tables.go, tables_items.go, tables_tools.go
//	requests  request.go, settings.go, items.go, turn.go, tools.go
//	answers   answer.go, events.go
package responses
