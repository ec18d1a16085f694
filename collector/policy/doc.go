// Package policy determines which version of the policy sampled a call.
//
// A version is a number ≥ 0 that the trainer assigns to its weights. Newer weights have a larger
// version. Versions have four sources, the strongest first:
//
//	trace   the engine itself: weight_version in the trace of the call, for calls whose traces
//	        prove prompts, and for each call with [Config.Traces]
//	url     a page that was asked before and after the send, and returned the same number
//	set-version
//	        the trainer, which sets one version after the other ([Source.SetVersion])
//	flag    the user, who sets one version for the whole process
//
// Without a source the version is unknown: -1 here and null in the data. No number is made up.
//
// # Claims
//
//	claim  5 ─────────────────────── 6 ───────────────
//	send     ├─ 5 ─┤   ├──── not known ────┤   ├─ 6 ─┤
//
// A send has the claimed version if the claim did not change from its start to its end. For other
// sends, it is unknown which calls came after the change, so their traces are read.
//
// # Equal answers
//
//	page   5 ──────── 5 5 5 ─────────────── 5 ── 6
//	          ↑                                ↑
//	          asked, ended before the send     asked, begun after the send
//	send            ├──── calls ────┤
//
// The number never falls. So if it is 5 before and 5 after, version 5 sampled every call of the
// send. A poll counts as before only if it ended before the send began, and as after only if it
// began after the send ended. In both cases [Config.Delay] must have passed in between. One poll
// serves any number of sends, and an old poll before a send proves as much as a fresh one.
//
// Two conditions must hold that only the user can know. [Config.OneEngine] asserts both:
//
//   - One engine makes the calls, and the page returns its version. With a router or several
//     engines, two answers can come from one engine and the call from another. No answer can prove
//     that there is no router: SGLang's own forwards /get_model_info to one of its workers.
//   - The page changes with the weights, at most Config.Delay before or after them.
//
// An answer that is not a number, or a missing answer, separates the answers before it from the
// answers after it: the engine could have been restarted.
//
// Without OneEngine equal answers prove nothing, and the page is not used. A number that falls, or
// a trace whose version differs from the page, ends the use of the page for the rest of the
// process. The first send whose version the page proves is compared with a trace, and after that
// one of every 64 such sends.
//
// # The engine's version
//
// SGLang answers /model_info (in older releases /get_model_info) with weight_version: the value
// that the trainer set with the weights, or "default" (sglang/srt/entrypoints/http_server.py,
// server_args.py). A word is not a number: it gives no version, and is reported once.
//
// The same value is in meta_info of each answer of the engine (managers/tokenizer_manager.py),
// which the Letta server stores in the trace of the step. The engine reads it when it ends the
// call. So after a change of the weights during a call (pause_generation with in_place or retract)
// it is the newer version. Newer releases also report weight_versions, the span of each version
// (utils/weight_versions.py). Each token then has the version of its span. If the spans do not
// cover the output once and in order, or contradict weight_version, the version is unknown, and no
// claim replaces it.
package policy
