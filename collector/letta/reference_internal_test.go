package letta

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// reference reads a value as the tags say, with encoding/json. The package must accept and reject
// the same texts, and return the same values.
func reference(raw json.RawMessage, v reflect.Value) error {
	switch {
	case v.Type() == reflect.TypeFor[RawJSON]():
		v.SetString(string(kept(raw)))
		return nil
	case v.Type() == reflect.TypeFor[Content]() && raw[0] == '[':
		return reference(raw, v.FieldByName("Parts"))
	case v.Type() == reflect.TypeFor[Content]():
		return reference(raw, v.FieldByName("Text"))
	case v.Type() == reflect.TypeFor[Message]():
		return referenceMessage(raw, v)
	case v.Kind() == reflect.Struct:
		return referenceObject(raw, v)
	case string(raw) == "null":
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return reference(raw, v.Elem())
	case v.Kind() == reflect.Slice:
		var all []json.RawMessage
		err := json.Unmarshal(raw, &all)
		v.Set(reflect.MakeSlice(v.Type(), len(all), len(all)))
		for i := range all {
			err = errors.Join(err, reference(all[i], v.Index(i)))
		}
		return err
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

func referenceObject(raw json.RawMessage, v reflect.Value) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	kind := ""
	for f := range v.Type().Fields() {
		if name, is := strings.CutSuffix(f.Tag.Get("letta"), ",kind"); is && all[name] != nil {
			if err := json.Unmarshal(all[name], &kind); err != nil {
				return err
			}
		}
	}
	for f, field := range v.Fields() {
		if f.Name == "JSON" {
			field.SetString(string(kept(raw)))
		}
		tag, kinds := f.Tag.Get("letta"), strings.Fields(f.Tag.Get("kinds"))
		if tag == "" || len(kinds) > 0 && !slices.Contains(kinds, kind) {
			continue
		}
		path, option, _ := strings.Cut(tag, ",")
		err := referenceMember(all, path, option, field)
		switch {
		case option == "loose" && err != nil:
			field.SetZero()
		case err != nil && option != "version":
			return err
		}
	}
	return nil
}

func referenceMember(object map[string]json.RawMessage, path, option string, field reflect.Value) error {
	outer, rest, deeper := strings.Cut(path, ".")
	value := object[outer]
	switch {
	case value == nil:
		return nil
	case deeper:
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(value, &inner); err != nil {
			return err
		}
		return referenceMember(inner, rest, option, field)
	case option == "version" && value[0] != '"':
		number := json.Number("")
		if err := json.Unmarshal(value, &number); err != nil || number == "" {
			return err
		}
		field.SetString(tokenize.VersionWord(string(number)))
		return nil
	case option == "text":
		var c Content
		err := reference(value, reflect.ValueOf(&c).Elem())
		field.SetString(c.String())
		return err
	case option == "one" && value[0] == '{':
		value = json.RawMessage("[" + string(value) + "]")
	}
	return reference(value, field)
}

// referenceMessage also reads the deprecated members.
func referenceMessage(raw json.RawMessage, v reflect.Value) error {
	if err := referenceObject(raw, v); err != nil {
		return err
	}
	m := v.Addr().Interface().(*Message)
	var old struct {
		Call   *ToolCall `letta:"tool_call"`
		Result struct {
			ToolCallID string   `letta:"tool_call_id"`
			Status     string   `letta:"status"`
			Stdout     []string `letta:"stdout,loose"`
			Stderr     []string `letta:"stderr,loose"`
		}
		Text struct {
			Return string `letta:"tool_return"`
		}
	}
	switch {
	case (m.Type == TypeToolCall || m.Type == TypeApprovalRequest) && len(m.ToolCalls) == 0:
		if err := referenceObject(raw, reflect.ValueOf(&old).Elem()); err != nil || old.Call == nil {
			return err
		}
		m.ToolCalls = []ToolCall{*old.Call}
	case m.Type == TypeToolReturn && len(m.ToolReturns) == 0:
		if err := referenceObject(raw, reflect.ValueOf(&old.Result).Elem()); err != nil || old.Result.ToolCallID == "" {
			return err
		}
		if err := referenceObject(raw, reflect.ValueOf(&old.Text).Elem()); err != nil {
			return err
		}
		r := old.Result
		m.ToolReturns = []ToolReturn{{Type: "tool", Content: Content{Text: old.Text.Return}, Status: r.Status, ToolCallID: r.ToolCallID, Stdout: r.Stdout, Stderr: r.Stderr}}
	}
	return nil
}

type kindOfText struct {
	name string
	read func(text string) (any, error)
	of   reflect.Type
}

func kindOf[T any](name string) kindOfText {
	return kindOfText{name, func(text string) (any, error) { return Read[T](text) }, reflect.TypeFor[T]()}
}

var kindsOfText = []kindOfText{
	kindOf[Step]("step"),
	kindOf[StepMetrics]("metrics"),
	kindOf[Run]("run"),
	kindOf[Conversation]("conversation"),
	kindOf[Tool]("tool"),
	kindOf[AgentState]("agent"),
	kindOf[LettaResponse]("answer"),
	kindOf[[]Message]("messages"),
	kindOf[TraceRequest]("request"),
	kindOf[TraceResponse]("response"),
	kindOf[[]TraceMessage]("shown"),
}

func sameText(t *testing.T, of kindOfText, text []byte) {
	t.Helper()
	got, err := of.read(string(text))
	if e, ok := errors.AsType[*strictjson.Error](strictjson.Check(validText(string(text)), strictjson.Options{HalfPairs: true, MaxDepth: 10_000})); ok && e.Ambiguous {
		return // of equal names encoding/json takes the last, whatever the others are
	}
	want := reflect.New(of.of)
	wantErr := reference([]byte(strings.Trim(string(text), " \t\r\n")), want.Elem())
	switch {
	case (err != nil) != (wantErr != nil):
		t.Errorf("%s: read %.600q: %v; encoding/json: %v", of.name, text, err, wantErr)
	case err == nil && !reflect.DeepEqual(got, want.Interface()):
		t.Errorf("%s: read %.900q:\n got %+v\nwant %+v", of.name, text, got, want)
	}
}

// recordedOf returns the recorded texts of each kind, in the order of kindsOfText.
func recordedOf(tb testing.TB) [][]json.RawMessage {
	tb.Helper()
	all := make([][]json.RawMessage, len(kindsOfText))
	put := func(name string, texts ...json.RawMessage) {
		i := slices.IndexFunc(kindsOfText, func(k kindOfText) bool { return k.name == name })
		all[i] = append(all[i], texts...)
	}
	for _, life := range recordedLives(tb) {
		if len(life.Agent) > 0 {
			put("agent", life.Agent)
		}
		if len(life.Conversation) > 0 {
			put("conversation", life.Conversation)
		}
		put("tool", life.Tools...)
		for _, e := range life.Exchanges {
			if e.Response.Status == 200 {
				var whole map[string]json.RawMessage
				_ = json.Unmarshal(e.Response.Body, &whole)
				delete(whole, "turns")
				delete(whole, "logprobs")
				rest, _ := json.Marshal(whole)
				put("answer", rest)
			}
			for _, run := range e.Runs {
				put("run", run.Run)
				put("step", run.Steps...)
				put("metrics", run.Steps...)
				messages, _ := json.Marshal(run.Messages)
				put("messages", messages)
				for _, text := range run.Traces {
					var trace, request map[string]json.RawMessage
					_ = json.Unmarshal(text, &trace) // some runs have no traces
					_ = json.Unmarshal(trace["request_json"], &request)
					if request["messages"] != nil {
						put("request", trace["request_json"])
						put("response", trace["response_json"])
						put("shown", request["messages"])
					}
				}
			}
		}
	}
	for i := range all {
		all[i] = append(all[i], madeUp[kindsOfText[i].name]...)
		if len(all[i]) == 0 {
			tb.Fatalf("no recorded %s", kindsOfText[i].name)
		}
	}
	return all
}

const longText = `{\"path\": \"src/größer.py\", \"content\": \"if err != nil {\\n\\t“return” \ud83d\ude00 日本語 \\\"it\\\"\\n}\"}`

// madeUp are texts that the recordings lack.
var madeUp = map[string][]json.RawMessage{
	"messages": {
		json.RawMessage(`[{"message_type":"tool_call_message","tool_call":{"name":"a","arguments":"{\"x\": \"é\\n\"}","tool_call_id":"c"},"tool_calls":null}]`),
		json.RawMessage(`[{"tool_calls":{"name":"a"},"message_type":"tool_call_message","step_id":null},null,{"message_type":"new","content":1}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":"x","status":"error","stdout":["a",null],"stderr":[],"tool_returns":[]}]`),
		json.RawMessage(`[{"content":[{"text":1,"type":"image"},{"text":"b","type":"text"},null],"message_type":"user_message","name":null}]`),
		json.RawMessage(`[{"content":5,"message_type":"reasoning_message","reasoning":"r"},{"content":"a","message_type":"user_message"}]`),
		json.RawMessage(`[{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true,"reason":null},{"tool_return":[{"type":"text","text":"t"}],"type":"tool"},{"type":"x","approve":3}],"approve":false}]`),
		json.RawMessage(`[{"message_type":"summary_message","summary":"s","compaction_stats":{"trigger":"t","context_tokens_before":1,"context_window":2}},{"message_type":"event_message","event_data":{"a":[1,2]}}]`),
		// Duplicate long strings, and long strings with a common prefix.
		json.RawMessage(`[{"message_type":"tool_call_message","tool_call":{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},"tool_calls":[{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},{"name":"w","arguments":"` + longText + ` more"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":"` + longText + `","status":"success","tool_call_id":"c","tool_returns":[{"type":"tool","tool_return":"` + longText + `","tool_call_id":"c"}]},{"` + longText + `":"` + longText + `","message_type":"user_message","content":[{"type":"text","text":"` + longText + `"},{"text":"` + longText + `","type":"image"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":["` + longText + `"],"tool_call_id":"c","tool_returns":[{"tool_return":"` + longText + `"}]},{"message_type":"tool_call_message","tool_call":["` + longText + `"],"tool_calls":[{"arguments":"` + longText + `"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":5,"status":"success"}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":"x","tool_call_id":"","tool_returns":null}]`),
		// The deprecated text counts only with the id of its call.
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":"x","status":"error","tool_call_id":"c","stdout":["a"],"stderr":5},
			{"message_type":"tool_return_message","tool_return":null,"tool_call_id":"c"}, {"message_type":"tool_return_message","tool_return":{},"status":"success"},
			{"message_type":"tool_return_message","tool_return":[1],"tool_call_id":null},
			{"message_type":"tool_return_message","tool_return":5,"tool_call_id":"","tool_returns":[]},
			{"message_type":"tool_return_message","tool_return":5,"tool_call_id":"c","tool_returns":[null]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":["a"]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":[{"type":"text","text":"a"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":5}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":{}}]`),
		// Every kind, and kinds of a later server.
		json.RawMessage(`[{"message_type":"system_message"},{"content":[{"text":"a","type":"text"},{"type":"hologram","x":1}],"message_type":"user_message"},
			{"message_type":"assistant_message","content":"x"},{"message_type":"reasoning_message"},{"message_type":"hidden_reasoning_message","state":"redacted"},
			{"message_type":"tool_call_message","tool_calls":{"name":"x","arguments":null,"tool_call_id":null}},{"message_type":"tool_return_message"},
			{"message_type":"approval_request_message"},{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true},{"type":"tool"},{"type":"oracle"}]},
			{"message_type":"summary_message"},{"message_type":"event_message"},{"message_type":"from_the_future","wisdom":42}]`),
		json.RawMessage(`[{"message_type":"hidden_reasoning_message","state":"omitted"},{"message_type":"assistant_message","content":"\ud83d\ude00\ud83d","seq_id":1,"is_err":null}]`),
	},
	"answer":   {json.RawMessage(`{"messages":null,"stop_reason":null,"usage":{"step_count":4294967296,"context_tokens":null}}`), json.RawMessage(`{"messages":[],"stop_reason":5,"usage":[]}`)},
	"run":      {json.RawMessage(`{"id":"r","status":"failed","callback_url":"u","callback_sent_at":"t","callback_status_code":200,"callback_error":"e","ttft_ns":5,"total_duration_ns":7,"base_template_id":"b"}`)},
	"metrics":  {json.RawMessage(`{"step_start_ns":1,"llm_request_start_ns":2,"llm_request_ns":3,"tool_execution_ns":4,"step_ns":5,"template_id":"t"}`)},
	"step":     {json.RawMessage(`{"id":"s","error_data":{"message":"m","details":{"a":1}},"tags":["c",null],"stop_reason":null,"completion_tokens":0}`)},
	"response": {json.RawMessage(`{"meta_info":{"finish_reason":{"type":"stop","matched":1},"weight_version":7.0,"weight_versions":[]},"output_ids":[1]}`), json.RawMessage(`{"meta_info":[],"text":5}`)},
	"shown":    {json.RawMessage(`[{"content":[{"text":"a","type":"text"},{"type":"x","text":1}],"role":null,"tool_calls":[{"function":null}]}]`)},
}

// TestReadLikeReference compares both readers on all recorded texts and on mutations of them.
func TestReadLikeReference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	all := recordedOf(t)
	for i, of := range kindsOfText {
		for _, text := range all[i] {
			sameText(t, of, text)
		}
		for range 1_000 { // FuzzRead has more
			text := []byte(all[i][r.IntN(len(all[i]))])
			if len(text) > 20_000 && r.IntN(10) > 0 {
				continue
			}
			for range 1 + r.IntN(3) {
				text = mutated(r, text)
			}
			if sameText(t, of, text); t.Failed() {
				return
			}
		}
	}
}

// FuzzRead compares both readers.
func FuzzRead(f *testing.F) {
	for i, texts := range recordedOf(f) {
		for _, text := range texts[max(0, len(texts)-20):] {
			if len(text) < 4<<10 {
				f.Add(uint8(i), []byte(text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		sameText(t, kindsOfText[int(kind)%len(kindsOfText)], text)
	})
}

// TestNesting checks the nesting limit of encoding/json.
func TestNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{9_999, 10_000} {
		text := `{"metadata":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}"
		_, err := Read[Run](text)
		if want := json.Unmarshal([]byte(text), new(struct{ Metadata json.RawMessage })); (err != nil) != (want != nil) {
			t.Errorf("depth %d: %v, encoding/json: %v", depth, err, want)
		}
	}
}

