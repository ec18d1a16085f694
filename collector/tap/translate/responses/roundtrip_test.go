package responses_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

const toolsOfTest = `[{"type":"function","name":"f"},{"type":"custom","name":"patch"},
	{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"g"},{"type":"custom","name":"c"}]}]`

// TestRoundTrip sends random answers back, in the forms in which clients send them. The result must be
// the bytes of the engine's messages.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 35))
		ids, events := r.IntN(2) == 0, r.IntN(2) == 0
		items, want := []string{`{"role":"user","content":"go"}`}, []string{`{"role":"user","content":"go"}`}
		for n := range 1 + r.IntN(4) {
			call := request(t, `{"model":"m","input":"x","tools":`+toolsOfTest+`}`)
			a := randomAnswer(r, n, ids)
			var output []json.RawMessage
			if events {
				output = doneItems(t, call.Reply.Events(call.Reply.Waiting(nil), a))
			} else {
				var whole struct{ Output []json.RawMessage }
				if err := json.Unmarshal(call.Reply.Whole(nil, a), &whole); err != nil {
					t.Fatal(err)
				}
				output = whole.Output
			}
			for _, item := range output {
				if !ids {
					item = without(t, item, "id")
				}
				items = append(items, string(item))
			}
			if a.Content == nil && a.Reasoning == nil && a.Refusal == nil && len(a.Calls) == 0 {
				a.Content = quote("") // the answer is empty
			}
			want = append(want, message(a))
			for _, c := range a.Calls {
				items = append(items, fmt.Sprintf(`{"type":"function_call_output","call_id":%s,"output":"ok"}`, c.ID))
				want = append(want, fmt.Sprintf(`{"role":"tool","content":"ok","tool_call_id":%s}`, c.ID))
			}
			if len(a.Calls) == 0 {
				items, want = append(items, `{"role":"user","content":"more"}`), append(want, `{"role":"user","content":"more"}`)
			}
		}
		got := string(request(t, `{"input":[`+strings.Join(items, ",")+`]}`).Chat)
		if want := `{"messages":[` + strings.Join(want, ",") + `]}`; got != want {
			t.Fatalf("seed %d, ids %v, events %v\ninput %s\ngot   %s\nwant  %s", seed, ids, events, strings.Join(items, "\n"), got, want)
		}
	}
}

// message returns the message of an engine.
func message(a *translate.Answer) string {
	text := func(name string, value json.RawMessage) string {
		if value == nil {
			return ""
		}
		return fmt.Sprintf(`,%q:%s`, name, value)
	}
	out := `{"role":"assistant"`
	if a.Content == nil {
		out += `,"content":null`
	}
	out += text("content", a.Content) + text("refusal", a.Refusal) + text("reasoning_content", a.Reasoning)
	for i, c := range a.Calls {
		out += []string{`,"tool_calls":[`, `,`}[min(i, 1)]
		out += fmt.Sprintf(`{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, c.ID, c.Name, c.Arguments)
	}
	if len(a.Calls) > 0 {
		out += "]"
	}
	return out + "}"
}

// randomAnswer returns an answer. The arguments are not JSON, or have the form that Python writes. Without
// ids, it does not have both a refusal and content, and the calls of custom tools have an input, because
// other answers need ids.
func randomAnswer(r *rand.Rand, n int, ids bool) *translate.Answer {
	a := &translate.Answer{ID: fmt.Sprintf("fb4b_%d", n), Model: "m", Created: 1, Finish: []string{"stop", "length"}[r.IntN(2)]}
	if r.IntN(2) == 0 {
		a.Reasoning = randomText(r)
	}
	if r.IntN(3) > 0 {
		a.Content = randomText(r)
	}
	if r.IntN(5) == 0 && (ids || a.Content == nil) {
		a.Refusal = randomText(r)
	}
	for i := range r.IntN(4) {
		c := translate.ToolCall{ID: fmt.Appendf(nil, `"call_%d_%d"`, n, i), Name: []byte([]string{`"f"`, `"patch"`, `"n__g"`, `"n__c"`, `"unknown"`}[r.IntN(5)])}
		c.Arguments = append([]byte(`"x`), randomText(r)[1:]...)
		if name := string(c.Name); (name == `"patch"` || name == `"n__c"`) && (!ids || r.IntN(2) == 0) {
			c.Arguments = quote(`{"input": ` + string(quote(fmt.Sprint(r.Uint32(), "\n\t\"ü\\"))) + `}`)
		}
		a.Calls = append(a.Calls, c)
	}
	return a
}

// randomText returns a JSON string with escapes.
func randomText(r *rand.Rand) json.RawMessage {
	pieces := []string{"a", " ", `\n`, `\"`, `\\`, `\u00fc`, "ü", `\ud83d\ude00`, "😀", `\ud800`, "<b>", `{\"input\": \"x\"}`, `\/`, "[]"}
	out := []byte{'"'}
	for range r.IntN(6) {
		out = append(out, pieces[r.IntN(len(pieces))]...)
	}
	return append(out, '"')
}

// quote returns text as Python writes it with ensure_ascii=False.
func quote(text string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// without removes a member of an object and sorts the others.
func without(t *testing.T, object json.RawMessage, name string) json.RawMessage {
	t.Helper()
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, name)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// doneItems returns the items in the events output_item.done, and checks the form of all events.
func doneItems(t *testing.T, stream []byte) (items []json.RawMessage) {
	t.Helper()
	id := ""
	for n, block := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(block, "event: "), "\ndata: ")
		var e struct {
			Type     string
			Sequence int `json:"sequence_number"`
			Item     json.RawMessage
			Response *struct{ ID string }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != name || e.Sequence != n {
			t.Fatalf("event %d: %v in %s", n, err, block)
		}
		if e.Response != nil {
			if id != "" && id != e.Response.ID {
				t.Fatalf("the response has the ids %s and %s", id, e.Response.ID)
			}
			id = e.Response.ID
		}
		if name == "response.output_item.done" {
			items = append(items, e.Item)
		}
	}
	return items
}

// TestWaiting checks the events before an answer and before an error.
func TestWaiting(t *testing.T) {
	t.Parallel()
	var names []string
	reply := request(t, `{"model":"m","input":"x"}`).Reply
	stream := reply.Failed(reply.Waiting(reply.Waiting(nil)), &translate.Error{Status: 400, Code: translate.CodeOverflow, Message: "too \"long\""})
	doneItems(t, stream)
	for line := range strings.Lines(string(stream)) {
		if name, is := strings.CutPrefix(line, "event: "); is {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if got := strings.Join(names, " "); got != "response.created response.in_progress response.failed" {
		t.Error(got)
	}
	if !strings.Contains(string(stream), `"status":"failed","background":false,"error":{"code":"context_length_exceeded","message":"too \"long\""}`) {
		t.Error(string(stream))
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	got := string(responses.Dialect{}.Error(&translate.Error{Status: 400, Code: "bad_request", Message: "a <b>"}))
	want := `{"error":{"message":"a <b>","type":"invalid_request_error","param":null,"code":"bad_request"}}` + "\n"
	if got != want {
		t.Errorf("Error = %s, want %s", got, want)
	}
}
