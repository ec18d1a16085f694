// Package continuity replaces re-rendered turns in prompts by the tokens that the model sampled.
//
// A Letta server renders the whole conversation again for each call, and a turn of the model often
// changes: other white space in a tool call, no text before a call, other tokens for the same text.
// So the next prompt does not continue the last one. A rollout breaks into several rows, and the
// engine cannot use its prefix cache. A [Table] in the proxy keeps the latest calls. If a prompt
// differs from the true history only in the rendering of sampled turns, the engine gets the true
// history, followed by the new part.
//
// # Words
//
//   - asked: the prompt that the server sent
//   - sent: the prompt that the engine got: asked itself or a spliced one
//   - print: the rendering of an output in asked
//   - site: an asked prompt, with every call that had it
//   - place: a position in a prompt where the header of a model's turn ends
//
// # The path of a prompt
//
//	asked   S U <h> print1 <e> T1 <h> print2 <e> T2 <h>
//	sent    S U <h> output1 <e> T1 <h> output2 <e> T2 <h>
//
// Here <h> is the header <|im_start|>assistant\n and <e> is <|im_end|>, which is sampled. S, U and
// T are system, user and tool. [Table.Prompt]
//
//   - hashes asked once and records the hash at each place (markers.go);
//   - finds the site of the longest known prompt that asked begins with, and compares the ids,
//     because hashes can collide (table.go). That prompt must end at the last but one place of
//     asked, so that exactly one turn of the model is new;
//   - compares the text after it, up to the next <e>, with each output of that site (compare.go,
//     json.go);
//   - chooses the one call whose output has this print (decide.go);
//   - requires that the turn calls a tool, and that only tool results follow it;
//   - returns the prompt that the engine received for that call, its output, and the part of asked
//     after <e>, id for id.
//
// [Table.Answered] adds the call. A call stores only the ids that its parent's prompt lacks, and
// the position of the splice (call.go).
//
// # Which prints are recognized
//
// By [Reason], each including the ones before:
//
//	tokens   the bytes are the same
//	space    white space differs at the ends of the text, of a thought, or around calls
//	call     each call has the same value: an object of name and arguments in this order, the
//	         same members in the same order at every depth, strings of the same characters,
//	         numbers of the same sign and decimal value (1e3 equals 1000.0, but 0.1 does not
//	         equal 0.10000000000000001)
//	text     all text before the first call is gone
//
// Everything else is refused: a dropped or added call, a removed argument, text between or after
// calls, broken JSON, other call formats, a different text, half a character, a special token, an
// output that did not end in <e>. A missing thought before an answer is not restored: the template
// removes it when the user speaks again, because the model was trained with such prompts. A prompt
// that does not continue an asked prompt, as after a compaction or if a template changed an earlier
// turn, is not changed.
//
// # Whose turn it is
//
// The tap cannot trust the agent that a prompt names: an imported agent file has the system
// message of the exported agent, with its id. And a client can write assistant messages, in a
// request or in a file. Nothing on the wire distinguishes such a message from a sampled one.
// So the tap splices only turns that no client writes:
//
//   - The turn calls a tool, and only tool results follow it, up to the end of the prompt. The
//     server writes these within one request. A user message begins a request: everything before it
//     is sent as the server asked, even turns that were spliced before.
//   - One prompt continues an output: the first one that comes. The tap splices the same
//     prompt, to the last id, again only if its answer never came. While the engine works on
//     it, and after its answer, a repetition is another conversation. If n calls with the same
//     prompt sampled the same ids, n prompts can continue them.
//
// [New] proves that the template prints a tool result differently from a user's text.
//
// Several agents can have the same prompt: imports of one file, forks of a conversation. The site
// has the calls of all of them. The tap splices only if exactly one output can have this print, and
// no other output can, even if the server drops a call or cuts arguments. If two calls have the
// same prompt and the same output, it does not matter which agent made them.
//
// Forgotten calls count too. A site becomes blind, and is never spliced again, after a call with an
// incomplete output, after the 33rd call of a prompt, and when calls are dropped because the table
// is full. These limits remain, all for agents with the very same prompt:
//
//   - The table forgets a call completely if it is not used for Config.MaxAge. It also forgets the
//     oldest blind sites when they take more than a quarter of Config.MaxBytes (262,144 sites by
//     default). If an agent waits longer than that between a call and its next prompt, it can be
//     taken for another agent whose call has the same print.
//   - A new table knows only the calls that it gets again: rollout tap replays the calls of the
//     last hour from the spool.
//   - A request that passed the proxy unread, because memory was short, is unknown.
//   - A text that contains the template's own markers is a turn, for the model and for the table.
//     So is a text that contains the markers of a tool result. Suppose a client writes another
//     agent's call and a result after it before that agent's own next prompt comes. Then the tap
//     takes the client's conversation for that agent's. The same holds for a client that repeats
//     that next prompt after its answer failed.
//   - If the calls of a conversation pass through several taps, each tap knows only its part.
//
// # What changes for the server
//
// The engine counts the tokens that it got, and the server copies these counts. So:
//
//   - prompt_tokens of steps and usage count the spliced prompt. If only white space differs, the
//     counts can be equal. So the proxy marks each answer with the number of spliced turns. Package
//     prompt does not prove such a call; its row comes from the tap alone.
//   - The server compacts when prompt and output together exceed 90 % of the agent's context
//     window. Thoughts that it deletes stay in the engine's prompt, so this happens earlier.
//   - A prompt can exceed the engine's limit although the server expects that it fits.
//     Config.MaxPrompt prevents such splices.
//   - The model sees its earlier thoughts even if the server would delete them. This suits a policy
//     that is trained with such prompts.
//
// # Results
//
// TestRecorded replays the recorded conversations. Sixteen calls with reasoning become one row instead
// of six, and an engine with a perfect prefix cache processes 1,286 tokens instead of 1,414. On a real
// server, 90 calls of 24 rollouts had 51 changed prompts, 65 rows became 36, and 18,395 processed
// tokens became 18,177.
//
// If a chain ends because of a thought, the next prompt is sent as asked from its first token, and the
// engine must process the spliced part again.
package continuity