// TestErrorsSayWhere checks that an error has the path and the value.
func TestErrorsSayWhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{
			`{"messages":[{"message_type":"user_message"},{"message_type":"tool_call_message","tool_calls":[{"name":5}]}]}`,
			"messages: element 1: tool_calls: element 0: name: a number where a string is expected (byte 103)",
		},
		{`{"messages":[{"message_type":"user_message","content":[{"type":"text","text":1}]}]}`, "messages: element 0: content: element 0: text: a number where a string is expected (byte 77)"},
		{`{"messages":{}}`, "messages: an object where a list is expected (byte 12)"},
		{`{"messages":[1]}`, "messages: element 0: a number where an object is expected (byte 13)"},
		{`{"messages":[{"message_type":[]}]}`, "messages: element 0: message_type: a list where a string is expected (byte 29)"},
		{`{"messages":[]`, "the text ends where ',' or '}' is expected (byte 14)"},
		{`{"messages":[],}`, `"}" where a name is expected (byte 15)`},
		{`{"messages":[{"message_type":"tool_call_message","tool_call":{"name":{}}}]}`, "messages: element 0: tool_call: name: an object where a string is expected (byte 69)"},
		{
			`{"messages":[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":["a"]}]}`,
			"messages: element 0: tool_return: a list where a string is expected (byte 84)",
		},
		{
			`{"messages":[{"message_type":"user_message","content":"a","message_type":"system_message"}]}`,
			"messages: element 0: message_type: conflicting kinds in one object (byte 89)",
		},
		{`{} x`, `"x" where the end is expected (byte 3)`},
	} {
		if _, err := Read[LettaResponse](test.text); err == nil || err.Error() != test.want {
			t.Errorf("Read(%s)\n = %v\nwant %s", test.text, err, test.want)
		}
	}
}

