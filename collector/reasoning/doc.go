// Package reasoning separates the answer of a model from its reasoning.
//
// A reasoning model writes its reasoning between two markers, such as <think> and </think>, and
// then its answer. [New] takes the markers from the model's chat template and tokenizer. The
// generation prompt of some models opens the reasoning, so the output has only the closing
// marker. A [Splitter] finds that in the prompt of the call.
//
// The rules, with <think> and </think> for the markers:
//
//   - Reasoning at the start of the output, or reasoning that the prompt opened, ends at the
//     first </think>. A later </think> that the answer quotes is a part of the answer.
//   - If reasoning begins the output and never ends, the answer is empty: the token limit cut
//     the reasoning.
//   - A later <think>…</think> is reasoning too, and is not in the answer. If a later <think>
//     is not closed, it is a quotation, with two exceptions: the answer is empty if the marker
//     begins a line, or if the token limit ended the output.
//   - If nothing opened reasoning, a </think> at the start or the end of a line still closes
//     reasoning. Any other </think> is a quotation.
//   - An output of messages with headers (<|channel|>analysis<|message|>…<|end|>, or
//     to=self<|message|>…<|eom|>) has its answer in the messages for the user: the messages in
//     the channel final, or without a recipient.
//   - If neither the template nor the tokenizer has a marker, there is no reasoning: the whole
//     output is the answer.
//
// An engine omits special tokens from its text. If a marker is a special token, the Splitter
// finds the answer in the tokens of the call, not in the text.
//
// Without a model, every known marker counts, and the first closing marker ends the reasoning.
// Two things then leave no trace in the text: markers that are special tokens, and reasoning
// that the prompt opened and the token limit cut. In these cases the whole text is the answer.
// The exception is a text of gpt-oss: it begins with "analysis" and contains
// "assistantfinal".
package reasoning
