package proxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// called returns an assistant message whose tool calls have the given ids and arguments.
func called(thought string, calls ...string) string {
	var list []string
	for i := 0; i < len(calls); i += 2 {
		arguments, _ := json.Marshal(calls[i+1])
		list = append(list, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"add","arguments":%s}}`, calls[i], arguments))
	}
	reasoning := ""
	if thought != "" {
		reasoning = fmt.Sprintf(`"reasoning_content":%q,`, thought)
	}
	return `{"role":"assistant","content":null,` + reasoning + `"tool_calls":[` + strings.Join(list, ",") + `]}`
}

// TestContinuityAttacks proves that ids alone never select an answer: subagents with the same ids get
// their own answers back, or their own messages if it is not certain which answer is theirs. Some engines
// number tool calls from 0 in every answer.
func TestContinuityAttacks(t *testing.T) {
	t.Parallel()
	const id = "functions.add:0"
	one, two := `{"a": 1}`, `{"a": 2}`
	compact := func(text string) string { return strings.ReplaceAll(text, " ", "") }
	result := func(text string) string {
		return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, text)
	}
	answer := func(text string) []string { return []string{text} }
	for _, c := range []struct {
		name    string
		answers []string // after the first request
		later   []string // after the first answer and its result
		echo    []string // what the client sends after the first request
		want    []string // what the engine gets; nil: what the client sends
	}{
		{"two subagents, the first", []string{called("", id, one), called("", id, two)}, nil, answer(called("", id, compact(one))), answer(called("", id, one))},
		{"two subagents, the second", []string{called("", id, one), called("", id, two)}, nil, answer(called("", id, compact(two))), answer(called("", id, two))},
		{"two subagents, neither", []string{called("", id, one), called("", id, two)}, nil, answer(called("", id, `{"a":3}`)), nil},
		{"two subagents, same arguments in two forms", []string{called("", id, one), called("", id, compact(one))}, nil, answer(called("", id, `{ "a":1}`)), nil},
		{"two subagents, other thoughts", []string{called("x", id, one), called("y", id, one)}, nil, answer(called("", id, compact(one))), nil},
		{"two subagents, other thoughts, sent", []string{called("x", id, one), called("y", id, one)}, nil, answer(called("y", id, compact(one))), answer(called("y", id, one))},
		{"edited arguments", answer(called("", id, one)), nil, answer(called("", id, `{"a":1,"b":1}`)), nil},
		{"edited text", answer(called("", id, one)), nil, answer(strings.Replace(called("", id, compact(one)), "null", `"I add."`, 1)), nil},
		{"an id twice", answer(called("", id, one, id, two)), nil, answer(called("", id, compact(one), id, compact(two))), answer(called("", id, one, id, two))},
		{"an id twice, swapped", answer(called("", id, one, id, two)), nil, answer(called("", id, compact(two), id, compact(one))), nil},
		{"an id twice, one dropped", answer(called("", id, one, id, one)), nil, answer(called("", id, compact(one))), nil},
		{"an id again", answer(called("", id, one)), answer(called("", id, two)), []string{called("", id, compact(one)), result("1"), called("", id, compact(two))}, []string{called("", id, one), result("1"), called("", id, two)}},
		{"the second answer first", answer(called("", id, one)), answer(called("", id, two)), []string{called("", id, compact(two)), result("1"), called("", id, compact(one))}, nil},
		{"the first answer twice", answer(called("", id, one)), answer(called("", id, two)), []string{called("", id, compact(one)), result("1"), called("", id, compact(one))}, []string{called("", id, one), result("1"), called("", id, compact(one))}},
		{"another result", answer(called("", id, one)), answer(called("", id, two)), []string{called("", id, compact(one)), result("2"), called("", id, compact(two))}, []string{called("", id, one), result("2"), called("", id, compact(two))}},
		{"the first answer edited", answer(called("", id, one)), answer(called("", id, two)), []string{called("", id, `{"a":7}`), result("1"), called("", id, compact(two))}, nil},
	} {
		x := newTurns()
		for _, text := range c.answers {
			x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText), text, true)
		}
		for _, text := range c.later {
			x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText, c.answers[0], result("1")), text, true)
		}
		sent := append([]string{systemText, userText}, c.echo...)
		want := sent
		if c.want != nil {
			want = append([]string{systemText, userText}, c.want...)
		}
		got := sent
		if spliced := x.spliced(t, oneKey, chatOf(t, toolsText, sent...)); spliced != nil {
			got = nil
			for _, m := range spliced {
				got = append(got, string(m))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the engine gets\n%s, want\n%s", c.name, got[2:], want[2:])
		}
	}
}