// TestEqualNames checks that the last of several members with one name counts, and that the members
// of paths merge.
func TestEqualNames(t *testing.T) {
	t.Parallel()
	const agent = `{"message_ids":["a","b"],"system":"s","message_ids":["c"],"llm_config":{"handle":"h","strict":true},"llm_config":{"model":"m"},"system":null}`
	a, err := Read[AgentState](agent)
	if err != nil || !slices.Equal(a.MessageIDs, []string{"c"}) || a.System != "" ||
		!reflect.DeepEqual(a.LLMConfig, LLMConfig{JSON: `{"model":"m"}`, Model: "m"}) || a.JSON != agent {
		t.Errorf("agent = %+v, %v", a, err)
	}

	r, err := Read[TraceResponse](`{"meta_info":{"prompt_tokens":1,"finish_reason":{"type":"stop","matched":2}},"output_ids":[1,2],"text":"a",
		"meta_info":{"prompt_tokens":3,"finish_reason":{"type":"length"},"weight_version":"v"},"output_ids":[4],"text":5}`)
	if want := (TraceResponse{OutputIDs: "[4]", Finish: "length", Matched: "2", Version: "v", PromptTokens: "3"}); err != nil || *r != want {
		t.Errorf("response = %+v, %v, want %+v", r, err, want)
	}
	if r, err = Read[TraceResponse](`{"meta_info":{"prompt_tokens":1},"meta_info":null,"meta_info":[]}`); err != nil || *r != (TraceResponse{PromptTokens: "1"}) {
		t.Errorf("response = %+v, %v, want the count", r, err)
	}

	m, err := Read[Message](`{"message_type":"user_message","content":"a","message_type":"user_message","content":[{"text":"b","text":"c","type":"text"}]}`)
	if err != nil || m.Type != TypeUser || m.Content.String() != "c" || m.Content.Text != "" {
		t.Errorf("message = %+v, %v, want the last content", m, err)
	}
	m, err = Read[Message](`{"message_type":"tool_call_message","message_type":"user_message","content":"a","tool_calls":[{"name":"n"}]}`)
	if err == nil {
		t.Errorf("message = %+v, want an error: two kinds", m)
	}
}

