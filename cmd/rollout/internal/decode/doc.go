// Package decode turns the tokens of a row into text and messages.
//
//	text.go          the text of tokens
//	markers.go       the marks that chat templates put around messages
//	conversation.go  the messages of a row
//	content.go       reasoning, tool calls and tool results in the text of a message
//	stored.go        the messages that a run stores with output.messages
//	json.go          messages as JSON
//
// The messages of a row come from its tokens alone. Sampled tokens never begin a message: a role
// that the model wrote itself is a part of its answer.
package decode
