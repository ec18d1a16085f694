package responses

const (
	noHostedItem = "it belongs to a hosted tool, which an engine does not have"
	ofAnswer     = "it decides which items form one assistant message"
	noPrograms   = "an engine cannot run programs"
)

var itemTable = words("input item: type",
	rule("message", translated, "a message"),
	rule("function_call", translated, "a tool call of an assistant message"),
	rule("function_call_output", translated, "a message with the role tool"),
	rule("reasoning", translated, "`reasoning_content` of an assistant message"),
	rule("custom_tool_call", translated, "a tool call of an assistant message, with the argument input"),
	rule("custom_tool_call_output", translated, "a message with the role tool"),
	rule("item_reference", refused, serverState),
	rule("compaction", refused, "only the vendor can decrypt it"),
	rule("compaction_summary", refused, "only the vendor can decrypt it"),
	rule("compaction_trigger", refused, "the tap does not change the conversation"),
	rule("configuration_update", refused, "chat completions cannot change settings during a conversation"),
	rule("additional_tools", refused, "chat completions cannot add tools during a conversation: send them in tools"),
	rule("tool_search_call", refused, noHostedItem),
	rule("tool_search_output", refused, noHostedItem),
	rule("web_search_call", refused, noHostedItem),
	rule("file_search_call", refused, noHostedItem),
	rule("computer_call", refused, noHostedItem),
	rule("computer_call_output", refused, noHostedItem),
	rule("image_generation_call", refused, noHostedItem),
	rule("code_interpreter_call", refused, noHostedItem),
	rule("local_shell_call", refused, noHostedItem),
	rule("local_shell_call_output", refused, noHostedItem),
	rule("shell_call", refused, noHostedItem),
	rule("shell_call_output", refused, noHostedItem),
	rule("apply_patch_call", refused, noHostedItem),
	rule("apply_patch_call_output", refused, noHostedItem),
	rule("mcp_list_tools", refused, noHostedItem),
	rule("mcp_approval_request", refused, noHostedItem),
	rule("mcp_approval_response", refused, noHostedItem),
	rule("mcp_call", refused, noHostedItem),
	rule("program", refused, noPrograms),
	rule("program_output", refused, noPrograms),
)

var messageTable = rules("input item of type message",
	rule("type", translated, "message; the default if there is a role"),
	rule("role", translated, seeTable),
	rule("content", translated, "`content`: a string, or a list of content parts. A single text part becomes a string"),
	rule("id", translated, ofAnswer),
	rule("status", dropped, bookkeeping),
	rule("phase", dropped, bookkeeping),
)

var roleTable = words("input item of type message: role",
	rule("user", passed, sameMeaning),
	rule("assistant", translated, "one assistant message together with the other items of the same answer"),
	rule("system", translated, "system. The system messages at the beginning become one message, because many chat templates accept only one"),
	rule("developer", translated, "as system, because most chat templates do not support developer"),
)

var callTable = rules("input item of type function_call",
	rule("type", translated, "`type`"),
	rule("call_id", translated, "`id` of the tool call"),
	rule("name", translated, "`name` of the function"),
	rule("namespace", translated, "the name becomes `<namespace>__<name>`"),
	rule("arguments", translated, "`arguments`, in the same bytes"),
	rule("id", translated, ofAnswer),
	rule("status", dropped, bookkeeping),
	rule("async", dropped, bookkeeping),
	rule("caller", dropped, seeTable),
).with("caller", callerTable)

var customCallTable = rules("input item of type custom_tool_call",
	rule("type", translated, "`type`"),
	rule("call_id", translated, "`id` of the tool call"),
	rule("name", translated, "`name` of the function"),
	rule("namespace", translated, "the name becomes `<namespace>__<name>`"),
	rule("input", translated, "`arguments`, as the JSON object `{\"input\": …}`"),
	rule("id", translated, ofAnswer),
	rule("status", dropped, bookkeeping),
	rule("async", dropped, bookkeeping),
	rule("caller", dropped, seeTable),
).with("caller", callerTable)

var outputTable = rules("input item of type function_call_output or custom_tool_call_output",
	rule("type", translated, "role tool"),
	rule("call_id", translated, "`tool_call_id`"),
	rule("output", translated, "`content`: a string, or a list of content parts. A single text part becomes a string"),
	rule("id", dropped, bookkeeping),
	rule("status", dropped, bookkeeping),
	rule("name", dropped, "the call contains it"),
	rule("namespace", dropped, "the call contains it"),
	rule("caller", dropped, seeTable),
).with("caller", callerTable)

var reasoningItemTable = rules("input item of type reasoning",
	rule("type", translated, "`reasoning_content`"),
	rule("content", translated, "`reasoning_content`, with all parts in one text"),
	rule("summary", translated, "`reasoning_content`, if there is no content"),
	rule("encrypted_content", translated, "dropped; refused if the item has no text, because only the vendor can decrypt it"),
	rule("id", translated, ofAnswer),
	rule("status", dropped, bookkeeping),
)

var callerTable = words("caller: type",
	rule("direct", dropped, "the default"),
	rule("program", refused, noPrograms),
)

var partTable = words("content part: type",
	rule("input_text", translated, "a part of type text"),
	rule("output_text", translated, "a part of type text"),
	rule("text", translated, "a part of type text"),
	rule("reasoning_text", translated, "a part of type text"),
	rule("summary_text", translated, "a part of type text"),
	rule("refusal", translated, "`refusal` of an assistant message"),
	rule("input_image", translated, "a part of type image_url; refused in an assistant message"),
	rule("input_file", refused, "an engine cannot read files: send the text"),
	rule("input_audio", refused, "an engine cannot process audio: send the text"),
)

var textPartTable = rules("content part with a text",
	rule("type", translated, "text"),
	rule("text", translated, "`text`"),
	rule("refusal", translated, "`refusal` of the message"),
	rule("annotations", dropped, bookkeeping),
	rule("logprobs", dropped, bookkeeping),
	rule("prompt_cache_breakpoint", dropped, bookkeeping),
)

var imagePartTable = rules("content part of type input_image",
	rule("type", translated, "image_url"),
	rule("image_url", translated, "`image_url.url`"),
	rule("detail", translated, "`image_url.detail`"),
	rule("file_id", refused, "the file is stored by the vendor: send a data URL"),
	rule("prompt_cache_breakpoint", dropped, bookkeeping),
)
