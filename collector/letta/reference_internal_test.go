package letta

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The reference reads server JSON with encoding/json, into tagged structs that are converted
// field by field. The package must accept and reject the same texts. Prompts, rows and proofs use
// no loose member.

// A loose member can have any type. A value of another type counts as unknown.
type loose[T any] struct{ V *T }

func (l *loose[T]) UnmarshalJSON(b []byte) error {
	v := new(T)
	if l.V != nil && reflect.TypeFor[T]().Kind() == reflect.Struct {
		*v = *l.V // a duplicate member
	}
	if l.V = nil; string(b) != "null" && json.Unmarshal(b, v) == nil {
		l.V = v
	}
	return nil
}

// oldType returns the struct type that the reference reads for a type of this package: the same
// fields with the names of the server, each loose unless strict has it.
func oldType(of reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for f := range of.Fields() {
		if f.Name == "JSON" {
			continue
		}
		t := f.Type
		switch {
		case t == reflect.TypeFor[RawJSON]():
			t = reflect.TypeFor[json.RawMessage]()
		case looseOf[t] == nil:
			t = oldStructs(t)
		case slices.Contains(strict[of], f.Name):
			t = plainOf(t)
		case slices.Contains(strict[of], "*"+f.Name):
			t = reflect.PointerTo(plainOf(t))
		default:
			t = looseOf[t]
		}
		fields = append(fields, reflect.StructField{Name: f.Name, Type: t, Tag: reflect.StructTag(`json:"` + memberName(of, f.Name) + `"`)})
	}
	return reflect.StructOf(fields)
}

// oldStructs is oldType for a struct or a list of structs.
func oldStructs(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return reflect.SliceOf(oldType(t.Elem()))
	}
	return oldType(t)
}

// plainOf returns the type of a value whose field in this package has type t.
func plainOf(t reflect.Type) reflect.Type {
	switch {
	case t == reflect.TypeFor[[]RawJSON]():
		return reflect.TypeFor[[]json.RawMessage]()
	case t.Kind() == reflect.Pointer:
		return t.Elem()
	}
	return t
}

// looseOf has the loose type for the type of a field.
var looseOf = map[reflect.Type]reflect.Type{
	reflect.TypeFor[string]():     reflect.TypeFor[loose[string]](),
	reflect.TypeFor[bool]():       reflect.TypeFor[loose[bool]](),
	reflect.TypeFor[*bool]():      reflect.TypeFor[loose[bool]](),
	reflect.TypeFor[int64]():      reflect.TypeFor[loose[int64]](),
	reflect.TypeFor[*int64]():     reflect.TypeFor[loose[int64]](),
	reflect.TypeFor[*float64]():   reflect.TypeFor[loose[float64]](),
	reflect.TypeFor[Time]():       reflect.TypeFor[loose[Time]](),
	reflect.TypeFor[StopReason](): reflect.TypeFor[loose[StopReason]](),
	reflect.TypeFor[[]string]():   reflect.TypeFor[loose[[]string]](),
	reflect.TypeFor[[]RawJSON]():  reflect.TypeFor[loose[[]json.RawMessage]](),
	reflect.TypeFor[*StepError](): reflect.TypeFor[loose[oldStepError]](),
}

// strict has the fields whose members must have their type. A null leaves the field as it is, or
// clears it if its name has a star.
var strict = map[reflect.Type][]string{
	reflect.TypeFor[Run]():          {"ID", "Status"},
	reflect.TypeFor[Conversation](): {"ID", "InContextMessageIDs"},
	reflect.TypeFor[Tool]():         {"*Name"},
	reflect.TypeFor[AgentState]():   {"ID", "ToolRules", "MessageIDs", "System", "AgentType", "Blocks", "*Timezone"},
	reflect.TypeFor[LLMConfig](): {
		"*ProviderName", "*PutInnerThoughtsInKwargs", "*Handle", "*EnableReasoner", "*MaxReasoningTokens", "*Strict", "*ReturnTokenIDs",
	},
}

