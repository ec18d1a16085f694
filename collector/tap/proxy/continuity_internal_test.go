package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	systemText = `{"role":"system","content":"Be terse."}`
	userText   = `{"role":"user","content":"Add."}`
	toolText   = `{"role":"tool","tool_call_id":"call-1","content":"5"}`
	toolsText  = `[{"type":"function","function":{"name":"add"}}]`
	// answerText is an answer of the engine, and echoText the same answer as a client sends it.
	answerText = `{"role":"assistant","content":"\n\nI add.\n","reasoning_content":"\nTwo and three.\n","tool_calls":[` +
		`{"id":"call-1","type":"function","function":{"name":"add","arguments":"{\"a\": 2, \"b\": 3.0, \"c\": {\"x\": \"é\", \"y\": [1, null]}}"}},` +
		`{"id":"call-2","type":"function","function":{"name":"sub","arguments":"{\"n\": 12345678901234567890}"}}]}`
	echoText = `{"role":"assistant","content":"I add.","reasoning_content":"Two and three.","tool_calls":[` +
		`{"id":"call-1","type":"function","function":{"name":"add","arguments":"{\"c\":{\"y\":[1,null],\"x\":\"\\u00e9\"},\"b\":3,\"a\":2}"}},` +
		`{"id":"call-2","type":"function","function":{"name":"sub","arguments":"{\"n\":12345678901234567890}"}}]}`
	oneKey = "one"
)

