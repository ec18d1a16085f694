// Package prompttest generates lives: long synthetic recordings of agents. Their token ids match a
// real tokenizer and chat template exactly. Benchmarks and profiles of the whole pipeline use
// lives, because the recorded exchanges are too short.
//
// A life has one send with eight calls and about 8,500 sampled tokens. Each of the first seven
// calls contains reasoning and a tool call with arguments of a few KB. The last call is the answer.
// The size of the reply is half a megabyte. A fifth of this size is due to messages, which repeat
// the arguments and the result of every tool call, as in a real reply. The text is prose and source
// code, with line breaks, quotes, control characters and non-ASCII characters. Strings are escaped
// in the same way as on the server.
//
// The stored messages, steps, traces and prompts of a life agree. Each prompt is rendered from the
// messages in its trace and then encoded. The steps have the token counts of these prompts. The
// same name and seed always produce the same bytes.
package prompttest
