// Package policy finds out which version of the policy sampled a call.
//
// A version is a number ≥ 0 that the trainer gives its weights, larger for newer ones. The
// numbers come from four places, the strongest first:
//
//	trace   the engine's own word: weight_version in the trace of the call, of the calls whose
//	        traces prove prompts, and of each call with [Config.Traces]
//	url     a page that was asked before and after the send, and said the same number
//	set-version
//	        the trainer, which says one version after the other ([Source.SetVersion])
//	flag    the user, who says which version samples for as long as the process lives
//
// What none of them says is unknown, -1 here and null in the data. No number is made up.
//
// # What a claim says
//
//	claim  5 ─────────────────────── 6 ───────────────
//	send     ├─ 5 ─┤   ├──── not known ────┤   ├─ 6 ─┤
//
// A send has the claimed version if the claim was the same when it began and when it ended,
// and had not changed in between. Whichever calls of the other sends came before the change,
// nobody can tell from here: their traces are asked.
//
// # What two equal answers prove
//
//	page   5 ──────── 5 5 5 ─────────────── 5 ── 6
//	          ↑                                ↑
//	          asked, ended before the send     asked, begun after the send
//	send            ├──── calls ────┤
//
// The number never falls. So if it is 5 before and 5 after, it was 5 in between, and every
// call of the send was sampled by version 5. A poll counts as before only if it ended
// before the send began, and as after only if it began after the send ended, each with
// [Config.Delay] in between. So one poll serves any number of sends, and an old poll
// before a send proves as much as a fresh one: it only makes it likelier that the number
// has changed since.
//
// Two things must be true, and only the user knows them. [Config.OneEngine] says so:
//
//   - One engine makes the calls, and the page tells its version. Behind a router, or with
//     several engines, two answers may be those of one engine and the call that of another.
//     No answer can prove that there is no router: SGLang's own forwards /get_model_info to
//     one of its workers.
//   - The page changes with the weights, at most Config.Delay before or after them.
//
// An answer that is not a number, or no answer, parts what is before it from what is after
// it: the engine may have been started anew.
//
// Without OneEngine equal answers prove nothing, and nothing is taken from the page. What
// can be seen of the opposite ends the use of the page for the rest of the process: a
// number that falls, and a trace that names another version than the page. The first send
// whose version the page proves is compared with a trace, and one of 64 after it.
//
// # The engine's own word
//
// SGLang answers /model_info (/get_model_info before it) with weight_version, which is what
// the trainer put there with the weights, and "default" if it put nothing there
// (sglang/srt/entrypoints/http_server.py, server_args.py). A word is not a number: it makes
// no version, and is named once. The same value is in meta_info of each answer of the
// engine (managers/tokenizer_manager.py), which the Letta server keeps in the trace of the
// step. The engine reads it when it ends the call. So after a change of the weights during a
// call (pause_generation with in_place or retract) it is the newer version. Newer releases
// also report weight_versions, the span of each version (utils/weight_versions.py). Each token
// then has the version of its span. If the spans do not cover the output once and in order, or
// contradict weight_version, the version is unknown, and no claim replaces it.
package policy
