package responses

import "github.com/rollout-rl/rollout/collector/tap/translate"

// A table contains the rules for one object, or for the values of one member. Values are listed without
// quotes.
type table struct {
	translate.Table
	// words is true if the table is about the values of a member, and not about the members of an object.
	words bool
	// nested contains the tables of the members whose values have rules.
	nested map[string]*table
}

// Short names for the four actions keep the tables readable.
const (
	passed     = translate.Passed
	translated = translate.Translated
	dropped    = translate.Dropped
	refused    = translate.Refused
)

// Tables returns the rules for all members of a request. The parser uses the same tables.
func (Dialect) Tables() []translate.Table {
	all := []*table{
		requestTable, truncationTable, backgroundTable, includeTable, cacheTable, reasoningTable, contextTable, modeTable,
		textTable, formatTable, jsonSchemaTable, choiceTable, namedTable,
		itemTable, messageTable, roleTable, callTable, customCallTable, outputTable, reasoningItemTable, callerTable,
		partTable, textPartTable, imagePartTable,
		toolTable, functionTable, deferTable, callersTable, customTable, customFormatTable, namespaceTable,
	}
	out := make([]translate.Table, len(all))
	for i, t := range all {
		out[i] = t.Table
	}
	return out
}

func rules(title string, list ...translate.Rule) *table {
	return &table{Table: translate.Table{Title: title, Rules: list}}
}

func words(title string, list ...translate.Rule) *table {
	t := rules(title, list...)
	t.words = true
	return t
}

func rule(member string, action translate.Action, note string) translate.Rule {
	return translate.Rule{Member: member, Action: action, Note: note}
}

// with adds the table of a member.
func (t *table) with(member string, values *table) *table {
	if t.nested == nil {
		t.nested = map[string]*table{}
	}
	t.nested[member] = values
	return t
}

const (
	sameMeaning = "unchanged"
	bookkeeping = "it does not change the prompt"
	serverState = "the tap does not store responses: send the whole conversation in input, with store false"
	noHosted    = "an engine does not have this tool"
	seeTable    = "see its table"
)

var requestTable = rules("request",
	rule("model", passed, sameMeaning),
	rule("input", translated, "`messages`: a string becomes a user message; for a list, see input item"),
	rule("instructions", translated, "the beginning of the first message, with the role system"),
	rule("tools", translated, "`tools`, see tool"),
	rule("tool_choice", translated, "`tool_choice`; auto and none are dropped if no tool remains"),
	rule("parallel_tool_calls", translated, "`parallel_tool_calls`; dropped if no tool remains"),
	rule("max_output_tokens", translated, "`max_completion_tokens`"),
	rule("reasoning", translated, seeTable),
	rule("text", translated, seeTable),
	rule("stream", translated, "the tap makes the events from the whole answer"),
	rule("temperature", passed, sameMeaning),
	rule("top_p", passed, sameMeaning),
	rule("top_k", passed, "an extension of the engines"),
	rule("min_p", passed, "an extension of the engines"),
	rule("seed", passed, "an extension of the engines"),
	rule("stop", passed, "an extension of the engines"),
	rule("stop_token_ids", passed, "an extension of the engines"),
	rule("presence_penalty", passed, "an extension of the engines"),
	rule("frequency_penalty", passed, "an extension of the engines"),
	rule("repetition_penalty", passed, "an extension of the engines"),
	rule("chat_template_kwargs", passed, "an extension of the engines"),
	rule("truncation", dropped, seeTable),
	rule("background", dropped, seeTable),
	rule("include", dropped, seeTable),
	rule("prompt_cache_options", dropped, seeTable),
	rule("store", dropped, "the tap does not store responses for clients"),
	rule("stream_options", dropped, bookkeeping),
	rule("prompt_cache_key", dropped, bookkeeping),
	rule("prompt_cache_retention", dropped, bookkeeping),
	rule("client_metadata", dropped, bookkeeping),
	rule("metadata", dropped, bookkeeping),
	rule("user", dropped, bookkeeping),
	rule("safety_identifier", dropped, bookkeeping),
	rule("service_tier", dropped, bookkeeping),
	rule("access_programs", dropped, bookkeeping),
	rule("background_options", dropped, bookkeeping),
	rule("max_tool_calls", dropped, "it limits hosted tools only"),
	rule("previous_response_id", refused, serverState),
	rule("conversation", refused, serverState),
	rule("prompt", refused, "the template is stored by the vendor: send its text in input"),
	rule("context_management", refused, "the tap does not change the conversation"),
	rule("top_logprobs", refused, "the answer contains no log-probabilities: the tap records them"),
	rule("moderation", refused, "an engine does not support it"),
	rule("image", refused, "an engine does not support it"),
).with("truncation", truncationTable).with("background", backgroundTable).with("include", includeTable).
	with("prompt_cache_options", cacheTable).with("reasoning", reasoningTable).with("text", textTable)

