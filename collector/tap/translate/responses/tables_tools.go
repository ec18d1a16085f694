package responses

var toolTable = words("tool: type",
	rule("function", translated, "a function"),
	rule("custom", translated, "a function with one parameter, the string input"),
	rule("namespace", translated, "one function per tool, with the name `<namespace>__<name>`"),
	rule("web_search", dropped, "an engine cannot search, so the model does not get this tool"),
	rule("web_search_2025_08_26", dropped, "an engine cannot search, so the model does not get this tool"),
	rule("web_search_preview", dropped, "an engine cannot search, so the model does not get this tool"),
	rule("web_search_preview_2025_03_11", dropped, "an engine cannot search, so the model does not get this tool"),
	rule("file_search", refused, noHosted),
	rule("computer", refused, noHosted),
	rule("computer_use_preview", refused, noHosted),
	rule("code_interpreter", refused, noHosted),
	rule("programmatic_tool_calling", refused, noHosted),
	rule("image_generation", refused, noHosted),
	rule("mcp", refused, noHosted),
	rule("local_shell", refused, noHosted),
	rule("shell", refused, noHosted),
	rule("tool_search", refused, noHosted),
	rule("apply_patch", refused, noHosted),
)

var functionTable = rules("tool of type function",
	rule("type", translated, "`type`"),
	rule("name", translated, "`function.name`"),
	rule("description", translated, "`function.description`"),
	rule("parameters", translated, "`function.parameters`, in the same bytes"),
	rule("strict", translated, "`function.strict`"),
	rule("output_schema", dropped, "it describes the result for programs"),
	rule("allowed_callers", dropped, seeTable),
	rule("async", dropped, bookkeeping),
	rule("defer_loading", dropped, seeTable),
).with("defer_loading", deferTable).with("allowed_callers", callersTable)

var deferTable = words("defer_loading",
	rule("false", dropped, "the default"),
	rule("true", refused, "an engine cannot search for tools"),
)

var callersTable = words("allowed_callers",
	rule("direct", dropped, "the default"),
	rule("programmatic", refused, noPrograms),
)

var customTable = rules("tool of type custom",
	rule("type", translated, "function"),
	rule("name", translated, "`function.name`"),
	rule("description", translated, "`function.description`"),
	rule("format", translated, seeTable),
	rule("allowed_callers", dropped, seeTable),
	rule("async", dropped, bookkeeping),
	rule("defer_loading", dropped, seeTable),
).with("defer_loading", deferTable).with("allowed_callers", callersTable)

var customFormatTable = words("tool of type custom: format: type",
	rule("text", dropped, "the default"),
	rule("grammar", translated, "the definition becomes the description of the parameter input. It does not restrict the sampling"),
)

var namespaceTable = rules("tool of type namespace",
	rule("type", translated, "function"),
	rule("name", translated, "the beginning of the function names"),
	rule("description", translated, "the beginning of each description"),
	rule("tools", translated, "functions"),
)
