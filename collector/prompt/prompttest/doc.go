// Package prompttest generates long recorded lives of agents that match a real tokenizer and chat
// template token for token. Benchmarks and profiles of the whole path use them, because recorded
// exchanges are short.
//
// A life has one send of eight calls with some 8,500 sampled tokens: seven tool calls, each after
// reasoning and with arguments of some KB, and an answer. Its reply is half a megabyte long. A
// fifth of it is messages, because a real reply repeats the arguments and the return of every call.
// The text is prose and source code, with line breaks, quotes, control characters and non-ASCII
// characters, written and escaped like the server's.
//
// The stored messages, steps, traces and prompts of a life agree: its prompts are rendered from its
// traces and encoded, and the steps have their token counts. The same seed gives the same bytes.
package prompttest
