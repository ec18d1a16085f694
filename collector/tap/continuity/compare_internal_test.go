package continuity

import (
	"strings"
	"testing"
)

// Reasons is the number of reasons.
const Reasons = reasons

// TestCompareTexts pins which texts are prints of an output.
func TestCompareTexts(t *testing.T) {
	t.Parallel()
	call := func(json string) string { return "<tool_call>\n" + json + "\n</tool_call>" }
	const add = `{"name": "add", "arguments": {"a": 2, "b": 3}}`
	args := func(s string) string { return call(`{"name": "f", "arguments": {"v": ` + s + `}}`) }
	tests := []struct {
		name, output, printed string
		want                  Reason
		apart                 bool
	}{
		{"same text", "five", "five", ReasonTokens, false},
		{"white space at the end", "line\n  two\n", "line\n  two", ReasonSpace, false},
		{"white space within", "line\n two", "line\n  two", ReasonUnlike, true},
		{"another text", "five", "six", ReasonUnlike, true},
		{"a part of the text", "it is five", "five", ReasonUnlike, false},
		{"empty print", "five", "", ReasonUnlike, false},
		{"thought kept", "<think>\n\nx</think>y", "<think>\nx\n</think>\n\ny", ReasonSpace, false},
		{"thought gone", "<think>\nx\n</think>\n\ny", "y", ReasonThought, false},
		{"thought emptied", "<think>\nx\n</think>\n\ny", "<think>\n\n</think>\n\ny", ReasonUnlike, false},
		{"one of two thoughts gone", "<think>a</think>b<think>c</think>d", "<think>\na\n</think>\n\nd", ReasonUnlike, false},
		{"composed", "e\u0301", "é", ReasonUnlike, false},
		{"half a character", "\xe2\x82", "�", ReasonUnlike, false},
		{"the same half", "a\xe2\x82 ", "a\xe2\x82", ReasonUnlike, false},

		{"call, compact", call(`{"name":"add","arguments":{"a":2,"b":3}}`), call(add), ReasonPrinted, false},
		{"call, white space around", "\n<tool_call>" + add + "</tool_call>\n", call(add), ReasonSpace, false},
		{"text before it gone", "I add.\n" + call(add), call(add), ReasonDeleted, false},
		{"thought before it gone", "<think>\nI add.\n</think>\n\n" + call(add), call(add), ReasonDeleted, false},
		{"half of the text gone", "<think>\nx\n</think>\nI add.\n" + call(add), "I add.\n" + call(add), ReasonUnlike, false},
		{"text before it another", "I add.\n" + call(add), "I sum.\n" + call(add), ReasonUnlike, false},
		{"text added", call(add), "I add.\n" + call(add), ReasonUnlike, false},
		{"text behind it gone", call(add) + "\nDone.", call(add), ReasonUnlike, false},
		{"text behind it moved", call(add) + "\nDone.", "Done.\n" + call(add), ReasonUnlike, false},
		{"text between gone", call(add) + " and " + call(add), call(add) + "\n" + call(add), ReasonUnlike, false},
		{"text printed between", call(add) + call(add), call(add) + " and " + call(add), ReasonUnlike, false},
		{"white space between", call(add) + call(add), call(add) + "\n" + call(add), ReasonSpace, false},
		{"a call dropped", call(add) + "\n" + args("1"), call(add), ReasonCalls, false},
		{"a call added", call(add), call(add) + "\n" + args("1"), ReasonCalls, true},
		{"a call doubled", call(add), call(add) + "\n" + call(add), ReasonCalls, true},
		{"calls changed places", call(add) + "\n" + args("1"), args("1") + "\n" + call(add), ReasonArguments, false},
		{"a call of nothing", "five", call(add), ReasonCalls, true},
		{"a call in another form", "<|add|>{}", call(add), ReasonCalls, false},
		{"no call printed", call(add), "five", ReasonCalls, true},
		{"only the text printed", "I add.\n" + call(add), "I add.", ReasonCalls, false},
		{"call does not end", "<tool_call>\n" + add, call(add), ReasonMalformed, false},
		{"call within a thought", "<think><tool_call></think>" + call(add), call(add), ReasonMalformed, false},
		{"broken JSON", call(`{"name": "add", "arguments": {"a": 2, "b": }`), call(`{"name": "{"name": "add", "arguments": {"a": 2, "b": }", "arguments": {}}`), ReasonMalformed, false},
		{"GLM's form", call("add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>"), call(`{"name": "add", "arguments": {"a": "2"}}`), ReasonMalformed, false},
		{"end of a call in a string", args(`"</tool_call>"`), args(`"x"`), ReasonMalformed, false},

		{"another name", call(`{"name": "add", "arguments": {}}`), call(`{"name": "sub", "arguments": {}}`), ReasonArguments, true},
		{"arguments missing", call(`{"name": "f"}`), call(`{"name": "f", "arguments": {}}`), ReasonMalformed, false},
		{"arguments as text", call(`{"name": "f", "arguments": "{}"}`), call(`{"name": "f", "arguments": {}}`), ReasonMalformed, false},
		{"arguments first", call(`{"arguments": {}, "name": "f"}`), call(`{"name": "f", "arguments": {}}`), ReasonMalformed, false},
		{"a further member", call(`{"name": "f", "arguments": {}, "id": 1}`), call(`{"name": "f", "arguments": {}}`), ReasonMalformed, false},
		{"name twice", call(`{"name": "f", "name": "f", "arguments": {}}`), call(`{"name": "f", "arguments": {}}`), ReasonMalformed, false},
		{"an argument taken out", call(`{"name": "f", "arguments": {"a": 1, "thinking": "x"}}`), call(`{"name": "f", "arguments": {"a": 1}}`), ReasonArguments, false},
		{"arguments cut", call(`{"name": "f", "arguments": {"a": "f(){}{}"}}`), call(`{"name": "f", "arguments": {}}`), ReasonArguments, false},
		{"an argument added", call(`{"name": "f", "arguments": {}}`), call(`{"name": "f", "arguments": {"a": 1}}`), ReasonArguments, true},
		{"another order of members", call(`{"name": "f", "arguments": {"a": 1, "b": 2}}`), call(`{"name": "f", "arguments": {"b": 2, "a": 1}}`), ReasonArguments, false},
		{"a member twice", call(`{"name": "f", "arguments": {"a": 1, "a": 2}}`), call(`{"name": "f", "arguments": {"a": 2}}`), ReasonArguments, false},

		{"number with exponent", args("1e3"), args("1000.0"), ReasonPrinted, false},
		{"zeros", args("1.50"), args("1.5"), ReasonPrinted, false},
		{"small", args("1E-7"), args("1e-07"), ReasonPrinted, false},
		{"zero", args("0e9"), args("0.0"), ReasonPrinted, false},
		{"minus zero", args("-0"), args("0"), ReasonArguments, false},
		{"minus", args("-1"), args("1"), ReasonArguments, true},
		{"rounded", args("0.10000000000000001"), args("0.1"), ReasonArguments, false},
		{"ten times", args("10"), args("1"), ReasonArguments, true},
		{"a tenth", args("0.1"), args("1"), ReasonArguments, true},
		{"beyond any exponent", args("1e99999999999"), args("1e99999999998"), ReasonArguments, true},
		{"long", args("12345678901234567890"), args("12345678901234567891"), ReasonArguments, false},
		{"infinity", args("1e400"), args("Infinity"), ReasonMalformed, false},
		{"number and text", args("1"), args(`"1"`), ReasonArguments, true},
		{"truth and number", args("true"), args("1"), ReasonArguments, true},
		{"null and false", args("null"), args("false"), ReasonArguments, true},

		{"escapes", args(`"\u00e9\t\/"`), args("\"é\\t/\""), ReasonPrinted, false},
		{"pair of surrogates", args(`"\ud83d\ude00"`), args(`"😀"`), ReasonPrinted, false},
		{"half a pair", args(`"\ud83d"`), args("\"�\""), ReasonArguments, false},
		{"half a pair, twice", args(`"\ud83d" `), args(`"\ud83d"`), ReasonArguments, false},
		{"composed and not", args("\"e\u0301\""), args("\"é\""), ReasonArguments, false},
		{"line break in a string", args("\"a\nb\""), args(`"a\nb"`), ReasonMalformed, false},
		{"case of a letter", args(`"A"`), args(`"a"`), ReasonArguments, true},
		{"lists", args(`[1,[2],{}]`), args(`[1, [2], {}]`), ReasonPrinted, false},
		{"list longer", args(`[1]`), args(`[1, 2]`), ReasonArguments, false},
		{"list and object", args(`[]`), args(`{}`), ReasonArguments, false},
		{"deep", args(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), args(strings.Repeat("[ ", 5000) + strings.Repeat("]", 5000)), ReasonPrinted, false},
	}
	for _, tt := range tests {
		if v := compareTexts([]byte(tt.output), []byte(tt.printed)); v.reason != tt.want || v.apart != tt.apart {
			t.Errorf("%s: compareTexts(%.80q, %.80q) = %v, apart %v; want %v, apart %v", tt.name, tt.output, tt.printed, v.reason, v.apart, tt.want, tt.apart)
		}
	}
}
