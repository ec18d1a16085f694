package messages

import "github.com/rollout-rl/rollout/collector/tap/translate"

// The tables decide what happens to every member and every type. The parser contains only the
// translations.

func table(title string, rules ...translate.Rule) *translate.Table {
	return &translate.Table{Title: title, Rules: rules}
}

func pass(member, note string) translate.Rule {
	return translate.Rule{Member: member, Action: translate.Passed, Note: note}
}

func change(member, note string) translate.Rule {
	return translate.Rule{Member: member, Action: translate.Translated, Note: note}
}

func drop(member, note string) translate.Rule {
	return translate.Rule{Member: member, Action: translate.Dropped, Note: note}
}

func refuse(member, note string) translate.Rule {
	return translate.Rule{Member: member, Action: translate.Refused, Note: note}
}

// Notes that several rules share.
const (
	noteCache    = "the engine's cache needs no markers"
	noteServer   = "an engine does not run the vendor's tools"
	noteFiles    = "chat completions cannot express files"
	noteVendor   = "only the vendor's models support this tool"
	noteAccount  = "it concerns an account of the vendor"
	noteSelects  = "selects the table"
	noteLoading  = "chat completions cannot change tools during a conversation"
	noteToolsets = "an engine does not have the vendor's toolsets"
)

var requestTable = table("request",
	pass("model", ""),
	change("messages", "one message can become several messages, see the content blocks"),
	change("system", "the first message, with the role `system`"),
	pass("max_tokens", "required, except to count tokens"),
	pass("temperature", ""),
	pass("top_p", ""),
	pass("top_k", ""),
	change("stop_sequences", "`stop`"),
	change("stream", "the engine always sends a whole answer; the tap writes it as events"),
	change("tools", "`tools` with the type `function`"),
	change("tool_choice", "`tool_choice`"),
	change("thinking", "`chat_template_kwargs`"),
	change("output_config", "`reasoning_effort` and `response_format`"),
	change("context_management", "only edits that change nothing are accepted"),
	drop("metadata", "it describes the user"),
	drop("cache_control", noteCache),
	drop("service_tier", "the engine has no tiers"),
	drop("speed", "the engine has no speed modes"),
	drop("inference_geo", "the engine has no regions"),
	drop("diagnostics", "it asks for information about the vendor's cache"),
	drop("billing_policy", noteAccount),
	drop("user_profile_id", noteAccount),
	drop("workspace_id", noteAccount),
	drop("fallback_credit_token", noteAccount),
	drop("fallbacks", "engines do not decline requests"),
	refuse("output_format", "use output_config.format"),
	refuse("container", noteServer),
	refuse("mcp_servers", noteServer),
	refuse("compaction", "the tap does not summarize conversations"),
	refuse("thread", "the tap does not keep conversations"),
)

var messageTable = table("message",
	pass("role", ""),
	change("content", "the texts of a message become one string, joined with a line break; with an image, they become a list of parts"),
	refuse("clear_at", "it removes a message from later prompts"),
	refuse("output_config", "it changes the effort during a conversation"),
)

var roleTable = table("role of a message",
	pass("user", "text after a tool result becomes a separate message; messages are never merged"),
	pass("assistant", "one message with `reasoning_content`, `content` and `tool_calls`; the last message must have another role"),
	pass("system", "the message keeps its place"),
)

var systemBlocks = table("type of a content block in a system message",
	change("text", "a block in `system` that begins with `x-anthropic-billing-header:` is dropped"),
	refuse("tool_addition", noteLoading),
	refuse("tool_removal", noteLoading),
)

var userBlocks = table("type of a content block in a user message",
	change("text", "a part of `content`"),
	change("image", "a part with the type `image_url`"),
	change("tool_result", "a message with the role `tool`"),
	refuse("document", noteFiles),
	refuse("container_upload", noteFiles),
	refuse("search_result", "chat completions cannot express sources"),
	refuse("compaction", "the tap does not summarize conversations"),
)

var resultBlocks = table("type of a content block in a tool result",
	change("text", "a part of `content`"),
	refuse("image", "engines accept images only in user messages"),
	refuse("document", noteFiles),
	refuse("search_result", "chat completions cannot express sources"),
	refuse("tool_reference", noteLoading),
	refuse("browser_state", noteVendor),
)

var assistantBlocks = table("type of a content block in an assistant message",
	change("text", "a part of `content`; chat completions do not express whether it comes before or after other blocks"),
	change("thinking", "a part of `reasoning_content`"),
	change("tool_use", "an element of `tool_calls`"),
	refuse("redacted_thinking", "only the vendor can read it"),
	refuse("server_tool_use", noteServer),
	refuse("web_search_tool_result", noteServer),
	refuse("web_fetch_tool_result", noteServer),
	refuse("code_execution_tool_result", noteServer),
	refuse("bash_code_execution_tool_result", noteServer),
	refuse("text_editor_code_execution_tool_result", noteServer),
	refuse("tool_search_tool_result", noteServer),
	refuse("advisor_tool_result", noteServer),
	refuse("mcp_tool_use", noteServer),
	refuse("mcp_tool_result", noteServer),
	refuse("mcp_tool_listing", noteServer),
	refuse("compaction", "the tap does not summarize conversations"),
	refuse("fallback", "engines do not decline requests"),
)

var textTable = table("text block",
	change("type", noteSelects),
	pass("text", "the bytes stay the same"),
	drop("citations", "the text does not contain them"),
	drop("cache_control", noteCache),
)

var imageTable = table("image block",
	change("type", noteSelects),
	change("source", "`url`"),
	refuse("transformations", "the engine has its own transformations"),
	drop("cache_control", noteCache),
)

var sourceTable = table("source of an image",
	change("type", noteSelects),
	change("media_type", "a part of a data URL"),
	change("data", "a part of a data URL"),
	pass("url", ""),
	refuse("file_id", noteFiles),
)

var sourceTypes = table("type of the source of an image",
	change("base64", "a data URL"),
	change("url", "the same URL"),
	refuse("file", noteFiles),
)

var thinkingTable = table("thinking block",
	change("type", noteSelects),
	change("thinking", "`reasoning_content`; several thinking blocks are joined with a line break"),
	drop("signature", "the signature in an answer is the id of the answer"),
)

var toolUseTable = table("tool_use block",
	change("type", noteSelects),
	pass("id", ""),
	pass("name", ""),
	change("input", "`arguments`: the text of the object, or the string in an object with only the member `_arguments`"),
	drop("cache_control", noteCache),
	change("caller", "only the model itself is accepted as the caller"),
	refuse("toolset_name", noteToolsets),
)

var callerTypes = table("type of the caller of a tool",
	drop("direct", "the model itself"),
	refuse("code_execution_20250825", noteServer),
	refuse("code_execution_20260120", noteServer),
	refuse("code_execution_20260521", noteServer),
)

var toolResultTable = table("tool_result block",
	change("type", noteSelects),
	change("tool_use_id", "`tool_call_id`"),
	change("content", "a string; several texts are joined with a line break"),
	drop("is_error", "chat completions cannot express it; the model gets only the content of the result"),
	drop("cache_control", noteCache),
	refuse("toolset_name", noteToolsets),
)
