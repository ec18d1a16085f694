package enginesim

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

func says(texts ...string) script {
	var s script
	for _, text := range texts {
		s.replies = append(s.replies, reply{text: text})
	}
	return s
}

func add(a, b int) string { return toolCall("add", fmt.Sprintf(`{"a": %d, "b": %d}`, a, b)) }
func echo(quotedText string) string {
	return toolCall("echo", `{"text": `+quotedText+`}`)
}

// builtin returns the scripts that every engine has. They call the tools add(a, b), mul(a, b),
// echo(text), lookup(key), fail(x), guarded(x) and bash(cmd).
func builtin() map[string]script {
	all := map[string]script{
		"single":   says("Hello! It is a fine %word% day, number %n%."),
		"newlines": says("\n\n Line one.\n\n\nLine two.  \n"),
		"think":    says(think("What is there to say about %word%?", "It is %n%.")),
		"tool":     says(add(2, 3), "The sum is 5."),
		"two":      says(add(2, 3), toolCall("mul", `{"a": 5, "b": 7}`), "It is 35, %word%."),
		"many": says(add(1, 2), toolCall("lookup", `{"key": "%word%"}`), toolCall("mul", `{"a": 3, "b": %n%}`),
			echo(`"%word%"`), "All four were called."),
		"parallel": says(add(1, 2)+"\n"+toolCall("mul", `{"a": 3, "b": 4}`)+"\n"+echo(`"%word%"`), "Three at once."),
		"think-tool": says(think("I have to add, %word%.", add(2, 3)), think("Now to multiply.", "Let me go on.\n"+toolCall("mul", `{"a": 5, "b": 2}`)),
			think("It is ten.", "The result is 10.")),
		"think-parallel": says(think("Two at once.", add(1, 2)+"\n"+add(3, 4)), "Both were called."),
		"text-tool":      says("Let me see, %word%.\n"+add(4, 5), "It is 9."),
		"space-tool":     says(" Let me see.\n"+add(4, 5), " Once more.\n"+add(5, 6), "It is 11."),
		"spaces":         says(" Hello there, friend. \n\n"),
		"text-around":    says("\n\nBefore. "+add(1, 1)+" Between. "+add(2, 2)+"\nAfter.", "Said."),
		"compact":        says("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":2,\"b\":3}}\n</tool_call>", "It was printed otherwise."),
		"spaced":         says("<tool_call>\n{ \"name\" : \"add\" ,\n  \"arguments\" : { \"a\" : 2 , \"b\" : 3 } }\n</tool_call>", "With blanks."),
		"numbers":        says(toolCall("add", `{"a": 1e3, "b": 2.0}`), "With an exponent."),
		"order":          says("<tool_call>\n{\"arguments\": {\"b\": 3, \"a\": 2}, \"name\": \"add\"}\n</tool_call>", "The other way round."),
		"escaped":        says(echo(`"caf\u00e9 \ud83c\udf89 \/ tab\t"`), "Escaped."),
		"unicode":        says(echo(`"naïve café – 日本語 🎉🏽 عربى `+"\u200b\u200d"+`"`), "Grüße, 世界 🌍, %word%."),
		"braces":         says(echo(`"function f(){}{return 1}"`), "Cut at the braces."),
		"quoted":         says(echo(`"he said \"<tool_call>\" and \\n left"`), "Quoted."),
		"fail":           says(toolCall("fail", `{"x": 1}`), "It failed, %word%."),
		"unknown":        says(toolCall("no_such_tool", `{"x": 1}`), "There is none."),
		"malformed":      says("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \n</tool_call>", "I misspelled it."),
		"unclosed":       says("I call <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}"),
		"null-arguments": says(toolCall("add", "null"), "Never said."),
		"guarded":        says(toolCall("guarded", `{"x": 1}`), "It was approved or denied, %word%."),
		"guarded-two":    says(think("I need leave.", toolCall("guarded", `{"x": %n%}`)), add(1, 2), "Both are done."),
		"bash":           says(toolCall("bash", `{"cmd": "ls %word%"}`), "There are files."),
		"bash-two":       says(think("List first.", toolCall("bash", `{"cmd": "ls"}`)), toolCall("bash", `{"cmd": "cat %word%.txt"}`), "Read."),
		"bash-mixed":     says(toolCall("bash", `{"cmd": "ls"}`)+"\n"+add(2, 2), "One of each."),
		"chars":          {replies: []reply{{text: add(2, 3), split: "chars"}, {text: "The sum is five.", split: "chars"}}},
		"split":          {replies: []reply{{text: think("Uncommonly tokenized %word%.", add(21, 34)), split: "random"}, {text: "The result is fiftyfive, %word%.", split: "random"}}},
		"length":         {replies: []reply{{text: "Counting for ever: one, two, three, %word%, ", repeat: 4, length: true}}},
		"length-tool":    {replies: []reply{{text: add(2, 3) + "\nand then", length: true}, {text: "The limit hid behind a call."}}},
		"large":          {replies: []reply{{text: think(strings.Repeat("Consider item %n%: %word%.\n", 200), add(7, 8))}, {text: "Row %n% of %word%.\n", repeat: 450}}},
		"empty":          {replies: []reply{{text: ""}}},
		"nan":            {replies: []reply{{text: add(1, 1)}, {text: "One is not a number.", plant: map[int]string{1: "NaN"}}}},
		"null":           {replies: []reply{{text: add(1, 1)}, {text: "One is not known.", plant: map[int]string{1: "null", -1: "-0.0"}}}},
		"equal":          {replies: []reply{{text: add(2, 3), equal: "equal"}, {text: "The sum is 5.", equal: "equal"}}},
		"versions":       {replies: []reply{{text: add(2, 3), version: "7"}, {text: "The sum is 5.", version: "8"}}},
		"random":         {make: random},
	}
	var sixteen []reply
	for k := range 15 {
		text := add(k, 1)
		if k%3 == 0 {
			text = think(fmt.Sprintf("Step %d of sixteen, %%word%%.", k), text)
		}
		sixteen = append(sixteen, reply{text: text})
	}
	all["sixteen"] = script{replies: append(sixteen, reply{text: "Sixteen calls, %n%."})}
	all["steps"] = script{make: func(c conversation) []reply {
		var replies []reply
		for range c.int("calls", 4) - 1 {
			replies = append(replies, reply{text: think("On %word%.", add(3, 4)), delayMS: c.int("ms", 0)})
		}
		return append(replies, reply{text: "All steps are done, %word%.", delayMS: c.int("ms", 0)})
	}}
	return all
}