func chatOf(tb testing.TB, tools string, messages ...string) *chatRequest {
	tb.Helper()
	body := `{"model":"m", "messages" : [ ` + strings.Join(messages, " ,\n ") + `]`
	if tools != "" {
		body += `,"tools":` + tools
	}
	q, err := parseChat(newScanner(), []byte(body+`,"seed":1}`))
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// answer keeps an answer to a request.
func (t *turns) answer(tb testing.TB, key string, q *chatRequest, text string, full bool) {
	tb.Helper()
	at, _ := t.splice(key, q)
	name := 0
	if strings.Contains(text, `"reasoning":`) {
		name, text = 1, strings.Replace(text, `"reasoning":`, `"reasoning_content":`, 1)
	}
	t.add(key, at, newSaid(text, name, full))
}

// spliced returns the messages that the engine receives, or nil if they are the client's.
func (t *turns) spliced(tb testing.TB, key string, q *chatRequest) []json.RawMessage {
	tb.Helper()
	_, edits := t.splice(key, q)
	if len(edits) == 0 {
		return nil
	}
	var before, after map[string]json.RawMessage
	if json.Unmarshal(q.body, &before) != nil || json.Unmarshal(bytes.Join(split(q.body, edits), nil), &after) != nil {
		tb.Fatalf("not JSON: %s", bytes.Join(split(q.body, edits), nil))
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(after["messages"], &messages); err != nil || len(messages) != len(q.messages) {
		tb.Fatalf("messages: %v, %s", err, after["messages"])
	}
	delete(before, "messages")
	delete(after, "messages")
	if !reflect.DeepEqual(before, after) {
		tb.Fatalf("other members changed: %s, %s", before, after)
	}
	return messages
}

// texts returns all texts of a message that continuity compares. It returns no role for a message
// that it cannot read.
func texts(tb testing.TB, raw string) (role, content, reasoning string, calls []string) {
	tb.Helper()
	type object = map[string]any // unlike a struct, it distinguishes upper and lower case
	var m object
	if json.Unmarshal([]byte(raw), &m) != nil {
		return "", "", "", nil
	}
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	content = text(m["content"])
	if parts, ok := m["content"].([]any); ok && len(parts) == 1 {
		part, _ := parts[0].(object)
		content = text(part["text"])
	}
	list, _ := m["tool_calls"].([]any)
	for _, v := range list {
		c, _ := v.(object)
		f, _ := c["function"].(object)
		calls = append(calls, text(c["id"]), text(f["name"]), text(f["arguments"]))
	}
	return text(m["role"]), content, text(m["reasoning"]) + text(m["reasoning_content"]), calls
}

// TestContinuitySplice proves that a recognized answer gets exactly the texts of the engine, whatever
// a client did to its form.
func TestContinuitySplice(t *testing.T) {
	t.Parallel()
	const plain = `{"role":"assistant","content":"I add.","tool_calls":null}`
	for _, c := range []struct{ name, answer, echo string }{
		{"all", answerText, echoText},
		{"reasoning missing", answerText, strings.Replace(echoText, `"reasoning_content":"Two and three.",`, "", 1)},
		{"reasoning null", answerText, strings.Replace(echoText, `"Two and three."`, "null", 1)},
		{"reasoning with the other name", answerText, strings.Replace(echoText, `reasoning_content`, "reasoning", 1)},
		{"the engine uses the other name", strings.Replace(answerText, `reasoning_content`, "reasoning", 1), echoText},
		{"one part", answerText, strings.Replace(echoText, `"I add."`, `[{"type":"text","text":"I add.","cache_control":{"type":"ephemeral"}}]`, 1)},
		{"other members", answerText, strings.Replace(echoText, `{"role"`, `{"name":"x","refusal":null,"role"`, 1)},
		{
			"content null", `{"role":"assistant","content":"\n","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
			`{"content":null,"role":"assistant","tool_calls":[{"id":"a","function":{"arguments":"{}","name":"f"}}]}`,
		},
		{
			"content missing", `{"role":"assistant","content":"\n","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{ }"}}]}`,
			`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		},
		{"text", `{"role":"assistant","content":"I add. "}`, plain},
		{"reasoning only white space", `{"role":"assistant","content":"I add.","reasoning_content":"\n\n"}`, plain},
	} {
		x := newTurns()
		x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText), c.answer, true)
		for _, more := range [][]string{nil, {toolText}, {toolText, c.echo}} {
			q := chatOf(t, toolsText, append([]string{systemText, userText, c.echo}, more...)...)
			got := x.spliced(t, oneKey, q)
			if got == nil {
				t.Errorf("%s: not spliced", c.name)
				continue
			}
			role, content, reasoning, calls := texts(t, string(got[2]))
			_, wantContent, wantReasoning, wantCalls := texts(t, c.answer)
			if role != "assistant" || content != wantContent || !slices.Equal(calls, wantCalls) {
				t.Errorf("%s: the engine gets %s, want %s", c.name, got[2], c.answer)
			}
			if n := strings.Count(reasoning, wantReasoning); wantReasoning != "" && (n == 0 || reasoning != strings.Repeat(wantReasoning, n)) {
				t.Errorf("%s: reasoning %q", c.name, reasoning)
			}
			if name := thoughtNames[b2i(strings.Contains(c.answer, `"reasoning":`))]; wantReasoning != "" && !strings.Contains(string(got[2]), `"`+name+`":`) {
				t.Errorf("%s: no member %s: %s", c.name, name, got[2])
			}
			for i, m := range got {
				if i != 2 && string(m) != string(q.messages[i]) {
					t.Errorf("%s: message %d changed: %s", c.name, i, m)
				}
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestContinuityTwice proves that a later answer is recognized although an earlier one was spliced
// and although the client writes the earlier one in yet another form.
func TestContinuityTwice(t *testing.T) {
	t.Parallel()
	x := newTurns()
	second := strings.ReplaceAll(answerText, "call-", "next-")
	x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText), answerText, true)
	x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText, echoText, toolText), second, true)
	other := strings.Replace(echoText, `"reasoning_content":"Two and three.",`, "", 1)
	got := x.spliced(t, oneKey, chatOf(t, toolsText, systemText, userText, other, toolText, strings.ReplaceAll(echoText, "call-", "next-")))
	if got == nil {
		t.Fatal("not spliced")
	}
	for i, want := range map[int]string{2: answerText, 4: second} {
		a, _ := parseTurn(string(got[i]))
		b, _ := parseTurn(want)
		if a.content.text != b.content.text || a.thoughts[0].text != b.thoughts[0].text || a.calls[0].arguments.text != b.calls[0].arguments.text {
			t.Errorf("message %d: %s, want %s", i, got[i], want)
		}
	}
}