// members are the members of the received types, in the order of the fields: with "?" if loose, with
// the field if it has another name, and with the kinds of objects that have the member.
var members = map[reflect.Type]string{
	reflect.TypeFor[Run]():          `id status created_at? completed_at? agent_id? metadata stop_reason?`,
	reflect.TypeFor[Conversation](): `id agent_id? in_context_message_ids`,
	reflect.TypeFor[Tool]():         `id? name json_schema`,
	reflect.TypeFor[AgentState](): `
		created_at? id name? tool_rules message_ids system agent_type llm_config response_format metadata blocks
		tools tags? timezone
	`,
	reflect.TypeFor[LLMConfig](): `
		model? model_endpoint? provider_name context_window? put_inner_thoughts_in_kwargs handle enable_reasoner
		max_reasoning_tokens strict return_token_ids
	`,
	reflect.TypeFor[Step](): `
		id? run_id? agent_id? model? model_handle? model_endpoint? context_window_limit? prompt_tokens?
		completion_tokens? total_tokens? stop_reason? feedback? error_type? error_data? status?
	`,
	reflect.TypeFor[StepError](): `message?`,
	reflect.TypeFor[StepMetrics](): `
		id? run_id? agent_id? LLMRequestNanos=llm_request_ns? ToolExecutionNanos=tool_execution_ns?
		StepNanos=step_ns?
	`,
	reflect.TypeFor[LettaResponse]():   `messages stop_reason.stop_reason? usage?`,
	reflect.TypeFor[UsageStatistics](): `completion_tokens? prompt_tokens? total_tokens? step_count? context_tokens?`,
	reflect.TypeFor[Message](): `
		Type=message_type,kind id? date? name? otid? step_id? run_id?
		content@system_message+user_message+assistant_message reasoning?@reasoning_message
		tool_calls,one@tool_call_message+approval_request_message tool_returns@tool_return_message
		approvals@approval_response_message approve@approval_response_message
		approval_request_id@approval_response_message
	`,
	reflect.TypeFor[ToolCall]():   `name arguments tool_call_id`,
	reflect.TypeFor[ToolReturn](): `type? Content=tool_return status tool_call_id stdout? stderr?`,
	reflect.TypeFor[Approval](): `
		type,kind tool_call_id@approval+tool approve@approval reason?@approval Content=tool_return@tool
		status@tool stdout?@tool stderr?@tool
	`,
	reflect.TypeFor[ContentPart]():   `type,kind text@text`,
	reflect.TypeFor[ProviderTrace](): `Request=request_json Response=response_json step_id? agent_id? call_type? run_id?`,
	reflect.TypeFor[TraceRequest]():  `messages tools input_ids`,
	reflect.TypeFor[TraceResponse](): `
		text? output_ids Logprobs=meta_info.output_token_logprobs? Finish=meta_info.finish_reason.type?
		meta_info.finish_reason.matched? Version=meta_info.weight_version,version
		Versions=meta_info.weight_versions? meta_info.prompt_tokens? Mark=meta_info.rollout?
	`,
	reflect.TypeFor[TraceMessage](): `role content,text name tool_call_id tool_calls`,
	reflect.TypeFor[TraceCall]():    `id function.name function.arguments`,
}

