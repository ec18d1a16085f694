package decode

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A callSyntax is a way in which models write calls of tools.
type callSyntax struct {
	mark    string // every call contains it
	pattern *regexp.Regexp
	parse   func(text string) []Call // returns no call if the text is not valid
}

var callSyntaxes = []callSyntax{
	{"<tool_call>", regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`), taggedCall},                                                    // Qwen, GLM, Hermes
	{"<seed:tool_call>", regexp.MustCompile(`(?s)<seed:tool_call>(.*?)</seed:tool_call>`), taggedCall},                                     // Seed
	{"<function=", regexp.MustCompile(`(?s)(<function=[^>]+>.*?</function>)`), functionCalls},                                              // Llama, without tags around it
	{"<|python_tag|>", regexp.MustCompile(`(?s)<\|python_tag\|>(.*)$`), jsonCalls},                                                         // Llama 3
	{"[TOOL_CALLS]", regexp.MustCompile(`(?s)\[TOOL_CALLS\](.*)$`), mistralCalls},                                                          // Mistral
	{"<｜tool▁calls▁begin｜>", regexp.MustCompile(`(?s)<｜tool▁calls▁begin｜>(.*?)(?:<｜tool▁calls▁end｜>|$)`), deepseekCalls},                   // DeepSeek V3
	{"<|tool_calls_section_begin|>", regexp.MustCompile(`(?s)<\|tool_calls_section_begin\|>(.*?)<\|tool_calls_section_end\|>`), kimiCalls}, // Kimi K2
	{"<|tool_call|>", regexp.MustCompile(`(?s)<\|tool_call\|>(.*)$`), jsonCalls},                                                           // Granite 3
	{"<|START_ACTION|>", regexp.MustCompile(`(?s)<\|START_ACTION\|>(.*?)<\|END_ACTION\|>`), jsonCalls},                                     // Command R7B
	{"<|tool_call>", regexp.MustCompile(`(?s)<\|tool_call>(.*?)<tool_call\|>`), gemmaCall},                                                 // Gemma 4
	{"｜DSML｜", regexp.MustCompile(`(?s)<｜DSML｜function_calls>(.*?)</｜DSML｜function_calls>`), dsmlCalls},                                    // DeepSeek V3.2
}

// callBlocks matches the calls in the text of an answer, also if they are not valid or cut off.
var callBlocks = regexp.MustCompile(`(?s)<tool_call>.*?(?:</tool_call>|$)|<seed:tool_call>.*?(?:</seed:tool_call>|$)` +
	`|<｜tool▁calls▁begin｜>.*?(?:<｜tool▁calls▁end｜>|$)|<\|tool_calls_section_begin\|>.*?(?:<\|tool_calls_section_end\|>|$)` +
	`|<\|tool_call>.*?(?:<tool_call\|>|$)|<｜DSML｜function_calls>.*?(?:</｜DSML｜function_calls>|$)` +
	`|<\|START_ACTION\|>.*?(?:<\|END_ACTION\|>|$)|(?:\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call\|>).*$`)

// taggedCall parses the text between <tool_call> and </tool_call>: JSON, functions, or the name and the
// arguments of GLM.
func taggedCall(text string) []Call {
	if calls := jsonCalls(text); calls != nil {
		return calls
	}
	if calls := functionCalls(text); calls != nil {
		return calls
	}
	name, rest, ok := strings.Cut(text, "<arg_key>")
	if ok {
		rest = "<arg_key>" + rest
	}
	name = strings.TrimSpace(name)
	if strings.ContainsAny(name, "{}<> \n") {
		return nil
	}
	return one(name, glmArgument, rest)
}

var (
	glmArgument  = regexp.MustCompile(`(?s)<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>`)
	function     = regexp.MustCompile(`(?s)<function=([^>\n]+)>(.*?)</function>`)
	parameter    = regexp.MustCompile(`(?s)<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>`)
	mistralCall  = regexp.MustCompile(`(?s)^([^\[\]{}\s]+)(?:\[CALL_ID\]([^\[]*))?(?:\[ARGS\])?(\{.*\})$`)
	deepseekCall = regexp.MustCompile(`(?s)<｜tool▁call▁begin｜>(.*?)<｜tool▁call▁end｜>`)
	deepseekV3   = regexp.MustCompile("(?s)^function<｜tool▁sep｜>([^\n]+)\n```json\n(.*)\n```$")
	gemmaText    = regexp.MustCompile(`(?s)^call:([^{}\s]+)(\{.*\})$`)
	gemmaKey     = regexp.MustCompile(`([{,]\s*)([^{}\[\],:"\s]+):`)
	dsmlInvoke   = regexp.MustCompile(`(?s)<｜DSML｜invoke name="([^"]+)">(.*?)</｜DSML｜invoke>`)
	dsmlArgument = regexp.MustCompile(`(?s)<｜DSML｜parameter name="([^"]+)" string="(true|false)">(.*?)</｜DSML｜parameter>`)
	kimiCall     = regexp.MustCompile(`(?s)<\|tool_call_begin\|>\s*((?:functions\.)?(.*?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>`)
)

// functionCalls parses <function=add><parameter=a>2</parameter></function>. The function can also contain a
// JSON object.
func functionCalls(text string) []Call {
	return each(function, text, func(f []string) []Call {
		name := strings.TrimSpace(f[1])
		if strings.TrimSpace(f[2]) != "" {
			if call := named(name, f[2]); call != nil {
				return call
			}
		}
		return one(name, parameter, f[2])
	})
}

// each parses every match of the pattern. It returns no call if a match is not valid, or if the text contains
// more than matches and white space.
func each(pattern *regexp.Regexp, text string, parse func(match []string) []Call) (calls []Call) {
	if !covers(pattern, text) {
		return nil
	}
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		call := parse(match)
		if call == nil {
			return nil
		}
		calls = append(calls, call...)
	}
	return calls
}

// named returns a call with a name and a JSON object, or no call if one of them is not valid.
func named(name, raw string) []Call {
	arguments, ok := object(json.RawMessage(raw))
	if !ok || name == "" {
		return nil
	}
	return []Call{{Name: name, Arguments: arguments}}
}

// withID adds the ID that the model itself wrote to the calls.
func withID(calls []Call, id string) []Call {
	for i := range calls {
		calls[i].ID = strings.TrimSpace(id)
	}
	return calls
}

// covers reports whether matches of the pattern and white space are all of the text.
func covers(pattern *regexp.Regexp, text string) bool {
	return strings.TrimSpace(pattern.ReplaceAllString(text, "")) == ""
}

// one returns a call whose arguments are written as text. A value that is JSON, but not a JSON string, is that
// JSON value, as templates write it. Any other value is a string.
func one(name string, argument *regexp.Regexp, text string) []Call {
	if !covers(argument, text) {
		return nil
	}
	var values []argumentText
	for _, a := range argument.FindAllStringSubmatch(text, -1) {
		values = append(values, argumentText{strings.TrimSpace(a[1]), a[2]})
	}
	calls := named(name, joined(values, nil)) // not valid JSON if a name occurs twice
	for i := range calls {
		calls[i].texts = values
	}
	return calls
}

// An argumentText is an argument whose value the model wrote as text.
type argumentText struct{ name, text string }

// joined returns the arguments as a JSON object. isText, which can be nil, reports whether the value of an
// argument is always a string.
func joined(values []argumentText, isText func(name string) bool) string {
	b := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(strictjson.AppendText(b, v.name), ": "...)
		value := strings.TrimSpace(v.text)
		if valid(value) && !strings.HasPrefix(value, `"`) && (isText == nil || !isText(v.name)) {
			b = append(b, value...)
		} else {
			b = strictjson.AppendText(b, v.text)
		}
	}
	return string(append(b, '}'))
}

// jsonCalls parses an object, a list of objects, or objects with semicolons between them.
func jsonCalls(text string) (calls []Call) {
	text = strings.TrimSpace(text)
	var list []json.RawMessage
	switch {
	case strings.HasPrefix(text, "["):
		if !valid(text) || json.Unmarshal([]byte(text), &list) != nil {
			return nil
		}
	case valid(text):
		list = []json.RawMessage{json.RawMessage(text)}
	default:
		for part := range strings.SplitSeq(text, ";") {
			list = append(list, json.RawMessage(strings.TrimSpace(part)))
		}
	}
	for _, raw := range list {
		name, arguments, ok := parseCall(string(raw))
		if !ok {
			return nil
		}
		calls = append(calls, Call{Name: name, Arguments: arguments})
	}
	return calls
}

// bareCall parses an answer that is only a call such as {"name": "add", "parameters": {"a": 1}}.
func bareCall(text string) []Call {
	var members map[string]json.RawMessage
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, "{") || !valid(text) || json.Unmarshal([]byte(text), &members) != nil {
		return nil
	}
	if string(members["type"]) == `"function"` {
		delete(members, "type")
	}
	if len(members) != 2 || members["parameters"] == nil || members["name"] == nil {
		return nil
	}
	return jsonCalls(text)
}

// mistralCalls parses a list, or add{"a": 1} and add[ARGS]{"a": 1} with [TOOL_CALLS] between the calls.
func mistralCalls(text string) (calls []Call) {
	if all := jsonCalls(text); all != nil {
		return all
	}
	for part := range strings.SplitSeq(text, "[TOOL_CALLS]") {
		m := mistralCall.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil
		}
		call := withID(named(m[1], m[3]), m[2])
		if call == nil {
			return nil
		}
		calls = append(calls, call...)
	}
	return calls
}

// deepseekCalls parses the calls of DeepSeek V3 and R1, with a code block, and of V3.1, without it.
func deepseekCalls(text string) []Call {
	return each(deepseekCall, text, func(f []string) []Call {
		if v3 := deepseekV3.FindStringSubmatch(strings.TrimSpace(f[1])); v3 != nil {
			return named(strings.TrimSpace(v3[1]), v3[2])
		}
		name, raw, ok := strings.Cut(f[1], "<｜tool▁sep｜>")
		if !ok {
			return nil
		}
		return named(strings.TrimSpace(name), raw)
	})
}

// kimiCalls parses the calls of Kimi K2: functions.add:0 is the first call, of the tool add.
func kimiCalls(text string) []Call {
	return each(kimiCall, text, func(f []string) []Call { return withID(named(f[2], f[3]), f[1]) })
}

// gemmaCall parses the call of Gemma 4: call:add{a:1,b:<|"|>x<|"|>}.
func gemmaCall(text string) []Call {
	m := gemmaText.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return nil
	}
	var b []byte
	for i, part := range strings.Split(m[2], `<|"|>`) {
		if i%2 == 1 {
			b = strictjson.AppendText(b, part)
		} else {
			b = append(b, gemmaKey.ReplaceAllString(part, `$1"$2":`)...)
		}
	}
	return named(m[1], string(b))
}

