// Package continuity replaces re-rendered turns in prompts with the tokens that the model sampled.
//
// A Letta server renders the whole conversation for every call. The rendering of a model turn often
// differs from the tokens that the model sampled: white space in a tool call changes, the text
// before a call is missing, or the same text is encoded as other tokens. As a result, the next
// prompt does not begin with the previous prompt and output. The rollout is then split into several
// rows, and the engine cannot use its prefix cache. A [Table] in the proxy keeps the latest calls.
// If a prompt differs from the true history only in the rendering of sampled turns, the engine
// receives the true history, followed by the new part of the prompt.
//
// # Words
//
//   - asked: the prompt that the server sent
//   - sent: the prompt that the engine received, which is either asked or a spliced prompt
//   - print: the rendering of an output in asked
//   - site: an asked prompt and all calls with this asked prompt
//   - place: a position in a prompt at which the header of a model turn ends
//
// # The path of a prompt
//
//	asked   S U <h> print1 <e> T1 <h> print2 <e> T2 <h>
//	sent    S U <h> output1 <e> T1 <h> output2 <e> T2 <h>
//
// Here <h> is the header <|im_start|>assistant\n and <e> is <|im_end|>, which the model samples. S,
// U and T are the system message, a user message and a tool result. [Table.Prompt]
//
//   - hashes the asked prompt once and records the hash at each place (markers.go);
//   - finds the site of the longest known prompt with which the asked prompt begins, and compares
//     the ids, because hashes can collide (table.go). The known prompt must end at the
//     second-to-last place in the asked prompt, so that exactly one model turn is new;
//   - compares the text between this place and the next <e> with each output of the site
//     (compare.go, json.go);
//   - chooses the one call whose output has this print (decide.go);
//   - requires that the turn calls a tool, and that only tool results follow the turn;
//   - returns the prompt that the engine received for that call, the output of that call, and the
//     ids after <e> in the asked prompt.
//
// [Table.Answered] adds the call. A call stores only the position of the splice and the ids that
// are not in its parent's prompt (call.go).
//
// # Which prints are recognized
//
// Each reason also accepts the differences of the reasons above it:
//
//	tokens   the bytes are the same
//	space    white space differs at the ends of the text, at the ends of a thought, or around calls
//	call     each call has the same value: an object with name and arguments in this order, the
//	         same members in the same order at every depth, strings with the same characters,
//	         numbers with the same sign and decimal value (1e3 equals 1000.0, but 0.1 does not
//	         equal 0.10000000000000001)
//	text     all text before the first call is missing
//
// Every other difference is refused: a missing or added call, a removed argument, text between or
// after calls, broken JSON, another call format, different text, part of a character, a special
// token, or an output that does not end with <e>. If the thought before an answer is missing, it is
// not restored. The template removes the thought when the next user message follows, and the model
// was trained with such prompts. A prompt is not changed if it does not continue an earlier asked
// prompt. This happens after a compaction, for example, or if the template changed an earlier turn.
//
// # Whose turn it is
//
// The tap cannot rely on the agent id in a prompt, because an imported agent file contains the
// system message of the exported agent, including its id. A client can also write assistant
// messages, in a request or in an agent file. Nothing in a request distinguishes such a message
// from a sampled message. So the tap splices a turn only if these two conditions show that no
// client wrote it:
//
//   - The turn calls a tool, and only tool results follow the turn, up to the end of the prompt.
//     The server writes the turn and the results during one request. A user message starts a new
//     request. Everything before the last user message is forwarded as the server sent it, even
//     turns that were spliced in earlier prompts.
//   - The output has not yet been continued. Only the first prompt that continues an output is
//     spliced. The tap splices an identical prompt again only if the first prompt got no answer. If
//     an identical prompt arrives while the engine is working on the first prompt or after the
//     answer to the first prompt, it belongs to another conversation. If n calls with the same
//     prompt sampled the same ids, n prompts can continue these calls.
//
// [New] proves that the template renders a tool result differently from a user's text.
//
// Several agents can have the same prompt, because they were imported from the same file or because
// a conversation was forked. The site of this prompt contains the calls of all these agents. The
// tap splices only if one output has this print and no other output can have it. An output can also
// have a print in which the server dropped a call or arguments. If two calls have the same prompt
// and the same output, it does not matter which agent made them.
//
// A call that the table no longer contains could also have this print. So a site becomes blind in
// three cases: a call has an incomplete output, a 33rd call has the same prompt, or the calls of
// the site are dropped because the table is full. The outputs of a blind site are never spliced
// again. Some limitations remain. All of them require that several agents have exactly the same
// prompt:
//
//   - The table forgets a call completely if the call is not used for Config.MaxAge. It also forgets
//     the oldest blind sites if blind sites take more than a quarter of Config.MaxBytes (262,144
//     sites by default). If the next prompt of an agent arrives after its call was forgotten, the
//     tap can confuse this agent with another agent whose call has the same print.
//   - A new table knows only the calls that are replayed into it. `rollout tap` replays the calls of
//     the last hour from the spool.
//   - The table does not contain the calls of requests that the proxy forwarded without parsing
//     because memory was short.
//   - If a message contains the template's own markers of a turn or of a tool result, the model and
//     the table mistake its text for a turn or a tool result. Suppose a client writes another
//     agent's call and a result into a conversation before that agent's own next prompt arrives.
//     The tap then mistakes the client's conversation for the agent's conversation. The same
//     happens if a client repeats the agent's next prompt after the answer to that prompt failed.
//   - If the calls of a conversation pass through several taps, each tap knows only a part of the
//     conversation.
//
// # What changes for the server
//
// The engine counts the tokens that it received, and the server copies these counts. This has the
// following effects:
//
//   - prompt_tokens in steps and usage counts the tokens of the spliced prompt. If only white space
//     differs, the counts of both prompts can be equal. So the proxy marks each answer with the
//     number of spliced turns. Package prompt does not use the count to prove the prompt of such a
//     call, but takes the prompt from the tap.
//   - The server compacts the conversation when prompt and output together exceed 90 % of the
//     agent's context window. The compaction happens earlier than without the tap, because the
//     engine's prompt still contains thoughts that the server deleted.
//   - A prompt can exceed the engine's limit although the server expects it to fit. Config.MaxPrompt
//     prevents such splices.
//   - The model sees its earlier thoughts even if the server deletes them. This is appropriate for
//     a policy that is trained with such prompts.
//
// # Results
//
// TestRecorded replays the recorded conversations. Sixteen calls with reasoning become one row
// instead of six, and an engine with a perfect prefix cache processes 1,286 tokens instead of 1,414.
// On a real server, 51 of the 90 prompts in 24 rollouts were changed. The number of rows fell from
// 65 to 36, and the number of processed tokens from 18,395 to 18,177.
//
// If a chain ends because of a removed thought, the next prompt is forwarded exactly as the server
// sent it. The engine must then reprocess the part that was spliced in earlier prompts.
package continuity
