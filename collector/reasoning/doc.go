// Package reasoning tells what a model answered from what it thought before.
//
// A reasoning model writes its thoughts between two markers, such as <think> and </think>, and
// its answer behind them. The markers are those of the model's own chat template and of its
// tokenizer: see [New]. The generation prompt of some models opens the reasoning, so that the
// output has only the closing marker. A [Splitter] reads that from the prompt of the call.
//
// The rules, with <think> and </think> for the markers:
//
//   - Reasoning that begins the output, or that the prompt opened, ends at the first </think>.
//     A </think> that the answer quotes is a part of the answer.
//   - Reasoning that begins the output and never ends leaves an empty answer: the limit of
//     tokens cut it.
//   - A later <think>…</think> is reasoning too, and is left out of the answer. If a later
//     <think> is not closed, the answer is empty if the marker begins a line or the limit of
//     tokens ended the output. Else it is a quotation.
//   - If nothing opened reasoning, a </think> at the beginning or the end of a line closes
//     it nevertheless, and another one is a quotation.
//   - An output of messages with headers (<|channel|>analysis<|message|>…<|end|>, or
//     to=self<|message|>…<|eom|>) has its answer in the messages for the user: those of the
//     channel final, or without a recipient.
//   - A template without reasoning, whose tokenizer has no marker either, has no reasoning:
//     the whole output is the answer.
//
// An engine leaves special tokens out of its text. If a marker is one, the answer is found in
// the tokens of the call, and not in the text.
//
// Without a model, every marker that is known counts, and the first closing one ends the
// reasoning. Two things then leave no trace in the text: markers that are special tokens, and
// reasoning that the prompt opened and the limit of tokens cut. The whole text is the answer
// there, unless it begins with "analysis" and has "assistantfinal" in it, as the text of
// gpt-oss.
package reasoning
