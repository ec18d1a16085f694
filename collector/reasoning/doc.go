// Package reasoning separates the answer of a model from its reasoning.
//
// A reasoning model writes its reasoning between two markers, such as <think> and </think>, and
// then its answer. [New] takes the markers from the model's chat template and tokenizer. For some
// models the generation prompt opens the reasoning, and the output has only the closing marker. A
// [Splitter] then finds the opening marker in the prompt of the call.
//
// The rules, with <think> and </think> as the markers:
//
//   - Reasoning at the start of the output, or opened by the prompt, ends at the first </think>. A
//     later </think> that the answer quotes is part of the answer.
//   - If reasoning starts the output and never ends, the answer is empty: the token limit cut the
//     reasoning.
//   - A later <think>…</think> is reasoning too. An unclosed later <think> is a quotation, unless
//     it starts a line or the token limit ended the output. In these two cases the answer is empty.
//   - If nothing opened reasoning, a </think> at the start or the end of a line still closes
//     reasoning. Any other </think> is a quotation.
//   - In an output of messages with headers (<|channel|>analysis<|message|>…<|end|>, or
//     to=self<|message|>…<|eom|>), the answer is the messages for the user: the messages in the
//     channel final, or without a recipient.
//   - If neither the template nor the tokenizer has a marker, the whole output is the answer.
//
// An engine omits special tokens from its text. If a marker is a special token, the Splitter reads
// the tokens of the call instead of the text.
//
// Without a model, every known marker counts, and the first closing marker ends the reasoning. Two
// things then cannot be seen in the text: markers that are special tokens, and reasoning that the
// prompt opened and the token limit cut. In these cases the whole text is the answer. The exception
// is a text of gpt-oss: it starts with "analysis" and contains "assistantfinal".
package reasoning
