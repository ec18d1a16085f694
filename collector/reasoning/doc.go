// Package reasoning separates a model's answer from its reasoning.
//
// A reasoning model writes its reasoning between two markers, such as <think> and </think>, and
// then its answer. [New] takes the markers from the model's chat template and tokenizer. For some
// models, the generation prompt contains the opening marker, and the output has only the closing
// marker. In that case, a [Splitter] finds the opening marker in the prompt of the call.
//
// The following rules use <think> and </think> as the markers:
//
//   - If the prompt or the start of the output opens reasoning, the reasoning ends at the first
//     </think>. A later </think> that the answer quotes is part of the answer.
//   - If this reasoning never ends, the answer is empty, because the token limit cut the reasoning.
//   - A later <think>…</think> is reasoning too. A later <think> that is never closed is a
//     quotation, unless it starts a line or the token limit ended the output. In these two cases,
//     the answer is empty.
//   - If there is no opening marker, a </think> at the start or the end of a line still closes
//     reasoning. Any other </think> is a quotation.
//   - If the output consists of messages with headers (<|channel|>analysis<|message|>…<|end|>, or
//     to=self<|message|>…<|eom|>), the answer consists of the messages for the user. These are the
//     messages in the channel final. A message without a channel is also for the user, unless it
//     has another recipient.
//   - If neither the template nor the tokenizer contains a marker, the whole output is the answer.
//
// An engine omits special tokens from its text. If a marker is a special token, the Splitter
// decodes the sampled ids of the call instead.
//
// If the model is unknown, all known markers are used, and the first closing marker ends the
// reasoning. In two cases, the text does not show which part is reasoning. In the first case, the
// markers are special tokens. In the second case, the prompt opened the reasoning and the token
// limit cut the reasoning. In these cases, the whole text is the answer. Text from gpt-oss is an
// exception: the reasoning is recognizable, because the text starts with "analysis" and contains
// "assistantfinal".
package reasoning
