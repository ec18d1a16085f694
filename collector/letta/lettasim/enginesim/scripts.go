package enginesim

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

func says(texts ...string) Script {
	var s Script
	for _, text := range texts {
		s.Replies = append(s.Replies, Reply{Text: text})
	}
	return s
}

func add(a, b int) string { return ToolCall("add", fmt.Sprintf(`{"a": %d, "b": %d}`, a, b)) }
func echo(quotedText string) string {
	return ToolCall("echo", `{"text": `+quotedText+`}`)
}

// Builtin returns the scripts that every engine knows. They call the tools add(a, b),
// mul(a, b), echo(text), lookup(key), fail(x), guarded(x) and bash(cmd). A script that
// needs none says so by not calling one.
func Builtin() map[string]Script {
	all := map[string]Script{
		"single":   says("Hello! It is a fine %word% day, number %n%."),
		"newlines": says("\n\n Line one.\n\n\nLine two.  \n"),
		"think":    says(Think("What is there to say about %word%?", "It is %n%.")),
		"tool":     says(add(2, 3), "The sum is 5."),
		"two":      says(add(2, 3), ToolCall("mul", `{"a": 5, "b": 7}`), "It is 35, %word%."),
		"many": says(add(1, 2), ToolCall("lookup", `{"key": "%word%"}`), ToolCall("mul", `{"a": 3, "b": %n%}`),
			echo(`"%word%"`), "All four were called."),
		"parallel": says(add(1, 2)+"\n"+ToolCall("mul", `{"a": 3, "b": 4}`)+"\n"+echo(`"%word%"`), "Three at once."),
		"think-tool": says(Think("I have to add, %word%.", add(2, 3)), Think("Now to multiply.", "Let me go on.\n"+ToolCall("mul", `{"a": 5, "b": 2}`)),
			Think("It is ten.", "The result is 10.")),
		"think-parallel": says(Think("Two at once.", add(1, 2)+"\n"+add(3, 4)), "Both were called."),
		"text-tool":      says("Let me see, %word%.\n"+add(4, 5), "It is 9."),
		"space-tool":     says(" Let me see.\n"+add(4, 5), " Once more.\n"+add(5, 6), "It is 11."),
		"spaces":         says(" Hello there, friend. \n\n"),
		"text-around":    says("\n\nBefore. "+add(1, 1)+" Between. "+add(2, 2)+"\nAfter.", "Said."),
		"compact":        says("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":2,\"b\":3}}\n</tool_call>", "It was printed otherwise."),
		"spaced":         says("<tool_call>\n{ \"name\" : \"add\" ,\n  \"arguments\" : { \"a\" : 2 , \"b\" : 3 } }\n</tool_call>", "With blanks."),
		"numbers":        says(ToolCall("add", `{"a": 1e3, "b": 2.0}`), "With an exponent."),
		"order":          says("<tool_call>\n{\"arguments\": {\"b\": 3, \"a\": 2}, \"name\": \"add\"}\n</tool_call>", "The other way round."),
		"escaped":        says(echo(`"caf\u00e9 \ud83c\udf89 \/ tab\t"`), "Escaped."),
		"unicode":        says(echo(`"naïve café – 日本語 🎉🏽 عربى `+"\u200b\u200d"+`"`), "Grüße, 世界 🌍, %word%."),
		"braces":         says(echo(`"function f(){}{return 1}"`), "Cut at the braces."),
		"quoted":         says(echo(`"he said \"<tool_call>\" and \\n left"`), "Quoted."),
		"fail":           says(ToolCall("fail", `{"x": 1}`), "It failed, %word%."),
		"unknown":        says(ToolCall("no_such_tool", `{"x": 1}`), "There is none."),
		"malformed":      says("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \n</tool_call>", "I misspelled it."),
		"unclosed":       says("I call <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}"),
		"null-arguments": says(ToolCall("add", "null"), "Never said."),
		"guarded":        says(ToolCall("guarded", `{"x": 1}`), "It was approved or denied, %word%."),
		"guarded-two":    says(Think("I need leave.", ToolCall("guarded", `{"x": %n%}`)), add(1, 2), "Both are done."),
		"bash":           says(ToolCall("bash", `{"cmd": "ls %word%"}`), "There are files."),
		"bash-two":       says(Think("List first.", ToolCall("bash", `{"cmd": "ls"}`)), ToolCall("bash", `{"cmd": "cat %word%.txt"}`), "Read."),
		"bash-mixed":     says(ToolCall("bash", `{"cmd": "ls"}`)+"\n"+add(2, 2), "One of each."),
		"chars":          {Replies: []Reply{{Text: add(2, 3), Split: "chars"}, {Text: "The sum is five.", Split: "chars"}}},
		"split":          {Replies: []Reply{{Text: Think("Uncommonly tokenized %word%.", add(21, 34)), Split: "random"}, {Text: "The result is fiftyfive, %word%.", Split: "random"}}},
		"length":         {Replies: []Reply{{Text: "Counting for ever: one, two, three, %word%, ", Repeat: 4, Finish: "length"}}},
		"length-tool":    {Replies: []Reply{{Text: add(2, 3) + "\nand then", Finish: "length"}, {Text: "The limit hid behind a call."}}},
		"length-full":    {Replies: []Reply{{Text: "Row %n% %word%. ", Repeat: 3000}}},
		"large":          {Replies: []Reply{{Text: Think(strings.Repeat("Consider item %n%: %word%.\n", 200), add(7, 8))}, {Text: "Row %n% of %word%.\n", Repeat: 450}}},
		"empty":          {Replies: []Reply{{Text: ""}}},
		"abort":          {Replies: []Reply{{Text: "This ends in the mid", Finish: "abort"}}},
		"nan":            {Replies: []Reply{{Text: add(1, 1)}, {Text: "One is not a number.", Plant: map[int]string{1: "NaN"}}}},
		"null":           {Replies: []Reply{{Text: add(1, 1)}, {Text: "One is not known.", Plant: map[int]string{1: "null", -1: "-0.0"}}}},
		"equal":          {Replies: []Reply{{Text: add(2, 3), Equal: "equal"}, {Text: "The sum is 5.", Equal: "equal"}}},
		"versions":       {Replies: []Reply{{Text: add(2, 3), Version: "7"}, {Text: "The sum is 5.", Version: "8"}}},
		"http-500":       {Replies: []Reply{{Text: add(2, 3)}, {Text: "The second was answered.", Status: 500, Times: 1}}},
		"http-503":       {Replies: []Reply{{Text: "The first was answered at last.", Status: 503, Times: 1}}},
		"drop":           {Replies: []Reply{{Text: add(2, 3)}, {Text: "Not dropped.", Drop: true, Times: 1}}},
		"late":           {Replies: []Reply{{Text: add(2, 3)}, {Text: "Dropped once, after it was said: %word%.", Late: true, Times: 1}}},
		"broken":         {Replies: []Reply{{Status: 500}}},
		"slow":           {Replies: []Reply{{Text: add(2, 3), DelayMS: 1500}, {Text: add(4, 5), DelayMS: 1500}, {Text: "Slowly done, %word%.", DelayMS: 1500}}},
		"random":         {Make: random},
	}
	var sixteen []Reply
	for k := range 15 {
		text := add(k, 1)
		if k%3 == 0 {
			text = Think(fmt.Sprintf("Step %d of sixteen, %%word%%.", k), text)
		}
		sixteen = append(sixteen, Reply{Text: text})
	}
	all["sixteen"] = Script{Replies: append(sixteen, Reply{Text: "Sixteen calls, %n%."})}
	all["steps"] = Script{Make: func(c Conversation) []Reply {
		var replies []Reply
		for range c.Int("calls", 4) - 1 {
			replies = append(replies, Reply{Text: Think("On %word%.", add(3, 4)), DelayMS: c.Int("ms", 0)})
		}
		return append(replies, Reply{Text: "All steps are done, %word%.", DelayMS: c.Int("ms", 0)})
	}}
	return all
}

