// Package messages translates Anthropic's Messages API into chat completions and back.
//
// # Requests
//
// The tables that [Dialect.Tables] returns state what happens to every member. These rules apply
// everywhere:
//
//   - A member with the value null counts as absent.
//   - Unknown and duplicate members are refused.
//   - Texts keep their bytes, because they are copied as JSON strings.
//   - Several texts of one message are joined with a line break, as vLLM does. So a message gives the
//     same prompt whether a client writes its content as a string or as a list with one block.
//   - One user message can become several messages, because chat completions have a separate message
//     for each tool result. The order stays the same. Consecutive messages with the same role are not
//     merged.
//   - A request must not end with an assistant message. Chat completions cannot continue it.
//
// # Answers
//
// An assistant message becomes up to one thinking block, one text block, and one tool_use block for
// each tool call. Empty texts have no block, because the API does not accept them in a request.
//
// The signature of a thinking block is the id of the answer. Clients send it back, and the tap drops
// it.
//
// The input of a tool_use block is an object, but a model can write any text. If the arguments are not
// an unambiguous JSON object, the input is {"_arguments":"…"} with the text of the arguments. In a
// request, such an input becomes the text again. Clients report the unknown parameter to the model. An
// object that a client sends back loses only the white space around it.
//
// The ids of tool calls stay the same, because some chat templates print them.
//
// # Tool search
//
// A tool with defer_loading is not in the prompt, and tool_reference is refused, because chat
// completions cannot add a tool during a conversation. After this error, Claude Code sends all tools.
// With ENABLE_TOOL_SEARCH=false, it sends them from the beginning, so the prompt does not change.
//
// # Source
//
// The types of the packages anthropic 2.14.0 (Python) and @anthropic-ai/sdk 1.14.0 (JavaScript), and
// the requests of Claude Code 2.1.332.
package messages
