package messages_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
)

// A place is where the objects of a table occur in a request. The body contains a %s for an object. If
// selects is set, the table is about the values of this member.
type place struct{ body, object, selects string }

const (
	base      = `{"max_tokens":1,"messages":[{"role":"user","content":"hi"}],"model":"m"}`
	inBase    = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}],%s}`
	inUser    = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},%s]}]}`
	inAnswer  = `{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[%s]},{"role":"user","content":"hi"}]}`
	inMessage = `{"model":"m","max_tokens":1,"messages":[%s,{"role":"user","content":"hi"}]}`
)

var (
	inSystem = fmt.Sprintf(inBase, `"system":[%s]`)
	inResult = fmt.Sprintf(inUser, `{"type":"tool_result","tool_use_id":"1","content":[%s]}`)
	inSource = fmt.Sprintf(inUser, `{"type":"image","source":%s}`)
	inTools  = fmt.Sprintf(inBase, `"tools":[%s]`)
	inEdits  = fmt.Sprintf(inBase, `"context_management":{"edits":[%s]}`)
)

const (
	textBlock  = `{"type":"text","text":"t"}`
	imageBlock = `{"type":"image","source":{"type":"url","url":"http://x"}}`
	toolUse    = `{"type":"tool_use","id":"1","name":"f","input":{}}`
	toolResult = `{"type":"tool_result","tool_use_id":"1"}`
	dataSource = `{"type":"base64","media_type":"image/png","data":"AA"}`
	plainTool  = `{"name":"f","input_schema":{}}`
	format     = `{"type":"json_schema","schema":{}}`
	keepAll    = `{"type":"clear_thinking_20251015","keep":"all"}`
)

var places = map[string]place{
	"request":           {"%s", base, ""},
	"message":           {inMessage, `{"role":"user","content":"a"}`, ""},
	"role of a message": {inMessage, `{"role":"user","content":"a"}`, "role"},
	"type of a content block in a system message":     {inSystem, textBlock, "type"},
	"type of a content block in a user message":       {inUser, textBlock, "type"},
	"type of a content block in a tool result":        {inResult, textBlock, "type"},
	"type of a content block in an assistant message": {inAnswer, textBlock, "type"},
	"text block":                     {inUser, textBlock, ""},
	"image block":                    {inUser, imageBlock, ""},
	"source of an image":             {inSource, dataSource, ""},
	"type of the source of an image": {inSource, dataSource, "type"},
	"thinking block":                 {inAnswer, `{"type":"thinking","thinking":"t"}`, ""},
	"tool_use block":                 {inAnswer, toolUse, ""},
	"type of the caller of a tool":   {fmt.Sprintf(inAnswer, `{"type":"tool_use","id":"1","name":"f","input":{},"caller":%s}`), "null", "type"},
	"tool_result block":              {inUser, toolResult, ""},
	"tool":                           {inTools, plainTool, ""},
	"type of a tool":                 {inTools, plainTool, "type"},
	"tool_choice":                    {fmt.Sprintf(inBase, `"tool_choice":%s`), `{"type":"auto"}`, ""},
	"type of tool_choice":            {fmt.Sprintf(inBase, `"tool_choice":%s`), "null", "type"},
	"thinking":                       {fmt.Sprintf(inBase, `"thinking":%s`), `{"type":"enabled"}`, ""},
	"type of thinking":               {fmt.Sprintf(inBase, `"thinking":%s`), "null", "type"},
	"output_config":                  {fmt.Sprintf(inBase, `"output_config":%s`), "{}", ""},
	"format in output_config":        {fmt.Sprintf(inBase, `"output_config":{"format":%s}`), format, ""},
	"type of a format":               {fmt.Sprintf(inBase, `"output_config":{"format":%s}`), format, "type"},
	"context_management":             {fmt.Sprintf(inBase, `"context_management":%s`), "{}", ""},
	"type of an edit":                {inEdits, keepAll, "type"},
	"clear_thinking_20251015":        {inEdits, keepAll, ""},
	"keep":                           {fmt.Sprintf(inEdits, `{"type":"clear_thinking_20251015","keep":%s}`), `"all"`, "type"},
}

