// Package responses translates OpenAI's Responses API into chat completions and back.
//
//	call, err := responses.Dialect{}.Request(body)
//	…                                           // send call.Chat to an engine
//	body = call.Reply.Whole(nil, answer)        // or Events for a stream
//
// [Dialect.Tables] contains a rule for each member of a request. A text keeps its bytes: a string of the
// request is copied unchanged into the chat completion, and a string of the engine into the answer.
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
// The ids of the items contain the answer's id, such as msg_<answer>_1. Items of different answers
// become different messages. If the client sends no ids, these items begin a new message: a message
// or reasoning after a tool call, a second message, and reasoning after a message. So without ids, a
// message that is directly followed by the tool calls of another answer becomes one message with them.
//
// # System messages
//
// The instructions and the system and developer messages at the beginning of the input become one system
// message, with an empty line between the texts. The reason is that Codex sends two, and many chat
// templates accept only one. Later system messages stay in their place.
//
// # Tools
//
// Chat completions have only functions. A custom tool becomes a function with the parameter input. A
// tool of a namespace becomes a function with the name <namespace>__<name>. In the answer, the calls of
// these tools get their original form again. If the model calls a custom tool with arguments of another
// form, the client gets the text of the arguments as the input. In a request, an input becomes
// arguments in the form that Python prints: {"input": "…"}. If the model wrote other white space, the
// arguments in the message have the same value, but other bytes.
//
// # Reading order
//
//	rules     tables.go, tables_items.go, tables_tools.go
//	requests  request.go, settings.go, items.go, turn.go, tools.go
//	answers   answer.go, events.go
package responses
