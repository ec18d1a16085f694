// Package policy determines which version of the policy sampled a call.
//
// A version is a number ≥ 0 that the trainer assigns to its weights. Newer weights have a larger
// version. There are four sources of versions, strongest first:
//
//	trace   the engine: weight_version in the trace of the call. It is used for calls whose traces
//	        prove prompts and, with [Config.Traces], for every call without a claimed version
//	url     a page that returned the same number before and after the send
//	set-version
//	        the trainer, which sets each new version ([Source.SetVersion])
//	flag    the user, who sets one version for the whole process
//
// Without a source the version is unknown: -1 here and null in the data. No version is ever
// guessed.
//
// # Claims
//
//	claim  5 ─────────────────────── 6 ───────────────
//	send     ├─ 5 ─┤   ├──── not known ────┤   ├─ 6 ─┤
//
// A send has the claimed version if the claim did not change between the start and the end of the
// send. For any other send, it is unknown which calls came after the change, so the traces of that
// send are read.
//
// # Equal answers
//
//	page   5 ──────── 5 5 5 ─────────────── 5 ── 6
//	          ↑                                ↑
//	          poll, ended before the send      poll, begun after the send
//	send            ├──── calls ────┤
//
// The number on the page never falls. So if the number is 5 before and after a send, version 5
// sampled every call of the send. The poll before a send must end at least [Config.Delay] before
// the send begins. The poll after a send must begin at least Config.Delay after the send ends. One
// poll can serve many sends. An old poll before a send proves as much as a recent poll.
//
// Two more conditions must hold. Only the user can know whether they hold, so [Config.OneEngine]
// asserts both conditions:
//
//   - One engine makes the calls, and the page returns its version. With a router or several
//     engines, both answers can come from one engine while another engine makes the call. No answer
//     can prove that there is no router: SGLang's own router forwards /get_model_info to one of its
//     workers.
//   - The page changes with the weights, at most Config.Delay before or after them.
//
// If an answer is missing or is not a number, the engine might have been restarted. So an answer
// before this gap and an answer after this gap prove nothing together.
//
// Without OneEngine, equal answers prove nothing, and the page is not used. If the number falls, or
// if the version in a trace differs from the page, the page is not used for the rest of the
// process. The first send whose version the page proves is checked against a trace. After that, one
// of every 64 such sends is checked.
//
// # The engine's version
//
// SGLang answers /model_info (in older releases /get_model_info) with weight_version: the value
// that the trainer set with the weights, or "default" (sglang/srt/entrypoints/http_server.py,
// server_args.py). If the value is a word and not a number, the version is unknown. Such a word is
// reported once.
//
// Each answer from the engine has the same value in meta_info (managers/tokenizer_manager.py), and
// the Letta server stores it in the trace of the step. The engine reads the value when the call
// ends. So if the weights changed during a call (pause_generation with in_place or retract), the
// value is the newer version. Newer releases also report weight_versions, which lists the span of
// tokens for each version (utils/weight_versions.py). Each token then has the version of its span.
// If the spans contradict weight_version, or do not cover each output token exactly once and in
// order, the version is unknown, even if there is a claim.
package policy
