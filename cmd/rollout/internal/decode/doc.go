// Package decode turns the tokens of a row into text and messages.
//
//	text.go          the text of tokens
//	form.go          the forms: the marks that chat templates put around messages
//	conversation.go  the messages of a row
//	content.go       reasoning, tool calls and tool results in the text of a message
//	calls.go         the ways in which models write tool calls
//	harmony.go       the answers of gpt-oss
//	output.go        the message of one output, for the client of a model
//	merge.go         the conversation of a sample with several rows
//	stored.go        the messages that a run stores with output.messages
//	json.go          messages as JSON
//
// The messages of a row come from its tokens alone. Sampled tokens never begin a message: a role
// that the model wrote itself is a part of its answer. If a role or a call is not known, its text stays
// as it is, in a message with the role unknown or in the content.
//
// The conversation that a scorer of rollout rescore, rollout view and rollout export get comes from here.
// Row.messages of the Python package returns the same messages; see testdata/conversations.json.
package decode