var truncationTable = words("truncation",
	rule("disabled", dropped, "the default"),
	rule("auto", refused, "the tap does not remove messages"),
)

var backgroundTable = words("background",
	rule("false", dropped, "the default"),
	rule("true", refused, serverState),
)

var includeTable = words("include",
	rule("reasoning.encrypted_content", dropped, "reasoning items contain the text"),
	rule("web_search_call.action.sources", dropped, noHosted),
	rule("web_search_call.results", dropped, noHosted),
	rule("file_search_call.results", dropped, noHosted),
	rule("computer_call_output.output.image_url", dropped, noHosted),
	rule("code_interpreter_call.outputs", dropped, noHosted),
	rule("message.input_image.image_url", dropped, "it concerns stored responses"),
	rule("message.output_text.logprobs", refused, "the answer contains no log-probabilities: the tap records them"),
)

var cacheTable = rules("prompt_cache_options",
	rule("mode", dropped, bookkeeping),
	rule("ttl", dropped, bookkeeping),
	rule("comparison_response_id", dropped, bookkeeping),
	rule("prewarm", refused, "the request would have no answer"),
)

var reasoningTable = rules("reasoning",
	rule("effort", translated, "`reasoning_effort`"),
	rule("summary", dropped, "reasoning items contain the text itself"),
	rule("generate_summary", dropped, "reasoning items contain the text itself"),
	rule("context", dropped, seeTable),
	rule("mode", dropped, seeTable),
).with("context", contextTable).with("mode", modeTable)

var contextTable = words("reasoning: context",
	rule("auto", dropped, "the chat template decides"),
	rule("all_turns", refused, "the chat template decides"),
	rule("current_turn", refused, "the chat template decides"),
)

var modeTable = words("reasoning: mode",
	rule("standard", dropped, "the default"),
	rule("pro", refused, "an engine does not support it"),
)

var textTable = rules("text",
	rule("format", translated, "`response_format`, see its table"),
	rule("verbosity", translated, "`verbosity`"),
)

var formatTable = words("text: format: type",
	rule("text", dropped, "the default"),
	rule("json_object", translated, "`response_format`"),
	rule("json_schema", translated, "`response_format`, see its table"),
)

var jsonSchemaTable = rules("text: format of type json_schema",
	rule("type", translated, "`type`"),
	rule("name", translated, "`json_schema.name`"),
	rule("schema", translated, "`json_schema.schema`"),
	rule("strict", translated, "`json_schema.strict`"),
	rule("description", translated, "`json_schema.description`"),
)

var choiceTable = words("tool_choice, or its type",
	rule("auto", passed, sameMeaning),
	rule("none", passed, sameMeaning),
	rule("required", passed, sameMeaning),
	rule("function", translated, "the function with this name"),
	rule("custom", translated, "the function of this custom tool"),
	rule("allowed_tools", refused, "send only these tools in tools"),
)

var namedTable = rules("tool_choice of type function or custom",
	rule("type", translated, "`type`"),
	rule("name", translated, "`function.name`"),
	rule("namespace", translated, "the name becomes `<namespace>__<name>`"),
)
