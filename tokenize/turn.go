package tokenize

// A Role is the origin of a span in a row. The numbers are the values in the `turn_roles` column.
type Role int8

// The roles of a span.
const (
	RolePrompt    Role = 0 // the first prompt of a row: system, tools, history
	RoleAssistant Role = 1 // sampled by the policy
	RoleTool      Role = 2 // a tool's result, with the text that the template adds around it
	RoleUser      Role = 3 // context between two calls without a tool turn
)

// A Turn is one element of `turns` as Letta sends it, before any check: an assistant turn with its
// sampled tokens, or a tool turn with its text.
//
// All slices and strings point into the memory of the Reply that owns the turn. They are valid
// until the next Reset of the Reply.
type Turn struct {
	Role Role

	// PromptIDs is the prompt of the call, or nil if the server did not send it. Source:
	// turns[].input_ids.
	PromptIDs []int32

	// OutputIDs are the sampled tokens, including the stop token, or nil. Source:
	// turns[].output_ids.
	OutputIDs []int32

	// Logprobs holds the first number of each triple, or NaN for null. It is nil if the list is
	// null or absent. Its length can differ from the length of OutputIDs; CheckTurn compares the
	// two. Source: turns[].output_token_logprobs[][0].
	Logprobs []float32

	// IDMismatch is the first position at which the id of a triple differs from OutputIDs, or -1.
	// Triples past the end of OutputIDs are not compared.
	IDMismatch int

	// Content is the text of the turn, or empty if null. The server removes the tool calls from the
	// text of an assistant turn, so never tokenize Content in place of OutputIDs.
	Content string

	// ToolName can be any text that the model wrote. Never use it as a file name, label or key.
	ToolName string
}

// AssistantTurns returns the number of assistant turns.
func AssistantTurns(turns []Turn) (n int) {
	for i := range turns {
		if turns[i].Role == RoleAssistant {
			n++
		}
	}
	return n
}
