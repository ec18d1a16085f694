// Package prompttest generates lives: long synthetic recordings of agents. Their token ids match a
// real tokenizer and chat template exactly. Benchmarks and profiles of the whole path use lives
// because the recorded exchanges are short.
//
// A life has one send with eight calls and about 8,500 sampled tokens. Each of the first seven
// calls contains reasoning and a tool call with arguments of a few KB. The last call is the answer.
// The reply is half a megabyte long. Messages make up a fifth of the reply, because a real reply
// repeats the arguments and the result of every tool call. The text is prose and source code, with
// line breaks, quotes, control characters and non-ASCII characters. It is written and escaped as on
// the server.
//
// The stored messages, steps, traces and prompts of a life agree. The prompts are rendered from the
// messages in the traces and encoded, and the steps have the token counts of these prompts. The
// same name and seed give the same bytes.
package prompttest
