package responses_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

// An example is a request without and with a member or a value of a table. In with, % is the member and
// its value, or the word.
type example struct{ without, with string }

// object returns the example of a table about the members of an object. The place is a request in which
// % is the object.
func object(place, members string) example {
	return example{
		strings.Replace(place, "%", "{"+members+"}", 1),
		strings.Replace(place, "%", "{"+members+",%}", 1),
	}
}

const (
	inRequest  = `{"model":"m",%}`
	inInput    = `{"model":"m","input":[{"role":"user","content":"a"},%]}`
	inTools    = `{"model":"m","input":"a","tools":[%]}`
	plain      = `{"model":"m","input":"a"}`
	callBase   = `"type":"function_call","call_id":"c","name":"f","arguments":"{}"`
	customBase = `"type":"custom_tool_call","call_id":"c","name":"f","input":"i"`
)

// examples contains an example for each table.
var examples = map[string]example{
	"request":              {plain, `{"input":"a",%}`},
	"truncation":           {plain, `{"model":"m","input":"a","truncation":"%"}`},
	"background":           {plain, `{"model":"m","input":"a","background":%}`},
	"include":              {plain, `{"model":"m","input":"a","include":["%"]}`},
	"prompt_cache_options": object(`{"model":"m","input":"a","prompt_cache_options":%}`, `"ttl":"30m"`),
	"reasoning":            object(`{"model":"m","input":"a","reasoning":%}`, `"unused":null`),
	"reasoning: context":   {plain, `{"model":"m","input":"a","reasoning":{"context":"%"}}`},
	"reasoning: mode":      {plain, `{"model":"m","input":"a","reasoning":{"mode":"%"}}`},
	"text":                 object(`{"model":"m","input":"a","text":%}`, `"unused":null`),
	"text: format: type":   {plain, `{"model":"m","input":"a","text":{"format":{"type":"%","name":"n"}}}`},
	"tool_choice, or its type": {
		`{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}`,
		`{"model":"m","input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"%","name":"f"}}`,
	},
	"tool_choice of type function or custom": object(`{"model":"m","input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":%}`, `"type":"function","name":"f"`),
	"text: format of type json_schema":       object(`{"model":"m","input":"a","text":{"format":%}}`, `"type":"json_schema","name":"n"`),
	"input item: type":                       {inInput, `{"model":"m","input":[{"role":"user","content":"a"},{"type":"%"}]}`},
	"input item of type message":             object(inInput, `"role":"assistant","content":"b"`),
	"input item of type message: role": {
		`{"model":"m","input":[{"role":"user","content":"a"}]}`,
		`{"model":"m","input":[{"role":"user","content":"a"},{"role":"%","content":"b"}]}`,
	},
	"input item of type function_call":                                   object(inInput, callBase),
	"input item of type custom_tool_call":                                object(inInput, customBase),
	"input item of type function_call_output or custom_tool_call_output": object(inInput, `"type":"function_call_output","call_id":"c","output":"o"`),
	"input item of type reasoning":                                       object(inInput, `"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]`),
	"caller: type":                                                       {`{"model":"m","input":[{` + callBase + `}]}`, `{"model":"m","input":[{` + callBase + `,"caller":{"type":"%"}}]}`},
	"content part: type":                                                 {`{"model":"m","input":[{"role":"assistant","content":[]}]}`, `{"model":"m","input":[{"role":"assistant","content":[{"type":"%","text":"a"}]}]}`},
	"content part with a text":                                           object(`{"model":"m","input":[{"role":"user","content":[%]}]}`, `"type":"input_text","text":"a"`),
	"content part of type input_image":                                   object(`{"model":"m","input":[{"role":"user","content":[%]}]}`, `"type":"input_image","image_url":"data:a"`),
	"tool: type":                                                         {`{"model":"m","input":"a","tools":[]}`, `{"model":"m","input":"a","tools":[{"type":"%","name":"f"}]}`},
	"tool of type function":                                              object(inTools, `"type":"function","name":"f"`),
	"defer_loading":                                                      {`{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}`, `{"model":"m","input":"a","tools":[{"type":"function","name":"f","defer_loading":%}]}`},
	"allowed_callers":                                                    {`{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}`, `{"model":"m","input":"a","tools":[{"type":"function","name":"f","allowed_callers":["%"]}]}`},
	"tool of type custom":                                                object(inTools, `"type":"custom","name":"f"`),
	"tool of type custom: format: type": {
		`{"model":"m","input":"a","tools":[{"type":"custom","name":"f"}]}`,
		`{"model":"m","input":"a","tools":[{"type":"custom","name":"f","format":{"type":"%","definition":"d"}}]}`,
	},
	"tool of type namespace": object(inTools, `"type":"namespace","tools":[{"type":"function","name":"f"}],"name":"n"`),
}