// random makes a conversation of calls=N generations, drawn from seed=N and the agent: no
// two agents play the same. It calls add, mul, echo and fail.
func random(c Conversation) []Reply {
	draw := rand.New(rand.NewPCG(wordSeed(c.Agent), wordSeed(c.Params["seed"])))
	one := func(of ...string) string { return of[draw.IntN(len(of))] }
	word := func() string { return words[draw.IntN(len(words))] }
	call := func() string {
		a, b := draw.IntN(100), draw.IntN(100)
		return one(
			add(a, b), add(a, b), ToolCall("mul", fmt.Sprintf(`{"a": %d, "b": %d}`, a, b)), echo(`"`+word()+`"`), echo(`"`+word()+` \u00e9 é 🎉"`),
			fmt.Sprintf("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":%d,\"b\":%d}}\n</tool_call>", a, b),
			fmt.Sprintf("<tool_call>{\"name\": \"mul\", \"arguments\": {\"b\": %d, \"a\": %d}}</tool_call>", a, b),
			ToolCall("fail", `{"x": 1}`), "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \n</tool_call>",
		)
	}
	var replies []Reply
	for k := range c.Int("calls", 4) {
		last := k == c.Int("calls", 4)-1
		text := one("", "", "Let me see. ", "\n\n"+word()+" – ")
		if last {
			text = one("The answer is ", "Voilà: ") + word() + one(".", "!", " 🎉", "\n")
		} else {
			text += call()
			for draw.IntN(4) == 0 {
				text += one("\n", " and ", "") + call()
			}
			text += one("", "", "", "\nThat was it.")
		}
		if draw.IntN(3) == 0 {
			text = Think(word()+" "+word()+one("?", ".", "…"), text)
		}
		replies = append(replies, Reply{Text: text, Split: one("", "", "", "random", "chars")})
	}
	return replies
}
