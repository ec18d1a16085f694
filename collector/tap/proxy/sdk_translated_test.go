package proxy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestSDKsTranslated holds random conversations with the official SDKs in the Responses and Messages
// APIs. It checks for each turn:
//
//   - The client gets the engine's texts, reasoning, tool calls, stop reason and usage. The object from
//     a whole answer is equal to the object from the events of a stream.
//   - In the next request, the SDK sends the object back. The engine gets exactly the messages that the
//     engine and the user wrote. Only a tool_use block of the Messages API loses the text of the arguments,
//     and a custom tool call the white space around its input. With continuity, nothing is lost.
//   - A request begins with the same bytes as the request before it.
//
// ROLLOUT_SEED repeats an earlier run.
func TestSDKsTranslated(t *testing.T) {
	t.Parallel()
	sdkClients(t)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ROLLOUT_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	draws, count := rand.New(rand.NewPCG(seed, 0)), 40
	if testing.Short() {
		count = 6
	}
	for _, api := range []string{"responses", "messages"} {
		var talks []*talk
		for i := range count {
			talks = append(talks, randomTalk(draws, api, i))
		}
		for _, c := range sdkClients(t) {
			t.Run(api+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				testTalks(t, api, c, talks)
			})
		}
	}
}

func testTalks(t *testing.T, api string, client sdkClient, talks []*talk) {
	t.Helper()
	engine := &talkEngine{talks: talks, got: map[string][][]json.RawMessage{}}
	type rigOf struct {
		*sessionRig
		key session.Key
	}
	rigs := map[bool]rigOf{}
	var calls []sdkCall
	for _, exact := range []bool{false, true} {
		r := newSessionRig(t, proxy.Config{Continuity: exact}, engine)
		rigs[exact] = rigOf{r, r.begin(t)}
		for i, talk := range talks {
			for _, helper := range []bool{false, true} {
				name := fmt.Sprintf("%d talk, continuity %v, helper %v", i, exact, helper)
				turns := append([][]any{append([]any{map[string]any{"role": "user", "content": name}}, talk.turns[0][1:]...)}, talk.turns[1:]...)
				calls = append(calls, sdkCall{
					Name: name, API: api, Base: r.url + "/r/" + string(rigs[exact].key) + "/v1", Key: "none",
					Body: talk.body, Turns: turns, Result: talk.result, Helper: helper,
				})
			}
		}
	}
	lines := client.results(t, calls[0].Base, "none", callsFile(t, calls))
	if len(lines) != len(calls)+1 {
		t.Fatalf("%d results, want %d", len(lines), len(calls)+1)
	}
	turns, first := 0, []any(nil)
	for i, call := range calls {
		talk := talks[i/2%len(talks)]
		var got struct {
			Objects []any
			Error   any
		}
		if err := json.Unmarshal(lines[i], &got); err != nil || got.Error != nil || len(got.Objects) != len(talk.answers) {
			t.Fatalf("%s: %d answers, want %d: %s, %v", call.Name, len(got.Objects), len(talk.answers), shortened(lines[i]), err)
		}
		for k, answer := range talk.answers {
			turns++
			object := essence(got.Objects[k])
			if got, want := heardBy(api, object), wantHeard(api, answer); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, turn %d: the client got\n%+v, want\n%+v\nfrom %s", call.Name, k, got, want, asJSON(object))
			}
			if got.Objects[k] = object; call.Helper && !reflect.DeepEqual(object, first[k]) {
				t.Fatalf("%s, turn %d: the client got as a stream\n%s, as a whole\n%s", call.Name, k, asJSON(object), asJSON(first[k]))
			}
		}
		first = got.Objects
		exact := i >= len(calls)/2
		checkTold(t, call.Name, talk, engine.got[call.Name], exact)
	}
	for _, r := range rigs {
		rec := r.record(t, r.key)
		if len(rec.Calls)*len(rigs) != turns {
			t.Errorf("%d calls were recorded for %d turns", len(rec.Calls), turns/len(rigs))
		}
		for _, c := range rec.Calls {
			if c.Dialect != api || c.Unread != "" || !c.Delivered || len(c.Output) == 0 {
				t.Fatalf("recorded %+v", c)
			}
		}
	}
	t.Logf("%d conversations with %d turns", len(calls), turns)
}