// TestMembers compares the tags with a second list of the members, because the reference reads the
// tags too.
func TestMembers(t *testing.T) {
	t.Parallel()
	for of, want := range members {
		var got []string
		for f := range of.Fields() {
			tag := f.Tag.Get("letta")
			if tag == "" {
				continue
			}
			name, option, _ := strings.Cut(tag, ",")
			word := strings.Replace(tag, ",loose", "?", 1)
			if last := name[strings.LastIndex(name, ".")+1:]; !strings.EqualFold(strings.ReplaceAll(last, "_", ""), f.Name) {
				word = f.Name + "=" + word
			}
			if kinds := f.Tag.Get("kinds"); kinds != "" {
				word += "@" + strings.ReplaceAll(kinds, " ", "+")
			}
			if _, known := map[string]bool{"": true, "loose": true, "kind": true, "one": true, "text": true, "version": true}[option]; !known {
				t.Errorf("%v.%s: unknown option %q", of, f.Name, option)
			}
			got = append(got, word)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%v has the members\n%s\nwant\n%s", of, strings.Join(got, " "), want)
		}
	}
}

// TestWith changes one member of an object and leaves the rest unchanged.
func TestWith(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{`{ "a" : 1.0 , "b":"\u00e9" }`, `{ "a" : 1.0 , "b":true }`},
		{`{"b": {"b":1} ,"c":2}`, `{"b": true ,"c":2}`},
		{`{"c":2 }`, `{"c":2 ,"b":true}`},
		{`{}`, `{"b":true}`},
	} {
		if got, err := RawJSON(test.in).With("b", "true"); err != nil || string(got) != test.want {
			t.Errorf("With(%s) = %s, %v, want %s", test.in, got, err, test.want)
		}
	}
	for _, bad := range []RawJSON{"", "null", "[]", `{"a"`, `"b"`} {
		if got, err := bad.With("b", "true"); err == nil {
			t.Errorf("With(%s) = %s, want an error", bad, got)
		}
	}
	if got := RawJSON(`{"a":[1, 2],"a":"x"}`).Member("a"); got != `"x"` {
		t.Errorf("Member = %s, want the last", got)
	}
}
