// Package enginecheck compares the rows of a run with the prompts and outputs of its engines. Only tests
// import it.
//
//	run ─── rows, failures ──┐
//	                         ├─► Compare ─► Result: counts and errors
//	engine ─ calls ──────────┘
//
// # What is compared
//
// Each assistant span of a row is one call. The ids before the span must be the complete prompt of
// an engine call. The span must be the output of that call, with bitwise equal log-probabilities.
// Each engine call can be matched only once, so a sampled token is in at most one row. The
// versions, finish reasons and sampling parameters in a row must match the row's calls. A row
// graded unverified makes no claim about its prompts, so only its outputs are compared.
//
// The tokens in failures must also have been sampled by the engine. Every call is then in exactly
// one of these states:
//
//	in a row         its tokens are a span of one row
//	in a failure     its tokens are in a row of failures/, with a reason
//	named            it belongs to a sample that failed as a whole, or follows a cut
//	lost             it belongs to an abandoned attempt, or its answer never left the engine;
//	                 the caller decides how many are allowed
//	not of a sample  it is a preflight call or a summary, which no script answered
//
// If an agent has rows or failures, each of its calls that is in neither a row nor a failure is an
// error.
//
// [Same] compares two runs with each other. If both runs make a claim about the same call, the
// claims must be equal.
package enginecheck
