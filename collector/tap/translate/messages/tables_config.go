package messages

import "github.com/rollout-rl/rollout/collector/tap/translate"

var toolTable = table("tool",
	change("type", "only tools with their own schema are accepted"),
	pass("name", ""),
	pass("description", ""),
	change("input_schema", "`parameters`: the bytes stay the same"),
	pass("strict", ""),
	change("defer_loading", "if true, the tool is not in the prompt"),
	drop("cache_control", noteCache),
	drop("eager_input_streaming", "the input is always sent in one piece"),
	change("allowed_callers", "only the model itself is accepted as a caller"),
	refuse("input_examples", "chat completions cannot express examples"),
)

var toolTypes = table("type of a tool",
	change("custom", "a tool with the type `function`; the default"),
)

var choiceTable = table("tool_choice",
	change("type", noteSelects),
	change("name", "a part of `tool_choice`"),
	change("disable_parallel_tool_use", "if true, `parallel_tool_calls` is false"),
)

var choiceTypes = table("type of tool_choice",
	change("auto", "`auto`"),
	change("any", "`required`"),
	change("tool", "the function with this name"),
	change("none", "`none`"),
)

var thinkingConfig = table("thinking",
	change("type", "see the next table"),
	drop("budget_tokens", "a target, not a limit; max_tokens is the limit"),
	drop("display", "the client always gets the reasoning, so that it can send it back"),
	drop("block_binding", "signatures are not checked"),
)

var thinkingTypes = table("type of thinking",
	change("enabled", "`enable_thinking` and `thinking` are true in `chat_template_kwargs`; a template uses one of these names, or none"),
	change("disabled", "both are false"),
	drop("adaptive", "the default of the chat template decides"),
	refuse("between_tools", "chat templates cannot restrict when a model thinks"),
)

var outputTable = table("output_config",
	change("effort", "`reasoning_effort`"),
	change("format", "`response_format`"),
	refuse("task_budget", "chat completions cannot express a budget"),
)

var formatTable = table("format in output_config",
	pass("type", ""),
	change("schema", "`json_schema.schema`, with the name `output`"),
)

var formatTypes = table("type of a format",
	pass("json_schema", ""),
)

var contextTable = table("context_management",
	change("edits", "see the next table"),
)

var editTypes = table("type of an edit",
	change("clear_thinking_20251015", "accepted if it keeps all thinking blocks"),
	refuse("clear_tool_uses_20250919", "the tap does not remove parts of a conversation"),
	refuse("compact_20260112", "the tap does not summarize conversations"),
)

var editTable = table("clear_thinking_20251015",
	change("type", noteSelects),
	change("keep", "must be `all`; the default removes thinking blocks"),
)

var keepTypes = table("keep",
	drop("all", "the edit changes nothing"),
	refuse("thinking_turns", "the tap does not remove thinking blocks"),
)

// tables contains all tables in the order of the documentation.
var tables = []*translate.Table{
	requestTable, messageTable, roleTable, systemBlocks, userBlocks, resultBlocks, assistantBlocks,
	textTable, imageTable, sourceTable, sourceTypes, thinkingTable, toolUseTable, callerTypes, toolResultTable,
	toolTable, toolTypes, choiceTable, choiceTypes, thinkingConfig, thinkingTypes,
	outputTable, formatTable, formatTypes, contextTable, editTypes, editTable, keepTypes,
}