// dsmlCalls parses the calls of DeepSeek V3.2. They say whether a value is a string or JSON.
func dsmlCalls(text string) []Call {
	return each(dsmlInvoke, text, func(f []string) []Call {
		if !covers(dsmlArgument, f[2]) {
			return nil
		}
		b := []byte{'{'}
		for i, a := range dsmlArgument.FindAllStringSubmatch(f[2], -1) {
			if i > 0 {
				b = append(b, ", "...)
			}
			if b = append(strictjson.AppendText(b, a[1]), ": "...); a[2] == "true" {
				b = strictjson.AppendText(b, a[3])
			} else {
				b = append(b, a[3]...)
			}
		}
		return named(f[1], string(append(b, '}')))
	})
}

// parseCall parses a call such as {"name": "add", "arguments": {"a": 1}}. The members have other names in Llama
// and in Command R.
func parseCall(text string) (name, arguments string, ok bool) {
	var members map[string]json.RawMessage
	if !valid(text) || json.Unmarshal([]byte(text), &members) != nil {
		return "", "", false
	}
	first := func(names ...string) json.RawMessage {
		for _, name := range names {
			if raw, ok := members[name]; ok {
				return raw
			}
		}
		return nil
	}
	if json.Unmarshal(first("name", "tool_name"), &name) != nil || name == "" {
		return "", "", false
	}
	arguments, ok = object(first("arguments", "parameters"))
	return name, arguments, ok
}

// valid reports whether the text is JSON that all parsers read in the same way.
func valid(text string) bool {
	return strictjson.Check(text, strictjson.Options{}) == nil && json.Valid([]byte(text))
}

// object returns a JSON object. The raw value can also be a string that contains the object, or be missing.
func object(raw json.RawMessage) (string, bool) {
	text := strings.TrimSpace(string(raw))
	if strings.HasPrefix(text, `"`) {
		if json.Unmarshal(raw, &text) != nil {
			return "", false
		}
		text = strings.TrimSpace(text)
	}
	if text == "" {
		return "{}", true
	}
	if !strings.HasPrefix(text, "{") || !valid(text) {
		return "", false
	}
	return text, true
}
