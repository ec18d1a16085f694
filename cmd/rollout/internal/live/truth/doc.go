// Package truth compares the rows of a run with what its engines saw and sampled. Only tests
// import it.
//
//	run ─── rows, failures ──┐
//	                         ├─► Compare ─► Result: counts, and what is wrong
//	engine ─ log of calls ───┘
//
// # What is compared
//
// Each assistant span of a row is one call. The ids before it must be the prompt of a call of
// the engine, all of them, and the span what that call sampled, with the same
// log-probabilities, bit by bit. Each call may be used as often as the engine made it: a
// sampled token is in one row at most. Versions, finish reasons and sampling parameters that a
// row names must be those of its calls. A row that is graded unverified claims no prompts, so
// only its outputs are compared.
//
// What failures hold must have been sampled as well. Every call is then in exactly one of
// these states:
//
//	in a row         its tokens are a span of one row
//	in a failure     its tokens are in a row of failures/, with a reason
//	named            it belongs to a sample that a failure names as a whole, or follows a cut
//	lost             it belongs to an attempt that was given up, or its answer never left the
//	                 engine; how many of them a case may have is the caller's to say
//	not of a sample  preflights and summaries: no script answered them
//
// A call of an agent that has rows or failures, and is in none of them, is wrong.
//
// [Same] compares two runs with each other instead: what both claim must be equal.
package truth