// random returns the replies in a random conversation. The parameter calls is the number of
// replies. The replies depend on the parameter seed and on the agent, so each agent has a different
// conversation. The replies call the tools add, mul, echo and fail.
func random(c conversation) []reply {
	draw := rand.New(rand.NewPCG(wordSeed(c.Agent), wordSeed(c.Params["seed"])))
	one := func(of ...string) string { return of[draw.IntN(len(of))] }
	word := func() string { return words[draw.IntN(len(words))] }
	call := func() string {
		a, b := draw.IntN(100), draw.IntN(100)
		return one(
			add(a, b), add(a, b), toolCall("mul", fmt.Sprintf(`{"a": %d, "b": %d}`, a, b)), echo(`"`+word()+`"`), echo(`"`+word()+` \u00e9 é 🎉"`),
			fmt.Sprintf("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":%d,\"b\":%d}}\n</tool_call>", a, b),
			fmt.Sprintf("<tool_call>{\"name\": \"mul\", \"arguments\": {\"b\": %d, \"a\": %d}}</tool_call>", a, b),
			toolCall("fail", `{"x": 1}`), "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \n</tool_call>",
		)
	}
	var replies []reply
	for k := range c.int("calls", 4) {
		last := k == c.int("calls", 4)-1
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
			text = think(word()+" "+word()+one("?", ".", "…"), text)
		}
		replies = append(replies, reply{text: text, split: one("", "", "", "random", "chars")})
	}
	return replies
}
