// Package continuity gives the engine the conversation's own tokens.
//
// A Letta server renders the whole conversation anew for each call. What the model said is
// then printed otherwise than it was sampled: a call of a tool with other white space, the
// text before a call not at all, the tokens as the tokenizer makes them of a text. So the
// next prompt does not continue the last one. A rollout falls apart into several rows,
// and the engine reads again what it has in its cache. A [Table] stands in the proxy. It
// keeps the latest calls, and where a prompt differs from the true history only in the
// print of what was sampled, it gives the engine the history followed by what is new.
//
// # Words
//
//   - asked: the prompt that the server sent
//   - sent: the prompt that the engine was given, asked itself or a spliced one
//   - print: what asked has in the place of an output
//   - site: an asked prompt, with every call that had it
//   - place: an end of the header that begins a turn of the model, in a prompt
//
// # The way of a prompt
//
//	asked   S U <h> print1 <e> T1 <h> print2 <e> T2 <h>
//	sent    S U <h> output1 <e> T1 <h> output2 <e> T2 <h>
//
// Here <h> is the header <|im_start|>assistant\n and <e> is <|im_end|>, which is sampled.
// S, U and T are system, user and tool. [Table.Prompt]
//
//   - hashes asked once and notes the hash at each place (markers.go);
//   - finds the site of the longest known prompt that asked begins with, and compares the
//     ids themselves: a hash proves nothing (table.go). It must be the last but one place of
//     asked, so that exactly one turn of the model is new;
//   - compares what follows, up to the next <e>, with each output of that site (compare.go,
//     json.go);
//   - takes the one call whose output it prints (decide.go);
//   - requires that the turn calls a tool, and that only tool results follow it;
//   - returns the prompt that the engine received for that call, its output, and the part of
//     asked after <e>, id for id.
//
// [Table.Answered] adds the call. A call holds only what its prompt has beyond the call
// before, and where the splice was made (call.go).
//
// # What is a print of an output
//
// By [Reason], each including those before:
//
//	tokens   the bytes are the same
//	space    white space differs at the ends of the text, of a thought, or around calls
//	call     each call has the same value: an object of name and arguments in this order, the
//	         same members in the same order at every depth, strings of the same characters,
//	         numbers of the same sign and decimal value (1e3 and 1000.0 are one, 0.1 and
//	         0.10000000000000001 are not)
//	text     all text before the first call is gone
//
// Everything else is refused: a dropped or added call, a removed argument, text between
// calls or behind them, broken JSON, other formats of calls, a text that is not the same,
// half a character, a special token, an output that did not end in <e>. A thought before an
// answer that is gone is left so: the template takes it out when the user speaks again,
// because the model was trained so. And where asked does not continue an asked prompt,
// which is so after a compaction, or when a template changed an earlier turn, nothing is
// known of it and nothing is done.
//
// # Whose turn it is
//
// The tap cannot trust the agent that a prompt names: an imported agent file has the system
// message of the exported agent, with its id. And a client can write assistant messages, in a
// request or in a file. Nothing on the wire distinguishes such a message from a sampled one.
// So the tap splices only turns that no client writes:
//
//   - The turn calls a tool, and only tool results follow it, up to the end of the prompt. The
//     server writes these within one request. A user message begins a request: everything
//     before it stays as the server asked, even turns that were spliced before.
//   - One prompt continues an output: the first one that comes. The tap splices the same
//     prompt, to the last id, again only if its answer never came. While the engine works on
//     it, and after its answer, a repetition is another conversation. If n calls with the same
//     prompt sampled the same ids, n prompts can continue them.
//
// [New] proves that the template prints a tool result differently from a user's text.
//
// Several agents can have the same prompt: imports of one file, forks of a conversation. The
// site has the calls of all of them. The tap splices only if exactly one output can have this
// print, and no other output can, even if the server drops a call or cuts arguments. If two
// outputs have the same ids after the same ids, their agent does not matter.
//
// What was forgotten counts as well. A call whose output did not come through, the 33rd of a
// prompt, and what was dropped because the table is full make the site blind, and nothing is
// spliced there. Limits remain, all for agents with the very same prompt:
//
//   - a call that was not used for Config.MaxAge is forgotten for good, and so is one that was
//     dropped when the memory of dropped ones fills a quarter of Config.MaxBytes (262,144 of
//     them by default). An agent that waits longer than that between a call and its next
//     prompt can be taken for another one whose call has the same print;
//   - a table that begins anew knows only the calls that it is told of again: rollout tap
//     tells it those of the last hour that are in the spool;
//   - a request that passed the proxy unread, because it is short of memory, is not known;
//   - a text that spells the template's own markers is a turn, for the model and for the
//     table. So is a text that spells the result of a tool. If a client writes another agent's
//     call and a result after it, before that agent's own next prompt comes, the tap takes the
//     client's conversation for that agent's. The same holds for a client that repeats that next
//     prompt after its answer failed;
//   - if the calls of a conversation pass through several taps, each tap knows only its part.
//
// # What changes for the server
//
// The engine counts the tokens that it was sent, and the server copies these counts. So
//
//   - prompt_tokens of steps and usage count the spliced prompt. If only white space
//     differs, the numbers can be the same. So the proxy marks each answer with the number of
//     turns that were spliced, and package prompt proves no such call: its row comes from the
//     tap alone;
//   - the server compacts when prompt and output together exceed 90 % of the agent's context
//     window. Thoughts that it deletes stay in the engine's prompt, so that comes earlier;
//   - the engine's own limit can be met where the server thinks that there is room.
//     Config.MaxPrompt leaves such a prompt as it was asked;
//   - the model sees its earlier thoughts where a server that deletes text would not show
//     them: a policy that is trained so should be served so.
//
// # What it gives
//
// The recorded conversations of testdata/letta, as TestRecorded replays them; prefilled are
// the tokens that an engine with a perfect prefix cache has to read:
//
//	case                 calls  rows     prefilled     prompts changed
//	sixteen                 16  6 → 1    1414 → 1286   15
//	tool-think-two           3  3 → 1     558 →  508    2
//	tool-text                2  2 → 1     463 →  438    1
//	large                    2  2 → 1     461 →  434    1
//	tool-split               2  2 → 1     458 →  433    1
//	tool-args-compact        2  2 → 1     455 →  434    1
//	tool-args-numbers        2  2 → 1     397 →  384    1
//	compaction               5  4 → 3    9838 → 9811    1
//	multi                    4  4 → 3     505 →  565    1
//	conversation             4  3 → 2     575 →  635    1
//	15 others that do not drift, or in a way that is refused: unchanged
//
// Of 90 calls of 24 rollouts through a real server (the case continuity of the live tests),
// 51 prompts are changed, 66 rows become 37, and 18,455 prefilled tokens 17,754.
//
// Where a chain ends for a thought, as in multi, the next prompt is as asked from its first
// token on, and what was spliced before has to be read again.
package continuity