// TestContinuityRestart proves that a new process splices nothing before it has seen an answer, and
// then recognizes an answer after messages that it has not seen as answers.
func TestContinuityRestart(t *testing.T) {
	t.Parallel()
	x := newTurns()
	third := strings.ReplaceAll(answerText, "call-", "next-")
	history := []string{systemText, userText, echoText, toolText}
	q := chatOf(t, toolsText, history...)
	if got := x.spliced(t, oneKey, q); got != nil {
		t.Fatalf("spliced: %s", got)
	}
	x.answer(t, oneKey, q, third, true)
	got := x.spliced(t, oneKey, chatOf(t, toolsText, append(history, strings.ReplaceAll(echoText, "call-", "next-"))...))
	if got == nil || string(got[2]) != echoText {
		t.Fatalf("the engine gets %s", got)
	}
}

// TestContinuityRefused proves that nothing else is spliced.
func TestContinuityRefused(t *testing.T) {
	t.Parallel()
	change := func(from, to string) string {
		if !strings.Contains(echoText, from) {
			t.Fatalf("%s is not in the message", from)
		}
		return strings.Replace(echoText, from, to, 1)
	}
	request := func(echo string) []string { return []string{systemText, userText, echo, toolText} }
	for _, c := range []struct {
		name, tools string
		key         string
		messages    []string
	}{
		{"other session", toolsText, "two", request(echoText)},
		{"other tools", `[]`, oneKey, request(echoText)},
		{"no tools", "", oneKey, request(echoText)},
		{"later position", toolsText, oneKey, []string{systemText, userText, userText, echoText}},
		{"earlier position", toolsText, oneKey, []string{systemText, echoText}},
		{"after itself", toolsText, oneKey, []string{systemText, userText, toolText, echoText}},
		{"other message before", toolsText, oneKey, []string{systemText, strings.Replace(userText, "Add", "Sub", 1), echoText}},
		{"space before", toolsText, oneKey, []string{systemText, strings.Replace(userText, "Add", " Add", 1), echoText}},
		{"content", toolsText, oneKey, request(change("I add.", "I add"))},
		{"content case", toolsText, oneKey, request(change("I add.", "I Add."))},
		{"content inner space", toolsText, oneKey, request(change("I add.", "I  add."))},
		{"content dropped", toolsText, oneKey, request(change(`"I add."`, `null`))},
		{"content in two parts", toolsText, oneKey, request(change(`"I add."`, `[{"type":"text","text":"I add."},{"type":"text","text":""}]`))},
		{"content is an image", toolsText, oneKey, request(change(`"I add."`, `[{"type":"image","text":"I add."}]`))},
		{"reasoning", toolsText, oneKey, request(change("Two and three.", "Two and three"))},
		{"both reasonings", toolsText, oneKey, request(change(`"role"`, `"reasoning":"x","role"`))},
		{"id", toolsText, oneKey, request(change("call-1", "call-3"))},
		{"ids swapped", toolsText, oneKey, request(strings.NewReplacer("call-1", "call-2", "call-2", "call-1").Replace(echoText))},
		{"id missing", toolsText, oneKey, request(change(`"id":"call-1",`, ""))},
		{"id null", toolsText, oneKey, request(change(`"call-1"`, "null"))},
		{"name", toolsText, oneKey, request(change(`"add"`, `"adD"`))},
		{"type", toolsText, oneKey, request(change(`"function","function"`, `"custom","function"`))},
		{"number", toolsText, oneKey, request(change(`\"b\":3`, `\"b\":3.0000001`))},
		{"sign", toolsText, oneKey, request(change(`\"b\":3`, `\"b\":-3`))},
		{"number as a string", toolsText, oneKey, request(change(`\"b\":3`, `\"b\":\"3\"`))},
		{"big number", toolsText, oneKey, request(change("12345678901234567890", "12345678901234567000"))},
		{"string", toolsText, oneKey, request(change(`\\u00e9`, `e\\u0301`))},
		{"null", toolsText, oneKey, request(change("null", "false"))},
		{"order of a list", toolsText, oneKey, request(change("[1,null]", "[null,1]"))},
		{"argument dropped", toolsText, oneKey, request(change(`,\"a\":2`, ""))},
		{"argument added", toolsText, oneKey, request(change(`\"a\":2`, `\"a\":2,\"z\":0`))},
		{"argument twice", toolsText, oneKey, request(change(`\"a\":2`, `\"a\":2,\"a\":2`))},
		{"arguments broken", toolsText, oneKey, request(change(`\"a\":2}`, `\"a\":2`))},
		{"arguments null", toolsText, oneKey, request(change(`"{\"n\":12345678901234567890}"`, "null"))},
		{"call dropped", toolsText, oneKey, request(echoText[:strings.Index(echoText, `,{"id":"call-2"`)] + "]}")},
		{"calls dropped", toolsText, oneKey, request(`{"role":"assistant","content":"I add."}`)},
		{"role", toolsText, oneKey, request(change("assistant", "user"))},
		{"two roles", toolsText, oneKey, request(change(`"role"`, `"role":"assistant","role"`))},
		{"function_call", toolsText, oneKey, request(change(`"role"`, `"function_call":{},"role"`))},
	} {
		x := newTurns()
		x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText), answerText, true)
		if x.spliced(t, oneKey, chatOf(t, toolsText, request(echoText)...)) == nil {
			t.Fatal("the unchanged message is not spliced")
		}
		if got := x.spliced(t, c.key, chatOf(t, c.tools, c.messages...)); got != nil {
			t.Errorf("%s: spliced: %s", c.name, got)
		}
	}
}