// memberName returns the server's name of a field: TotalDurationNanos is total_duration_ns.
func memberName(of reflect.Type, field string) string {
	if of == reflect.TypeFor[Tool]() && field == "Metadata" {
		return "metadata_"
	}
	field = strings.NewReplacer("IDs", "Ids", "Nanos", "Ns").Replace(field)
	return strings.ToLower(wordStarts.ReplaceAllString(field, "${1}${3}_${2}${4}"))
}

var wordStarts = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

type oldStepError struct {
	Message loose[string] `json:"message"`
}

type oldUsageStatistics struct {
	CompletionTokens loose[int64]    `json:"completion_tokens"`
	PromptTokens     loose[int64]    `json:"prompt_tokens"`
	TotalTokens      loose[int64]    `json:"total_tokens"`
	StepCount        loose[int32]    `json:"step_count"`
	RunIDs           loose[[]string] `json:"run_ids"`
	ContextTokens    loose[int64]    `json:"context_tokens"`
}

type oldMessageHead struct {
	ID          loose[string] `json:"id"`
	Date        loose[Time]   `json:"date"`
	Name        loose[string] `json:"name"`
	MessageType MessageType   `json:"message_type"`
	OTID        loose[string] `json:"otid"`
	StepID      loose[string] `json:"step_id"`
	RunID       loose[string] `json:"run_id"`
}

type oldToolCall struct {
	Name       *string `json:"name"`
	Arguments  *string `json:"arguments"`
	ToolCallID *string `json:"tool_call_id"`
}

// oldToolCalls also accepts a single call.
type oldToolCalls []oldToolCall

func (c *oldToolCalls) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		*c = make(oldToolCalls, 1)
		return json.Unmarshal(b, &(*c)[0])
	}
	return json.Unmarshal(b, (*[]oldToolCall)(c))
}

type oldToolReturn struct {
	Type       loose[string]   `json:"type"`
	Content    oldContent      `json:"tool_return"`
	Status     string          `json:"status"`
	ToolCallID string          `json:"tool_call_id"`
	Stdout     loose[[]string] `json:"stdout"`
	Stderr     loose[[]string] `json:"stderr"`
}

type oldContent struct {
	Text  string
	Parts []oldPart
}

type oldPart struct {
	Type string `json:"-"`
	Text string `json:"text"`
}

func (c *oldContent) UnmarshalJSON(b []byte) error {
	*c = oldContent{}
	if b[0] != '[' {
		return json.Unmarshal(b, &c.Text)
	}
	c.Parts = []oldPart{}
	return eachKind(b, "type", func(kind string, raw json.RawMessage) error {
		p := oldPart{Type: kind}
		if kind == "text" {
			if err := json.Unmarshal(raw, &p); err != nil {
				return err
			}
		}
		c.Parts = append(c.Parts, p)
		return nil
	})
}

type oldApprovals []Approval

func (a *oldApprovals) UnmarshalJSON(b []byte) error {
	*a = nil
	if string(b) == "null" {
		return nil
	}
	*a = oldApprovals{}
	return eachKind(b, "type", func(kind string, raw json.RawMessage) error {
		out := Approval{}
		switch kind {
		case "approval":
			var d struct {
				ToolCallID string        `json:"tool_call_id"`
				Approve    bool          `json:"approve"`
				Reason     loose[string] `json:"reason"`
			}
			if err := json.Unmarshal(raw, &d); err != nil {
				return err
			}
			fill(&out.ToolReturn, &d)
			fill(&out, &d)
		case "tool":
			var r oldToolReturn
			if err := json.Unmarshal(raw, &r); err != nil {
				return err
			}
			fill(&out.ToolReturn, &r)
		}
		out.Type = kind
		*a = append(*a, out)
		return nil
	})
}