// samples contains a value for each rule that passes or translates a member, and a part of the chat
// completion that results from it. For a table about the values of a member, it contains the object.
var samples = map[string][2]string{
	"request/model":              {`"n"`, `"model":"n"`},
	"request/messages":           {`[{"role":"user","content":"new"}]`, `"messages":[{"role":"user","content":"new"}]`},
	"request/system":             {`"s"`, `[{"role":"system","content":"s"},`},
	"request/max_tokens":         {`7`, `"max_tokens":7`},
	"request/temperature":        {`0.50`, `"temperature":0.50`},
	"request/top_p":              {`0.9`, `"top_p":0.9`},
	"request/top_k":              {`3`, `"top_k":3`},
	"request/stop_sequences":     {`["a"]`, `"stop":["a"]`},
	"request/stream":             {`true`, `"hi"}],"model":"m"}`},
	"request/tools":              {`[` + plainTool + `]`, `"tools":[{"type":"function"`},
	"request/tool_choice":        {`{"type":"none"}`, `"tool_choice":"none"`},
	"request/thinking":           {`{"type":"disabled"}`, `"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`},
	"request/output_config":      {`{"effort":"low"}`, `"reasoning_effort":"low"`},
	"request/context_management": {`{"edits":[]}`, `"hi"}],"model":"m"}`},

	"message/role":                {`"system"`, `{"role":"system","content":"a"}`},
	"message/content":             {`[` + textBlock + `,` + textBlock + `]`, `{"role":"user","content":"t\nt"}`},
	"role of a message/user":      {`{"role":"user","content":"b"}`, `{"role":"user","content":"b"}`},
	"role of a message/assistant": {`{"role":"assistant","content":"b"}`, `{"role":"assistant","content":"b"}`},
	"role of a message/system":    {`{"role":"system","content":"b"}`, `{"role":"system","content":"b"}`},

	"type of a content block in a system message/text":         {textBlock, `{"role":"system","content":"t"}`},
	"type of a content block in a user message/text":           {textBlock, `"hi\nt"`},
	"type of a content block in a user message/image":          {imageBlock, `{"type":"image_url","image_url":{"url":"http://x"}}`},
	"type of a content block in a user message/tool_result":    {toolResult, `{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"1","content":""}`},
	"type of a content block in a tool result/text":            {textBlock, `{"role":"tool","tool_call_id":"1","content":"t"}`},
	"type of a content block in an assistant message/text":     {textBlock, `{"role":"assistant","content":"t"}`},
	"type of a content block in an assistant message/thinking": {`{"type":"thinking","thinking":"t"}`, `{"role":"assistant","content":null,"reasoning_content":"t"}`},
	"type of a content block in an assistant message/tool_use": {toolUse, `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`},

	"text block/type":         {`"text"`, `"hi\nt"`},
	"text block/text":         {`"\u0041"`, `"hi\n\u0041"`},
	"image block/type":        {`"image"`, `"http://x"`},
	"image block/source":      {`{"type":"url","url":"http://y"}`, `{"type":"image_url","image_url":{"url":"http://y"}}`},
	"thinking block/type":     {`"thinking"`, `"reasoning_content":"t"`},
	"thinking block/thinking": {`"\u0041"`, `"reasoning_content":"\u0041"`},

	"source of an image/type":               {`"base64"`, `"data:image/png;base64,AA"`},
	"source of an image/media_type":         {`"image/gif"`, `"data:image/gif;base64,AA"`},
	"source of an image/data":               {`"BB"`, `"data:image/png;base64,BB"`},
	"source of an image/url":                {`"http://x"`, `"data:image/png;base64,AA"`},
	"type of the source of an image/base64": {dataSource, `"data:image/png;base64,AA"`},
	"type of the source of an image/url":    {`{"type":"url","url":"http://x"}`, `{"url":"http://x"}`},

	"tool_use block/type":           {`"tool_use"`, `"id":"1"`},
	"tool_use block/id":             {`"functions.f:0"`, `"id":"functions.f:0"`},
	"tool_use block/name":           {`"g"`, `"name":"g"`},
	"tool_use block/input":          {`{"a":1}`, `"arguments":"{\"a\":1}"`},
	"tool_use block/caller":         {`{"type":"direct"}`, `"id":"1"`},
	"tool_result block/type":        {`"tool_result"`, `"tool_call_id":"1"`},
	"tool_result block/tool_use_id": {`"2"`, `"tool_call_id":"2"`},
	"tool_result block/content":     {`"c"`, `"content":"c"`},

	"tool/type":             {`"custom"`, `{"type":"function"`},
	"tool/name":             {`"g"`, `"name":"g"`},
	"tool/description":      {`"d"`, `"description":"d"`},
	"tool/input_schema":     {`{"type":"object"}`, `"parameters":{"type":"object"}`},
	"tool/strict":           {`true`, `"strict":true`},
	"tool/defer_loading":    {`true`, `"hi"}]}`},
	"tool/allowed_callers":  {`["direct"]`, `{"type":"function"`},
	"type of a tool/custom": {`{"type":"custom","name":"f","input_schema":{}}`, `{"type":"function"`},

	"tool_choice/type":                      {`"any"`, `"tool_choice":"required"`},
	"tool_choice/name":                      {`"f"`, `"tool_choice":"auto"`},
	"tool_choice/disable_parallel_tool_use": {`true`, `"parallel_tool_calls":false`},
	"type of tool_choice/auto":              {`{"type":"auto"}`, `"tool_choice":"auto"`},
	"type of tool_choice/any":               {`{"type":"any"}`, `"tool_choice":"required"`},
	"type of tool_choice/tool":              {`{"type":"tool","name":"f"}`, `"tool_choice":{"type":"function","function":{"name":"f"}}`},
	"type of tool_choice/none":              {`{"type":"none"}`, `"tool_choice":"none"`},

	"thinking/type":             {`"disabled"`, `"thinking":false`},
	"type of thinking/enabled":  {`{"type":"enabled"}`, `"chat_template_kwargs":{"enable_thinking":true,"thinking":true}`},
	"type of thinking/disabled": {`{"type":"disabled"}`, `"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`},

	"output_config/effort":           {`"max"`, `"reasoning_effort":"max"`},
	"output_config/format":           {format, `"response_format":{"type":"json_schema"`},
	"format in output_config/type":   {`"json_schema"`, `"type":"json_schema"`},
	"format in output_config/schema": {`{"a":1}`, `"json_schema":{"name":"output","schema":{"a":1},"strict":true}`},
	"type of a format/json_schema":   {format, `"type":"json_schema"`},

	"context_management/edits":                {`[` + keepAll + `]`, `"hi"}]}`},
	"type of an edit/clear_thinking_20251015": {keepAll, `"hi"}]}`},
	"clear_thinking_20251015/type":            {`"clear_thinking_20251015"`, `"hi"}]}`},
	"clear_thinking_20251015/keep":            {`{"type":"all"}`, `"hi"}]}`},
}