// TestContinuityAmbiguous proves that a message is not spliced if several answers could be it, or if
// an answer is unknown.
func TestContinuityAmbiguous(t *testing.T) {
	t.Parallel()
	said := func(thought, text string) string {
		return fmt.Sprintf(`{"role":"assistant","content":%q,"reasoning_content":%q}`, text, thought)
	}
	const echo = `{"role":"assistant","content":"Done."}`
	first := chatOf(t, "", systemText, userText)
	wild := `{"role":"assistant","content":"\ud83d"}`
	for _, c := range []struct {
		name    string
		answers []string
		cut     int // the answer with this number is cut, from 1
		echo    string
		want    string // the reasoning that the engine gets
	}{
		{"one", []string{said("a", "Done.")}, 0, echo, "a"},
		{"two chains", []string{said("a", "Done."), said("b", "Done!")}, 0, echo, "a"},
		{"two chains, same texts", []string{said("a", "Done."), said("a", "Done.")}, 0, echo, "a"},
		{"two chains, other reasoning", []string{said("a", "Done."), said("b", "Done.")}, 0, echo, ""},
		{"two chains, reasoning sent", []string{said("a\n", "Done."), said("b", "Done.")}, 0, said("a", "Done."), "a\n"},
		{"cut", []string{said("a", "Done.")}, 1, echo, ""},
		{"cut and repeated", []string{said("a", "Do"), said("b", "Done.")}, 1, echo, "b"},
		{"cut with the same text", []string{said("a", "Done."), said("b", "Done.")}, 1, echo, ""},
		{"unknown answer", []string{said("a", "Done."), wild}, 0, echo, ""},
		{"empty", []string{said("a", "")}, 0, `{"role":"assistant","content":""}`, ""},
	} {
		x := newTurns()
		var got []json.RawMessage
		for i, text := range c.answers {
			x.answer(t, oneKey, first, text, i+1 != c.cut)
			got = x.spliced(t, oneKey, chatOf(t, "", systemText, userText, c.echo, userText)) // the last one counts
		}
		reasoning := ""
		if got != nil {
			_, _, reasoning, _ = texts(t, string(got[2]))
		}
		if reasoning != c.want {
			t.Errorf("%s: the engine gets the reasoning %q, want %q", c.name, reasoning, c.want)
		}
	}
}