// eachKind calls f for each element of a list, with its kind from the member tag.
func eachKind(list []byte, tag string, f func(kind string, raw json.RawMessage) error) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(list, &raws); err != nil {
		return err
	}
	for _, raw := range raws {
		kind, err := referenceKind(raw, tag)
		if err == nil {
			err = f(kind, raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func oldMessages(list []byte) (messages []Message, err error) {
	if string(list) != "null" {
		messages = []Message{}
	}
	err = eachKind(list, "message_type", func(kind string, raw json.RawMessage) error {
		m, err := oldMessage(MessageType(kind), raw)
		messages = append(messages, m)
		return err
	})
	return messages, err
}

func oldMessage(kind MessageType, raw json.RawMessage) (m Message, err error) {
	read := func(v any) {
		if err == nil {
			err = json.Unmarshal(raw, v)
		}
		if err == nil {
			fill(&m, v)
		}
	}
	read(new(oldMessageHead))
	switch kind {
	case TypeSystem, TypeUser, TypeAssistant:
		read(new(struct {
			Content oldContent `json:"content"`
		}))
	case TypeReasoning:
		read(new(struct {
			Reasoning loose[string] `json:"reasoning"`
		}))
	case TypeToolCall, TypeApprovalRequest:
		var v struct {
			ToolCalls oldToolCalls    `json:"tool_calls"`
			First     json.RawMessage `json:"tool_call"`
		}
		read(&v)
		if err == nil && len(v.ToolCalls) == 0 && v.First != nil && string(v.First) != "null" {
			v.ToolCalls = make(oldToolCalls, 1)
			err = json.Unmarshal(v.First, &v.ToolCalls[0])
			fill(&m, &v)
		}
	case TypeToolReturn:
		var v struct {
			ToolReturns []oldToolReturn `json:"tool_returns"`
			Text        json.RawMessage `json:"tool_return"`
			Status      string          `json:"status"`
			ToolCallID  string          `json:"tool_call_id"`
			Stdout      loose[[]string] `json:"stdout"`
			Stderr      loose[[]string] `json:"stderr"`
		}
		read(&v)
		if err == nil && len(v.ToolReturns) == 0 && v.ToolCallID != "" {
			r := oldToolReturn{Type: loose[string]{new("tool")}, Status: v.Status, ToolCallID: v.ToolCallID, Stdout: v.Stdout, Stderr: v.Stderr}
			if v.Text != nil {
				err = json.Unmarshal(v.Text, &r.Content.Text)
			}
			v.ToolReturns = []oldToolReturn{r}
			fill(&m, &v)
		}
	case TypeApprovalResponse:
		read(new(struct {
			Approvals         oldApprovals `json:"approvals"`
			Approve           *bool        `json:"approve"`
			ApprovalRequestID *string      `json:"approval_request_id"`
		}))
	}
	m.Type, m.JSON = kind, kept(raw)
	return m, err
}

func oldResponse(text []byte) (*LettaResponse, error) {
	var v struct {
		Messages   oldMessageList `json:"messages"`
		StopReason loose[struct {
			StopReason loose[StopReason] `json:"stop_reason"`
		}] `json:"stop_reason"`
		Usage loose[oldUsageStatistics] `json:"usage"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	out := &LettaResponse{Messages: Messages(v.Messages)}
	if v.StopReason.V != nil {
		fillValue(reflect.ValueOf(&out.StopReason).Elem(), reflect.ValueOf(v.StopReason.V.StopReason))
	}
	if v.Usage.V != nil {
		fill(&out.Usage, v.Usage.V)
	}
	return out, nil
}

type oldMessageList []Message

func (l *oldMessageList) UnmarshalJSON(b []byte) (err error) {
	*l, err = oldMessages(b)
	return err
}

// fill copies the fields of from, a reference struct, to the fields of to with the same names.
func fill(to, from any) { fillValue(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()) }

func fillValue(to, from reflect.Value) {
	switch {
	case from.Type() == to.Type():
		to.Set(from)
	case from.Type() == reflect.TypeFor[json.RawMessage]():
		to.SetString(string(kept(from.Bytes())))
	case strings.HasPrefix(from.Type().Name(), "loose["):
		fillValue(to, from.Field(0))
	case from.Kind() == reflect.Pointer:
		if to.SetZero(); from.IsNil() {
			return
		}
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		fillValue(to, from.Elem())
	case from.Kind() == reflect.Slice:
		if to.SetZero(); from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			fillValue(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Struct:
		for f, v := range from.Fields() {
			if field := to.FieldByName(f.Name); field.IsValid() {
				fillValue(field, v)
			}
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// withoutInner clears the JSON text of nested objects, which the reference does not keep, except for
// messages.
func withoutInner(v reflect.Value, inner bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			withoutInner(v.Elem(), inner)
		}
	case reflect.Slice:
		for i := range v.Len() {
			withoutInner(v.Index(i), true)
		}
	case reflect.Struct:
		for f, field := range v.Fields() {
			switch {
			case f.Name == "JSON" && inner:
				field.SetString("")
			case f.Name == "Messages" && field.Type() == reflect.TypeFor[Messages]():
				for i := range field.Len() {
					withoutInner(field.Index(i), false)
				}
			case f.IsExported():
				withoutInner(field, true)
			}
		}
	}
}

type kindOfText struct {
	name string
	ours func(text string) (any, error)
	// reference returns the expected result of ours, with an empty JSON field.
	reference func(text []byte) (any, error)
}

// plainKind is the kind of a struct type.
func plainKind[T any](name string, read func(string) (*T, error)) kindOfText {
	old := oldType(reflect.TypeFor[T]())
	return kindOfText{name, func(text string) (any, error) {
		v, err := read(text)
		return v, err
	}, func(text []byte) (any, error) {
		from, to := reflect.New(old).Interface(), new(T)
		if err := json.Unmarshal(text, from); err != nil {
			return nil, err
		}
		fill(to, from)
		return to, nil
	}}
}

var kindsOfText = []kindOfText{
	plainKind("step", Read[Step]),
	plainKind("metrics", Read[StepMetrics]),
	plainKind("run", Read[Run]),
	plainKind("conversation", Read[Conversation]),
	plainKind("tool", Read[Tool]),
	plainKind("agent", Read[AgentState]),
	{
		"answer", func(text string) (any, error) { return Read[LettaResponse](text) },
		func(text []byte) (any, error) { return oldResponse(text) },
	},
	{
		"messages", func(text string) (any, error) {
			list, err := ReadList[Message](text)
			return &LettaResponse{Messages: list, JSON: kept([]byte(strings.Trim(text, " \t\r\n")))}, err
		},
		func(text []byte) (any, error) {
			if !json.Valid(text) {
				return nil, fmt.Errorf("not JSON")
			}
			list, err := oldMessages([]byte(strings.Trim(string(text), " \t\r\n")))
			return &LettaResponse{Messages: list}, err
		},
	},
}

func sameText(t *testing.T, of kindOfText, text []byte) {
	t.Helper()
	got, err := of.ours(string(text))
	want, wantErr := of.reference(text)
	if (err != nil) != (wantErr != nil) {
		t.Errorf("%s: read %.600q: %v; encoding/json: %v", of.name, text, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	whole := reflect.ValueOf(got).Elem().FieldByName("JSON")
	if trimmed := kept([]byte(strings.Trim(string(text), " \t\r\n"))); whole.String() != string(trimmed) {
		t.Errorf("%s: kept %.600q, want %.600q", of.name, whole, trimmed)
	}
	whole.SetString("")
	withoutInner(reflect.ValueOf(got), false)
	withoutInner(reflect.ValueOf(want), false)
	if !reflect.DeepEqual(got, want) {
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
				put("messages", run.Messages)
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
		json.RawMessage(`[{"tool_calls":{"name":"a"},"message_type":"tool_call_message","step_id":"s","step_id":null},null,{"message_type":"new","content":1}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":"x","status":"error","stdout":["a",null],"stderr":[],"tool_returns":[]}]`),
		json.RawMessage(`[{"content":[{"text":1,"type":"image"},{"text":"b","type":"text"},null],"message_type":"user_message","Name":"N","name":null}]`),
		json.RawMessage(`[{"content":5,"message_type":"user_message","message_type":"reasoning_message","reasoning":"r"},{"message_type":"reasoning_message","content":5,"message_type":"user_message"}]`),
		json.RawMessage(`[{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true,"reason":null},{"tool_return":[{"type":"text","text":"t"}],"type":"tool"},{"type":"x","approve":3}],"approve":false}]`),
		json.RawMessage(`[{"message_type":"summary_message","summary":"s","compaction_stats":{"trigger":"t","context_tokens_before":1,"context_window":2}},{"message_type":"event_message","event_data":{"a":[1,2]}}]`),
		// Duplicate long strings, and long strings with a common prefix.
		json.RawMessage(`[{"message_type":"tool_call_message","tool_call":{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},"tool_calls":[{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},{"name":"w","arguments":"` + longText + ` more"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":"` + longText + `","status":"success","tool_call_id":"c","tool_returns":[{"type":"tool","tool_return":"` + longText + `","tool_call_id":"c"}]},{"` + longText + `":"` + longText + `","message_type":"user_message","content":[{"type":"text","text":"` + longText + `"},{"text":"` + longText + `","type":"image"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":["` + longText + `"],"tool_call_id":"c","tool_returns":[{"tool_return":"` + longText + `"}]},{"message_type":"tool_call_message","tool_call":["` + longText + `"],"tool_calls":[{"arguments":"` + longText + `"}]}]`),
		json.RawMessage(`[{"message_type":"hidden_reasoning_message","state":"omitted"},{"message_type":"assistant_message","content":"\ud83d\ude00\ud83d","seq_id":1,"is_err":null}]`),
	},
	"answer":  {json.RawMessage(`{"messages":[{"message_type":"user_message","content":"a"}],"messages":null,"stop_reason":null,"usage":{"run_ids":["a"],"step_count":3,"step_count":null}}`)},
	"run":     {json.RawMessage(`{"id":"r","status":"failed","callback_url":"u","callback_sent_at":"t","callback_status_code":200,"callback_error":"e","ttft_ns":5,"total_duration_ns":7,"base_template_id":"b"}`)},
	"metrics": {json.RawMessage(`{"step_start_ns":1,"llm_request_start_ns":2,"llm_request_ns":3,"tool_execution_ns":4,"step_ns":5,"template_id":"t"}`)},
	"step":    {json.RawMessage(`{"id":"s","error_data":{"message":"m","details":{"a":1}},"error_data":{"traceback":"t"},"tags":["a","b"],"tags":["c",null],"stop_reason":null,"completion_tokens":0}`)},
}

// TestReadLikeReference compares both readers on all recorded texts and on mutations of them.
func TestReadLikeReference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	all := recordedOf(t)
	for i, of := range kindsOfText {
		for _, text := range all[i] {
			sameText(t, of, text)
			if of.name != "agent" {
				continue
			}
			var raws struct{ Tools []json.RawMessage }
			agent, err := Read[AgentState](string(text))
			if err := errors.Join(err, json.Unmarshal(text, &raws)); err != nil {
				t.Fatal(err)
			}
			for k := range agent.Tools { // their text reaches prompts
				if got, want := agent.Tools[k].JSON, kept(raws.Tools[k]); got != want {
					t.Errorf("tool %d: kept %.300q, want %.300q", k, got, want)
				}
			}
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
		{`{"messages":[{"message_type":"tool_call_message","tool_call":{"name":{}}}]}`, "messages: element 0: tool_call: name: an object where a string is expected (byte 8)"},
		{`{} x`, `"x" where the end is expected (byte 3)`},
	} {
		if _, err := Read[LettaResponse](test.text); err == nil || err.Error() != test.want {
			t.Errorf("Read(%s)\n = %v\nwant %s", test.text, err, test.want)
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
