package tokenize

// A Role says who a span of a row comes from. The numbers are those of the
// turn_roles column.
type Role int8

// The roles of a span.
const (
	RolePrompt    Role = 0 // the first prompt of a row: system, tools, history
	RoleAssistant Role = 1 // sampled by the policy
	RoleTool      Role = 2 // what a tool answered, with the template's glue
	RoleUser      Role = 3 // what came between two calls without a tool
)

// A Turn is one element of turns as Letta sends it, before any rule was applied
// to it: an assistant turn with what was sampled, or a tool turn with its text.
//
// All slices and strings are views into the Reply that holds the turn and are
// valid until that Reply's next Reset.
type Turn struct {
	// Role is RoleAssistant or RoleTool.
	Role Role

	// PromptIDs is the prompt of the call, where the server sends input_ids;
	// else nil. Source: turns[].input_ids.
	PromptIDs []int32

	// OutputIDs is what was sampled, through the stop token. Nil where the server
	// sent null. Source: turns[].output_ids.
	OutputIDs []int32

	// Logprobs holds the first number of each triple, NaN where it was null.
	// Nil where the list itself was null or absent. Its length is what the
	// server sent: CheckTurn compares it with OutputIDs.
	// Source: turns[].output_token_logprobs[][0].
	Logprobs []float32

	// IDMismatch is the first position at which the id of a triple differs from
	// OutputIDs, or -1. Triples beyond OutputIDs are not compared.
	IDMismatch int

	// Content is the text, and empty where it was null. Of an assistant turn it
	// is what is left after the server cut the tool calls out: never tokenize it
	// in place of OutputIDs.
	Content string

	// ToolName may be any junk text that the model wrote: never a file name, a
	// label or a key.
	ToolName string
}