// TestContinuityMutations proves with random changes of single bytes that a message is spliced only
// if it means the same as the answer.
func TestContinuityMutations(t *testing.T) {
	t.Parallel()
	x := newTurns()
	x.answer(t, oneKey, chatOf(t, toolsText, systemText, userText), answerText, true)
	draw := rand.New(rand.NewPCG(1, 2))
	const letters = ` "\{}[]:,0123456789.eE-+nultrfadxI1`
	same, other := 0, 0
	for range 30_000 {
		echo := []byte(echoText)
		for range 1 + draw.IntN(2) {
			i := draw.IntN(len(echo))
			switch c := letters[draw.IntN(len(letters))]; draw.IntN(3) {
			case 0:
				echo[i] = c
			case 1:
				echo = slices.Insert(echo, i, c)
			default:
				echo = slices.Delete(echo, i, i+1)
			}
		}
		if !json.Valid(echo) {
			continue
		}
		got := x.spliced(t, oneKey, chatOf(t, toolsText, systemText, userText, string(echo), toolText))
		switch want := sameMeaning(t, string(echo), answerText); {
		case got != nil && !want:
			t.Fatalf("%s was spliced", echo)
		case got != nil:
			same++
		default:
			other++
		}
	}
	t.Logf("%d spliced, %d not", same, other)
	if same < 100 || other < 1000 {
		t.Errorf("the mutations are one-sided: %d spliced, %d not", same, other)
	}
}

// sameMeaning compares messages in another way than the proxy.
func sameMeaning(tb testing.TB, echo, answer string) bool {
	tb.Helper()
	role, content, reasoning, calls := texts(tb, echo)
	_, wantContent, wantReasoning, wantCalls := texts(tb, answer)
	reasoning = strings.TrimSpace(reasoning)
	if role != "assistant" || strings.TrimSpace(content) != strings.TrimSpace(wantContent) || reasoning != "" && reasoning != strings.TrimSpace(wantReasoning) || len(calls) != len(wantCalls) {
		return false
	}
	for i := range calls {
		if i%3 == 2 {
			var a, b any
			if decodeNumbers(calls[i], &a) != nil || decodeNumbers(wantCalls[i], &b) != nil || !reflect.DeepEqual(rational(a), rational(b)) {
				return false
			}
		} else if calls[i] != wantCalls[i] {
			return false
		}
	}
	return true
}

