package tokenize_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// brackets renders rows with the trained ids in brackets.
func brackets(rows ...tokenize.Row) string {
	var all []string
	for _, r := range rows {
		var ids []string
		for i, id := range r.InputIDs {
			text := fmt.Sprint(id)
			if r.LossMask[i] == 1 && (i == 0 || r.LossMask[i-1] == 0) {
				text = "[" + text
			}
			if r.LossMask[i] == 1 && (i+1 == len(r.InputIDs) || r.LossMask[i+1] == 0) {
				text += "]"
			}
			ids = append(ids, text)
		}
		all = append(all, strings.Join(ids, " "))
	}
	return strings.Join(all, " | ")
}

// A reply of a server that sends input_ids becomes rows.
func Example() {
	body := `{"usage": {"completion_tokens": 3}, "turns": [
		{"role": "assistant", "input_ids": [1, 2], "output_ids": [10, 11], "output_token_logprobs": [[-0.25, 10, null], [-0.5, 11, null]]},
		{"role": "tool", "content": "5", "tool_name": "add"},
		{"role": "assistant", "input_ids": [1, 2, 10, 11, 3], "output_ids": [20], "output_token_logprobs": [[-0.125, 20, null]]}]}`

	decoder := tokenize.NewDecoder(tokenize.DecoderConfig{})
	var reply tokenize.Reply
	if err := decoder.Decode(strings.NewReader(body), &reply); err != nil {
		fmt.Println(err)
		return
	}
	calls, err := tokenize.CallsFromTurns(nil, reply.Turns)
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, sum, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(calls)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range rows {
		fmt.Println("ids     ", rows[i].InputIDs)
		fmt.Println("mask    ", rows[i].LossMask)
		fmt.Println("logprobs", rows[i].Logprobs)
		fmt.Println("grade   ", rows[i].Grade)
	}
	fmt.Printf("%d of %d sampled tokens trained; the rest of the reply: %s\n", sum.Trained, sum.Sampled, reply.Rest)
	// Output:
	// ids      [1 2 10 11 3 20]
	// mask     [0 0 1 1 0 1]
	// logprobs [0 0 -0.25 -0.5 0 -0.125]
	// grade    exact
	// 3 of 3 sampled tokens trained; the rest of the reply: {"usage": {"completion_tokens": 3}}
}

// The second call continues the first; the third does not. The result is two rows.
func ExampleAligner_Align() {
	call := func(prompt, output []int32, logprobs ...float32) tokenize.Call {
		return tokenize.Call{PromptIDs: prompt, OutputIDs: output, Logprobs: logprobs, Source: tokenize.SourceTap, After: tokenize.RoleTool, Version: -1}
	}
	calls := []tokenize.Call{
		call([]int32{1, 2}, []int32{10, 11}, -0.5, -0.25),
		call([]int32{1, 2, 10, 11, 3}, []int32{20}, -0.5),
		call([]int32{1, 2, 10, 9}, []int32{30}, -0.5),
	}
	rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(calls)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range rows {
		fmt.Println(brackets(rows[i]))
		if d := rows[i].Divergence; d != nil {
			fmt.Println("because", string(d.AppendJSON(nil)))
		}
	}
	// Output:
	// 1 2 [10 11] 3 [20]
	// 1 2 10 9 [30]
	// because {"call":2,"offset":3,"kind":"earlier_output","row":[11,3,20],"prompt":[9]}
}

// A DecodeError has the offset and the path of the malformed bytes.
func ExampleDecodeError() {
	var reply tokenize.Reply
	err := tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes([]byte(`{"turns":[{"role":"assistant","output_ids":[5,-1]}]}`), &reply)
	if e, ok := errors.AsType[*tokenize.DecodeError](err); ok {
		fmt.Println(e.Offset, e.Path, errors.Is(err, tokenize.ErrRange))
	}
	fmt.Println(err)
	// Output:
	// 46 /turns/0/output_ids/1 true
	// /turns/0/output_ids/1 (byte 46): tokenize: token id does not fit in int32
}