// checkTold checks that the engine received the messages of a conversation.
func checkTold(t *testing.T, name string, talk *talk, got [][]json.RawMessage, exact bool) {
	t.Helper()
	if len(got) != len(talk.answers) {
		t.Fatalf("%s: the engine had %d requests, want %d", name, len(got), len(talk.answers))
	}
	var before []json.RawMessage
	for turn, messages := range got {
		for i, m := range messages {
			if i < len(before) && !bytes.Equal(before[i], m) {
				t.Fatalf("%s, turn %d: message %d was\n%s and is\n%s", name, turn, i, before[i], m)
			}
			var told talkMessage
			if err := json.Unmarshal(m, &told); err != nil {
				t.Fatal(err)
			}
			want := talk.said[i]
			if want.Role == "user" && want.Content == "" {
				want.Content = name
			}
			if !exact && len(told.Calls) == len(want.Calls) {
				for k := range told.Calls {
					if sameArguments(told.Calls[k].Function.Arguments, want.Calls[k].Function.Arguments) {
						told.Calls[k].Function.Arguments = want.Calls[k].Function.Arguments
					}
				}
			}
			if !reflect.DeepEqual(told, want) {
				t.Fatalf("%s, turn %d: the engine got message %d as\n%+v, want\n%+v", name, turn, i, told, want)
			}
		}
		before = messages
	}
	if len(talk.said) < len(before) || talk.said[len(before)].Role != "assistant" {
		t.Fatalf("%s: the engine got %d messages in the last turn", name, len(before))
	}
}

// sameArguments reports whether two texts are the same JSON value.
func sameArguments(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// essence removes all members that are null, that differ between any two answers, or that only an SDK
// adds.
func essence(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = essence(v[i])
		}
	case map[string]any:
		for name, value := range v {
			switch name {
			case "input": // the model wrote it
				continue
			case "id":
				if id, _ := value.(string); !strings.HasPrefix(id, "call_") {
					value = nil
				}
			case "created_at", "completed_at", "signature", "parsed", "parsed_arguments", "parsed_output", "output_text", "_request_id":
				value = nil
			}
			if v[name] = essence(value); value == nil {
				delete(v, name)
			}
		}
	}
	return v
}

// A heardTurn is an answer as a client has it.
type heardTurn struct {
	Reasoning, Text, Stop string
	Calls                 []heardCall
	Input, Output         float64 // tokens
}

type heardCall struct {
	ID, Name string
	Input    any
}

func wantHeard(api string, a sdkAnswer) heardTurn {
	h := heardTurn{Reasoning: a.reasoning, Text: a.text, Input: 3, Output: float64(len(a.tokens()))}
	for i, arguments := range a.calls {
		c := heardCall{a.id(i), a.tool(i), arguments}
		var input any
		valid := json.Unmarshal([]byte(arguments), &input) == nil
		fields, object := input.(map[string]any)
		switch {
		case api == "messages" && (!valid || !object || strings.Count(arguments, `"a"`) == 2 || fields["_arguments"] != nil):
			c.Input = map[string]any{"_arguments": arguments}
		case api == "messages":
			c.Input = input
		case c.Name == "patch":
			if input, ok := fields["input"].(string); ok && len(fields) == 1 {
				c.Input = input
			}
		}
		h.Calls = append(h.Calls, c)
	}
	stops := map[string]string{"stop": "completed", "tool_calls": "completed", "length": "incomplete max_output_tokens"}
	if api == "messages" {
		stops = map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
	}
	h.Stop = stops[a.finish]
	return h
}

func heardBy(api string, object any) (h heardTurn) {
	o := fieldsOf(object)
	usage := fieldsOf(o["usage"])
	h.Input, h.Output = usage["input_tokens"].(float64), usage["output_tokens"].(float64)
	if api == "messages" {
		h.Stop = o["stop_reason"].(string)
		for _, block := range o["content"].([]any) {
			b := fieldsOf(block)
			switch b["type"] {
			case "thinking":
				h.Reasoning += b["thinking"].(string)
			case "text":
				h.Text += b["text"].(string)
			case "tool_use":
				h.Calls = append(h.Calls, heardCall{b["id"].(string), b["name"].(string), b["input"]})
			}
		}
		return h
	}
	h.Stop = o["status"].(string)
	if reason, ok := fieldsOf(o["incomplete_details"])["reason"].(string); ok {
		h.Stop += " " + reason
	}
	for _, item := range o["output"].([]any) {
		x := fieldsOf(item)
		for _, part := range itemsOf(x["content"]) {
			p := fieldsOf(part)
			switch p["type"] {
			case "reasoning_text":
				h.Reasoning += p["text"].(string)
			case "output_text":
				h.Text += p["text"].(string)
			}
		}
		if id, ok := x["call_id"].(string); ok {
			name := x["name"].(string)
			if space, ok := x["namespace"].(string); ok {
				name = space + "__" + name
			}
			h.Calls = append(h.Calls, heardCall{id, name, x[map[bool]string{true: "input", false: "arguments"}[x["type"] == "custom_tool_call"]]})
		}
	}
	return h
}

func fieldsOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func itemsOf(v any) []any {
	list, _ := v.([]any)
	return list
}
