// Package prompttest makes up long recorded lives of agents that agree, token for
// token, with a real tokenizer and chat template. Benchmarks and profiles of the whole
// path use them, because recorded exchanges are short.
//
// A life has one send of eight calls with some 8,500 sampled tokens: seven calls of a
// tool, each with reasoning before it and arguments of some KB, and an answer. Its reply
// has half a megabyte, of which messages are a fifth, because a real reply repeats the
// arguments of every call and the return of every tool. Text is prose and source code,
// with line breaks, quotes, control characters and characters outside of ASCII, written
// and escaped as the server writes them.
//
// The stored messages, the steps, the traces and the prompts of a life agree: its prompts
// are rendered from what its traces hold and encoded, and the steps count their tokens.
// The same seed gives the same bytes.
package prompttest
