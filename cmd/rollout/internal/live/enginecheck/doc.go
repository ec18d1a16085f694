// Package enginecheck compares the rows of a run with the prompts and outputs of its engines. Only tests
// import it.
//
//	run ─── rows, failures ──┐
//	                         ├─► Compare ─► Result: counts and errors
//	engine ─ calls ──────────┘
//
// # What is compared
//
// Each assistant span of a row is one call. The ids before it must be the complete prompt of an
// engine call. The span must be the output of that call, with the same log-probabilities, bit by
// bit. Each call can be used as often as the engine made it, so a sampled token is in at most one
// row. Versions, finish reasons and sampling parameters in a row must match its calls. A row graded
// unverified claims no prompts, so only its outputs are compared.
//
// The tokens in failures must have been sampled as well. Every call then has exactly one of these
// states:
//
//	in a row         its tokens are a span of one row
//	in a failure     its tokens are in a row of failures/, with a reason
//	named            it belongs to a sample with a failure of the whole sample, or follows a cut
//	lost             it belongs to an abandoned attempt, or its answer never left the engine;
//	                 the caller decides how many are allowed
//	not of a sample  a preflight or a summary, which no script answered
//
// A call is an error if its agent has rows or failures and the call is in none of them.
//
// [Same] compares two runs with each other: claims that both make must be equal.
package enginecheck