func decodeNumbers(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// rational replaces the numbers in a value with fractions.
func rational(v any) any {
	switch v := v.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok && len(v) < 40 {
			return r.String()
		}
	case []any:
		for i := range v {
			v[i] = rational(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = rational(v[k])
		}
	}
	return v
}

// TestContinuityMemory proves that the histories of sessions are bounded and freed.
func TestContinuityMemory(t *testing.T) {
	t.Parallel()
	x := newTurns()
	q := chatOf(t, "", systemText, userText)
	large := func(i int) string {
		return fmt.Sprintf(`{"role":"assistant","content":"Done %d.","reasoning_content":"%s"}`, i, strings.Repeat("x", 1<<20))
	}
	for i := range 6 {
		x.answer(t, oneKey, q, large(i), true)
	}
	if n := x.size(); n > maxHistory {
		t.Errorf("one session takes %d bytes", n)
	}
	if got := x.spliced(t, oneKey, chatOf(t, "", systemText, userText, `{"role":"assistant","content":"Done 0."}`)); got != nil {
		t.Error("a message was spliced although an answer at its place was not kept")
	}
	for i := range 300 {
		x.answer(t, fmt.Sprint(i), q, large(i), true)
	}
	if n := x.size(); n > maxHistories || n < maxHistories/2 || len(x.sessions) > 300 || x.sessions[oneKey] != nil {
		t.Errorf("%d sessions take %d bytes", len(x.sessions), n)
	}
	for key := range x.sessions {
		x.forget(key)
	}
	if n := x.size(); n != 0 || x.used.Len() != 0 {
		t.Errorf("no session takes %d bytes", n)
	}
}

// TestSameValue proves which arguments are the same.
func TestSameValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[true,null]}`, "{ \"b\" : [ true , null ],\n\"a\":1 }", true},
		{`{"a":"\u00e9\ud83d\ude00\/"}`, `{"a":"é😀/"}`, true},
		{`1e3`, `1000.0`, true},
		{`0.1`, `0.10000000000000001`, false},
		{`0`, `-0`, false},
		{`0.0`, `0e99`, true},
		{`1e99999999999999999999`, `1e99999999999999999998`, false},
		{`{"a":-1e99999999999,"b":1}`, `{"b":1,"a":-1e99999999999}`, true},
		{`-1e2147483648`, `-1e2147483647`, false},
		{`"1"`, `1`, false},
		{`{"a":{"b":1}}`, `{"a":{},"b":1}`, false},
		{`["a","b"]`, `["a\",\"b"]`, false},
		{`[[1],2]`, `[[1,2]]`, false},
		{`"\ud83d"`, `"\ud83e"`, false},
		{`{"a":1,"a":2}`, `{"a":2}`, false},
		{`{`, `{`, true},
		{``, `{}`, false},
		{`NaN`, `null`, false},
		{"\"\xff\"", "\"\xfe\"", false},
	} {
		if sameValue(c.a, c.b) != c.want || sameValue(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
}

// FuzzParseTurn proves that no message makes the parser panic, and that the positions are positions
// of JSON strings.
func FuzzParseTurn(f *testing.F) {
	for _, text := range []string{answerText, echoText, userText, `{"role":"assistant","content":[]}`, `{"role":"assistant","content":[{"type":"text","text":"x"}]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		own, ok := parseTurn(text)
		if !ok {
			return
		}
		pieces := []piece{own.content, own.thoughts[0], own.thoughts[1]}
		for _, c := range own.calls {
			pieces = append(pieces, c.arguments)
		}
		for _, p := range pieces {
			var v string
			if at := text[p.at.from:p.at.to]; p.at != (span{}) && at[0] != '[' && (json.Unmarshal([]byte(at), &v) != nil || v != p.text) {
				t.Errorf("%q: %q is not %q", text, at, p.text)
			}
		}
	})
}

// BenchmarkContinuity measures the decision about a request whose history consists of answers that
// call a tool, and of the tool's results of the same size. All answers are spliced.
// In "again", the proxy has seen the messages before, which is the case for all but the last answer of
// a conversation.
func BenchmarkContinuity(b *testing.B) {
	for _, size := range []int{16 << 10, 64 << 10, 256 << 10} {
		x := newTurns()
		text := strings.Repeat(`The quick brown fox \"jumps\" over the lazy dog.\n`, size/20/50)
		messages := []string{systemText, userText}
		for i := range 10 {
			call := func(space string) string {
				arguments, _ := json.Marshal(`{"path":` + space + `"a.go","text":` + space + `"` + text + `"}`)
				return fmt.Sprintf(`{"role":"assistant","content":"I write.","tool_calls":[{"id":"c%d","type":"function","function":{"name":"write","arguments":%s}}]}`, i, arguments)
			}
			x.answer(b, oneKey, chatOf(b, toolsText, messages...), call(" "), true)
			messages = append(messages, call(""), fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":"%s"}`, i, text))
		}
		q := chatOf(b, toolsText, messages...)
		if _, edits := x.splice(oneKey, q); len(edits) != 10 {
			b.Fatalf("%d edits", len(edits))
		}
		b.Run(fmt.Sprintf("body=%dKB", len(q.body)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(q.body)))
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range x.of(oneKey, false).answers {
					s.seen = nil
				}
				x.splice(oneKey, q)
			}
		})
		b.Run(fmt.Sprintf("again/body=%dKB", len(q.body)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(q.body)))
			b.ReportAllocs()
			for b.Loop() {
				x.splice(oneKey, q)
			}
		})
	}
}
