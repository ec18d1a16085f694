package responses_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/tap/translate"
)

// FuzzArguments answers with calls of each kind of tool, with any arguments. The whole answer and the
// events must contain the same items. If the client sends them back, the arguments must be the same.
// If they are the input of a custom tool, their white space can differ.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{
		``, `{}`, `{`, `{"input":`, `{"input": "abc`, "{\"input\": \"a\nb\"}", "{\"input\":\n\"ab\"}\n", `{"input":1}`, `{"input":null}`, `{"input":"a","b":null}`,
		`{"b":null,"input":"a"}`, `{"input":"a","input":"b"}`, `{"input":"\ud800"}`, `{"input":"a"} x`, `abc`, `"abc"`, `null`, "\xff", "\n", `[{"input":"a"}]`, `{"in\u0070ut":"a"}`,
		`{\"input\": \"abc`, `{\"input\": \"\ud800\"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		arguments := json.RawMessage(`"` + text + `"`) // an engine can write any JSON string
		if json.Valid(arguments) && utf8.ValidString(text) {
			checkArguments(t, arguments)
		}
		checkArguments(t, quote(text))
	})
}

func checkArguments(t *testing.T, arguments json.RawMessage) {
	t.Helper()
	a := &translate.Answer{ID: "fb4b_1", Model: "m", Finish: "tool_calls"}
	for i, name := range []string{"f", "patch", "n__g", "n__c", "unknown"} {
		a.Calls = append(a.Calls, translate.ToolCall{ID: fmt.Appendf(nil, `"c%d"`, i), Name: quote(name), Arguments: arguments})
	}
	reply := request(t, `{"model":"m","input":"x","tools":`+toolsOfTest+`}`).Reply
	items := doneItems(t, reply.Events(reply.Waiting(nil), a))
	var whole struct{ Output []json.RawMessage }
	reply = request(t, `{"model":"m","input":"x","tools":`+toolsOfTest+`}`).Reply
	if err := json.Unmarshal(reply.Whole(nil, a), &whole); err != nil || !reflect.DeepEqual(items, whole.Output) {
		t.Fatalf("%s: %v\nthe events contain %s\nthe answer    %s", arguments, err, items, whole.Output)
	}
	input := `{"input":[`
	for _, item := range items {
		input += string(item) + ","
	}
	var chat struct {
		Messages []struct {
			Calls []struct {
				Function struct{ Name, Arguments json.RawMessage }
			} `json:"tool_calls"`
		}
	}
	body := request(t, strings.TrimSuffix(input, ",")+"]}").Chat
	if err := json.Unmarshal(body, &chat); err != nil || len(chat.Messages) != 1 || len(chat.Messages[0].Calls) != len(a.Calls) {
		t.Fatalf("%s: %v: %s", arguments, err, body)
	}
	for i, c := range chat.Messages[0].Calls {
		got, custom := c.Function, slices.Contains([]int{1, 3}, i)
		if string(got.Name) != string(a.Calls[i].Name) || string(got.Arguments) != string(arguments) && (!custom || !sameObject(got.Arguments, arguments)) {
			t.Fatalf("%s: the call %d comes back as %s with %s", arguments, i, got.Name, got.Arguments)
		}
	}
}

// sameObject reports whether two JSON strings contain the same JSON object.
func sameObject(a, b json.RawMessage) bool {
	var texts [2]string
	var objects [2]map[string]any
	for i, text := range []json.RawMessage{a, b} {
		if json.Unmarshal(text, &texts[i]) != nil || json.Unmarshal([]byte(texts[i]), &objects[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(objects[0], objects[1])
}

// TestErrorInTurn checks requests with an error in an item of an assistant message.
func TestErrorInTurn(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		`{"role":"assistant","content":[{"type":"output_text"}]}`,
		`{"role":"assistant","content":[{"type":"output_text","text":1}]}`,
		`{"role":"assistant","content":[{"type":"refusal","refusal":{}}]}`,
		`{"role":"assistant","content":1}`,
		`{"type":"reasoning","summary":[{"type":"summary_text"}]}`,
		`{"type":"custom_tool_call","call_id":"c","name":"f","input":1}`,
		`{"type":"custom_tool_call","call_id":"c","name":"f","namespace":1,"input":"i"}`,
	} {
		failure(t, `{"input":[`+item+`]}`)
	}
}
