package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// A talk is a random conversation. The engine's answers are known before it begins.
type talk struct {
	body    map[string]any // the settings of the client
	turns   [][]any        // the user's messages, in the form of the API
	result  string         // of each tool call
	answers []sdkAnswer    // one for each turn
	said    []talkMessage  // all messages that the engine must receive, except for its own first message
}

// A talkMessage is a message of a chat completion, with its texts decoded.
type talkMessage struct {
	Role      string
	Content   string // null is ""
	Reasoning string `json:"reasoning_content"`
	Call      string `json:"tool_call_id"`
	Calls     []struct {
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// message returns the message that the engine sends.
func (a sdkAnswer) message() (m talkMessage) {
	m.Role, m.Content, m.Reasoning = "assistant", a.text, a.reasoning
	for i, arguments := range a.calls {
		c := struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		}{ID: a.id(i), Type: "function"}
		c.Function.Name, c.Function.Arguments = a.tool(i), arguments
		m.Calls = append(m.Calls, c)
	}
	return m
}

// A talkTool is a tool that a conversation has: the name for the engine, and the tool in the API.
type talkTool struct {
	name   string
	custom bool // the arguments are an object with the text input
	tool   any
}

func talkTools(api string) []talkTool {
	schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}
	function := map[string]any{"type": "function", "name": "weather", "description": "Wie ist das Wetter?", "parameters": schema, "strict": false}
	if api == "messages" {
		return []talkTool{
			{name: "weather", tool: map[string]any{"name": "weather", "description": "Wie ist das Wetter?", "input_schema": schema}},
			{name: "now", tool: map[string]any{"type": "custom", "name": "now", "input_schema": map[string]any{"type": "object"}}},
		}
	}
	spawn := map[string]any{"type": "function", "name": "spawn", "description": "", "parameters": schema, "strict": false}
	return []talkTool{
		{name: "weather", tool: function},
		{"patch", true, map[string]any{"type": "custom", "name": "patch", "description": "Apply a patch.", "format": map[string]any{"type": "text"}}},
		{name: "agents__spawn", tool: map[string]any{"type": "namespace", "name": "agents", "description": "Agents.", "tools": []any{spawn}}},
	}
}

// randomTalk returns a conversation in an API. The first user message has no text, because begin adds
// it.
func randomTalk(r *rand.Rand, api string, number int) *talk {
	t := &talk{body: map[string]any{"model": "policy"}, result: randomText(r, 50)}
	tools := talkTools(api)
	var listed []any
	for _, tool := range tools {
		listed = append(listed, tool.tool)
	}
	t.body["tools"] = listed
	if system := randomText(r, 100); r.IntN(2) == 0 && system != "" {
		t.body[map[string]string{"responses": "instructions", "messages": "system"}[api]] = system
		t.said = append(t.said, talkMessage{Role: "system", Content: system})
	}
	if api == "messages" {
		t.body["max_tokens"] = 1000
		if r.IntN(2) == 0 {
			t.body["thinking"] = map[string]any{"type": "adaptive"}
		}
	} else {
		t.body["store"], t.body["include"] = false, []any{"reasoning.encrypted_content"}
	}
	last := 1 + r.IntN(5)
	for i := range last + 1 {
		said := []any{}
		if i == 0 {
			said = append(said, map[string]any{"role": "user"}) // begin adds the text
			t.said = append(t.said, talkMessage{Role: "user"})
		}
		for range r.IntN(2 + i) { // none, one or several
			text := "x" + randomText(r, 100)
			t.said = append(t.said, talkMessage{Role: "user", Content: text})
			said = append(said, map[string]any{"role": "user", "content": userContent(r, api, text)})
		}
		if i > 0 && len(t.answers[i-1].calls) == 0 && len(said) == 0 {
			t.said = append(t.said, talkMessage{Role: "user", Content: "Continue."})
			said = append(said, map[string]any{"role": "user", "content": "Continue."})
		}
		t.turns = append(t.turns, said)
		a := talkAnswer(r, tools, fmt.Sprintf("%d_%d_", number, i))
		t.answers = append(t.answers, a)
		t.said = append(t.said, a.message())
		for k := range a.calls {
			t.said = append(t.said, talkMessage{Role: "tool", Call: a.id(k), Content: t.result})
		}
	}
	return t
}