// values contains the values of members, and whole requests for words that need other members. A member
// that is not listed has the value "x".
var values = map[string]string{
	"request/input":                              `"b"`,
	"request/tools":                              `[{"type":"function","name":"f"}]`,
	"request/stream":                             `true`,
	"request/reasoning":                          `{"effort":"low"}`,
	"request/text":                               `{"verbosity":"low"}`,
	"request/truncation":                         `"disabled"`,
	"request/background":                         `false`,
	"request/include":                            `["reasoning.encrypted_content"]`,
	"request/prompt_cache_options":               `{"ttl":"30m"}`,
	"request/tool_choice":                        `"auto","tools":[{"type":"function","name":"f"}]`,
	"request/parallel_tool_calls":                `true,"tools":[{"type":"function","name":"f"}]`,
	"reasoning/context":                          `"auto"`,
	"reasoning/mode":                             `"standard"`,
	"input item of type reasoning/summary":       `[{"type":"summary_text","text":"t"}]`,
	"tool of type namespace/tools":               `[{"type":"function","name":"g"}]`,
	"input item of type message/role":            `"user"`,
	"input item of type function_call/caller":    `{"type":"direct"}`,
	"input item of type custom_tool_call/caller": `{"type":"direct"}`,
	"input item of type function_call_output or custom_tool_call_output/caller": `{"type":"direct"}`,
	"text/format":                              `{"type":"json_object"}`,
	"tool_choice, or its type/auto":            `{"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":"auto"}`,
	"tool_choice, or its type/none":            `{"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":"none"}`,
	"tool_choice, or its type/required":        `{"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":"required"}`,
	"input item: type/message":                 `{"input":[{"type":"message","role":"user","content":"b"}]}`,
	"input item: type/function_call":           `{"input":[{` + callBase + `}]}`,
	"input item: type/custom_tool_call":        `{"input":[{` + customBase + `}]}`,
	"input item: type/function_call_output":    `{"input":[{"type":"function_call_output","call_id":"c","output":"o"}]}`,
	"input item: type/custom_tool_call_output": `{"input":[{"type":"custom_tool_call_output","call_id":"c","output":"o"}]}`,
	"input item: type/reasoning":               `{"input":[{"type":"reasoning","summary":[]}]}`,
	"input item of type reasoning/content":     `[{"type":"reasoning_text","text":"r"}]`,
	"content part: type/refusal":               `{"input":[{"role":"assistant","content":[{"type":"refusal","refusal":"r"}]}]}`,
	"content part: type/input_image":           `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}]}`,
	"tool: type/namespace":                     `{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`,
	"tool of type function/defer_loading":      `false`,
	"tool of type custom/defer_loading":        `false`,
	"tool of type function/allowed_callers":    `["direct"]`,
	"tool of type custom/allowed_callers":      `["direct"]`,
	"tool of type custom/format":               `{"type":"grammar","definition":"d"}`,
}

// inert contains the translated members whose value alone does not change the chat completion, or that
// the example already has.
var inert = []string{"request/stream", "id", "encrypted_content", "refusal"}

// TestTables checks each rule.
func TestTables(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, table := range (responses.Dialect{}).Tables() {
		ex, has := examples[table.Title]
		if !has {
			t.Errorf("no example for %q", table.Title)
			continue
		}
		for _, rule := range table.Rules {
			key := table.Title + "/" + rule.Member
			if seen[key] || rule.Note == "" {
				t.Errorf("%s: two rules, or no note", key)
			}
			seen[key] = true
			if rule.Member != "type" { // each example has a type
				testRule(t, key, ex, rule)
			}
		}
		if e := failure(t, strings.Replace(fill(ex, "never", table.Title+"/never"), ":never", `:"never"`, 1)); e.Code != "unsupported" || !strings.Contains(e.Message, "never") || !strings.Contains(e.Message, "unknown") {
			t.Errorf("%s: an unknown member: %v", table.Title, e)
		}
	}
	for _, key := range slices.Collect(maps.Keys(values)) {
		if !seen[key] {
			t.Errorf("no rule for %s", key)
		}
	}
}

// fill returns the request of an example with a member or a word.
func fill(ex example, member, key string) string {
	value := values[key]
	switch {
	case strings.HasPrefix(value, `{"input"`):
		return value
	case strings.HasSuffix(ex.with, `"%"}`), strings.Contains(ex.with, `"%"`), strings.Contains(ex.with, `:%}`):
		return strings.Replace(ex.with, "%", member, 1)
	}
	name := `"` + member + `":`
	with := ex.with
	if i := strings.LastIndex(with, name); i > strings.LastIndex(with, "},{") { // the example has the member with another value
		end := i + strings.IndexAny(with[i:], ",")
		if strings.HasPrefix(with[i+len(name):], "[") {
			end = i + strings.Index(with[i:], "]") + 1
		}
		with = with[:i] + with[end+1:]
	}
	return strings.Replace(with, "%", name+cmp.Or(value, `"x"`), 1)
}

func testRule(t *testing.T, key string, ex example, rule translate.Rule) {
	t.Helper()
	body := fill(ex, rule.Member, key)
	if rule.Action == translate.Refused {
		if e := failure(t, body); e.Code != "unsupported" || !strings.Contains(e.Message, rule.Note) {
			t.Errorf("%s: %s: %v, want %s", key, body, e, rule.Note)
		}
		return
	}
	without, with := string(request(t, strings.Replace(ex.without, "%", `{"role":"user","content":"b"}`, 1)).Chat), string(request(t, body).Chat)
	without = strings.Replace(without, `,"model":"m"`, "", 1)
	with = strings.Replace(with, `,"model":"m"`, "", 1)
	_, member, _ := strings.Cut(key, "/")
	switch {
	case slices.Contains(inert, key) || slices.Contains(inert, member):
	case rule.Action == translate.Dropped && with != without:
		t.Errorf("%s is dropped: %s gives %s, want %s", key, body, with, without)
	case rule.Action != translate.Dropped && with == without:
		t.Errorf("%s is %s: %s gives %s, as without it", key, rule.Action, body, with)
	case rule.Action == translate.Passed && !strings.Contains(with, `"`+rule.Member+`"`):
		t.Errorf("%s is passed: %s gives %s", key, body, with)
	}
}