// TestRules checks each rule of each table.
func TestRules(t *testing.T) {
	t.Parallel()
	used := 0
	for _, table := range (messages.Dialect{}).Tables() {
		at, known := places[table.Title]
		if !known {
			t.Errorf("no place for the table %q", table.Title)
			continue
		}
		without := chat(t, fmt.Sprintf(at.body, at.object))
		refusedIn(t, at, "no_such_name", "unknown")
		for _, r := range table.Rules {
			name := table.Title + "/" + r.Member
			sample, given := samples[name]
			switch r.Action {
			case translate.Refused:
				refusedIn(t, at, r.Member, r.Note)
			case translate.Dropped:
				value := `{"a":[1]}`
				if at.selects != "" {
					value = fmt.Sprintf(`{"type":%q}`, r.Member)
				}
				if got := chat(t, at.with(t, r.Member, value)); got != without {
					t.Errorf("%s is dropped, but it changes the chat completion from %s to %s", name, without, got)
				}
			case translate.Passed, translate.Translated:
				used++
				if got := chat(t, at.with(t, r.Member, sample[0])); !given || !strings.Contains(got, sample[1]) {
					t.Errorf("%s: %s gives %s, want %s in it", name, sample[0], got, sample[1])
				}
			}
		}
	}
	if used != len(samples) {
		t.Errorf("%d rules have a sample, but there are %d samples", used, len(samples))
	}
}

// with returns the request with a member. In a table about the values of a member, value is the whole
// object.
func (at place) with(t *testing.T, member, value string) string {
	t.Helper()
	if at.selects != "" {
		return fmt.Sprintf(at.body, value)
	}
	o := fields(t, []byte(at.object))
	o[member] = json.RawMessage(value)
	object, err := json.Marshal(o)
	if err != nil {
		t.Fatalf("%s: %q: %v", member, value, err)
	}
	return fmt.Sprintf(at.body, object)
}

func refusedIn(t *testing.T, at place, member, reason string) {
	t.Helper()
	value := `{"a":[1]}`
	if at.selects != "" {
		value = fmt.Sprintf(`{%q:%q}`, at.selects, member)
	}
	body := at.with(t, member, value)
	_, err := messages.Dialect{}.Request([]byte(body))
	if e := asError(err); e == nil || !strings.Contains(e.Message, member) || !strings.Contains(e.Message, reason) {
		t.Errorf("Request(%s) = %v, want an error with %q and %q", body, err, member, reason)
	}
}

func chat(tb testing.TB, body string) string {
	tb.Helper()
	call, err := messages.Dialect{}.Request([]byte(body))
	if err != nil {
		tb.Errorf("Request(%s): %v", body, err)
		return ""
	}
	return string(call.Chat)
}