// userContent returns a text as the content of a user message.
func userContent(r *rand.Rand, api, text string) any {
	switch kind := map[string]string{"responses": "input_text", "messages": "text"}[api]; r.IntN(2) {
	case 0:
		return []any{map[string]any{"type": kind, "text": text}}
	default:
		return text
	}
}

// talkAnswer returns a random answer. It can be empty.
func talkAnswer(r *rand.Rand, tools []talkTool, number string) sdkAnswer {
	a := sdkAnswer{name: number, number: number, finish: "stop", tools: []string{}}
	if r.IntN(4) > 0 {
		a.text = randomText(r, 100)
	}
	if r.IntN(2) == 0 {
		a.reasoning = randomText(r, 100)
	}
	for range max(0, r.IntN(5)-1) {
		tool := tools[r.IntN(len(tools))]
		a.tools = append(a.tools, tool.name)
		if tool.custom && r.IntN(6) > 0 {
			a.calls = append(a.calls, `{"input":`+[]string{" ", ""}[r.IntN(2)]+quoted(randomText(r, 100))+`}`)
			continue
		}
		a.calls = append(a.calls, talkArguments(r))
	}
	if len(a.calls) > 0 {
		a.finish = "tool_calls"
	}
	if r.IntN(10) == 0 {
		a.finish = "length"
	}
	return a
}

// talkArguments returns arguments whose numbers do not lose digits in JavaScript. Some are not JSON.
func talkArguments(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0:
		return []string{"", `{"city":"Ber`, "[1]", `{"a":1,"a":2}`, `{"_arguments":"x"}`, "null", `"text"`}[r.IntN(7)]
	case 1:
		return "{}"
	}
	space := func() string { return []string{"", " ", "\n  "}[r.IntN(3)] }
	var b strings.Builder
	b.WriteString("{" + space())
	for i := range 1 + r.IntN(3) {
		if i > 0 {
			b.WriteString("," + space())
		}
		b.WriteString(quoted(strconv.Itoa(i)+randomText(r, 10)) + ":" + space())
		b.WriteString([]string{"0", "1.0", "-2.50", "1e3", "true", "null", "[]", `[{"ä": [1, 2]}]`, `"\u00fc\ud83d\ude00\/"`, quoted(randomText(r, 60))}[r.IntN(10)])
	}
	b.WriteString(space() + "}")
	return b.String()
}

// A talkEngine answers conversations. The first word of the first user message is the number of the
// conversation. The number of assistant messages is the number of the turn.
type talkEngine struct {
	sdkEngine
	talks []*talk
	mu    sync.Mutex
	got   map[string][][]json.RawMessage // the messages of each request, by the first text of the user
}

func (e *talkEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked struct {
		Messages []json.RawMessage
		Stream   bool
	}
	_ = json.Unmarshal(body, &asked)
	name, turn := "", 0
	for _, m := range asked.Messages {
		var one talkMessage
		switch _ = json.Unmarshal(m, &one); {
		case one.Role == "user" && name == "":
			name = one.Content
		case one.Role == "assistant":
			turn++
		}
	}
	number, _, talks := strings.Cut(name, " talk")
	i, err := strconv.Atoi(number)
	if r.Method == http.MethodGet || !talks || err != nil {
		e.sdkEngine.ServeHTTP(w, r)
		return
	}
	e.mu.Lock()
	e.got[name] = append(e.got[name], asked.Messages)
	e.mu.Unlock()
	if t := e.talks[i]; turn < len(t.answers) && !asked.Stream {
		t.answers[turn].whole(w, true, true)
		return
	}
	http.Error(w, `{"error":{"message":"the request is not the next one of its conversation"}}`, http.StatusInternalServerError)
}
