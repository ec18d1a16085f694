package session_test

import (
	"testing"
)

// TestEvidence has one case for each thing that proves, or does not prove, that the harness read an
// answer.
func TestEvidence(t *testing.T) {
	t.Parallel()
	const long = "The bug is in the second loop of main.go."
	tool := does("c2", "bash", `{"cmd": "grep -n loop main.go"}`)
	longer := func(text, more string) msg {
		m := does("c3", "bash", `{"cmd": "pwd"}`)
		if more == "" {
			m = does("c2", "bash", `{"cmd": "ls"}`)
		}
		m.text, m.null = text+more, false
		return m
	}
	// twice runs two subagents with the same request, one after the other. Each gives one answer.
	twice := func(first, second, firstResult string) func(h *harness) {
		return func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			h.subConv("look").call(says(first))
			m.add(result("s", firstResult)).turn(does("t", "agent", "{}"))
			h.subConv("look").call(says(second))
			m.add(result("t", second)).call(done)
		}
	}
	runBuildCases(t, []buildCase{
		{"a text, then an equal request", twice("ok", "fine", "ok"), "1:main0 2:subagent1!ambiguous_retry 3:main0 4:subagent1 5:main0", 2, "I fixed it"},
		{"a text that a result quotes, then an equal request", twice(long, "fine", "<result>\n"+long+"\n</result>"), "1:main0 2:subagent1 3:main0 4:subagent2 5:main0", 3, "I fixed it"},
		{"equal texts, quoted before the second request", twice(long, long, long), "1:main0 2:subagent1 3:main0 4:subagent2 5:main0", 3, "I fixed it"},
		{"equal texts, quoted after the second request", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			h.subConv("look").call(says(long))
			h.subConv("look").call(says(long))
			m.add(result("s", long)).call(done)
		}, "1:main0 2:subagent1!ambiguous_retry 3:subagent1 4:main0", 2, "I fixed it"},
		{"a text that the request had quoted before", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", long)).turn(runs, files)
			h.subConv("look").call(says(long))
			m.call(done)
			h.subConv("look").call(says("fine"))
		}, "1:main0 2:main0 3:subagent1!ambiguous_retry 4:main0 5:subagent1", 2, "I fixed it"},

		{"the text of a repeat begins with the text of the lost answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(longer(long, ""), undelivered)
			c.turn(longer(long, " It reads one line too many."), result("c3", "/")).call(done)
		}, "1:main0 2:main0!superseded 3:main0 4:main0", 1, "I fixed it"},
		{"a tool call of a repeat contains the text of the lost answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says(long), undelivered)
			c.turn(does("c2", "bash", `{"cmd": "echo `+long+`"}`), result("c2", long)).call(done)
		}, "1:main0 2:main0!superseded 3:main0 4:main0", 1, "I fixed it"},
		{"the text of a stated retry begins with the text of the lost answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(longer(long, ""), retry(0))
			c.call(longer(long, " It reads one line too many."), retry(1))
			c.add(longer(long, " It reads one line too many."), result("c3", "/")).call(done)
		}, "1:main0 2:main0!superseded 3:main0 4:main0", 1, "I fixed it"},
		{"a result quotes the repeat of a subagent's lost answer", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			c.call(says(long), undelivered)
			c.call(says(long + " It reads one line too many."))
			m.add(result("s", long+" It reads one line too many.")).call(done)
		}, "1:main0 2:subagent1!superseded 3:subagent1 4:main0", 2, "I fixed it"},
		{"a result quotes the beginning of the repeat of a subagent's lost answer", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			c.call(says(long), undelivered)
			c.call(says(long + " It reads one line too many."))
			m.add(result("s", long+" It reads [...]")).call(done)
		}, "1:main0 2:subagent1!superseded 3:subagent1 4:main0", 2, "I fixed it"},
		{"a lost answer had copied a line of a result, and a later result has it again", func(h *harness) {
			c := h.mainConv().turn(runs, result("c1", "main.go: "+long))
			c.call(says(long), undelivered)
			c.turn(tool, result("c2", "1 "+long)).call(done)
		}, "1:main0 2:main0!superseded 3:main0 4:main0", 1, "I fixed it"},

		{"a dropped answer has the text of its repeat, and the next request is sent twice", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("Continue."), stopped)
			c.turn(says("Continue."), user("go on"))
			c.call(says("lost"), undelivered)
			c.call(done)
		}, "1:main0 2:main0!cut_answer 3:main0 4:main0!superseded 5:main0", 1, "I fixed it"},

		{"a call of another history has the id of a lost call", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			x, y := h.subConv("look"), h.subConv("look again")
			x.call(does("bash:0", "bash", `{"cmd": "ls"}`), undelivered)
			x.call(says("I looked."))
			y.add(does("bash:0", "bash", `{"cmd": "pwd"}`), result("bash:0", "/")).call(says("I looked again."))
			m.add(result("s", "I looked.")).call(done)
		}, "1:main0 2:subagent1!superseded 3:subagent2 4:subagent1 5:main0", 3, "I fixed it"},

		{"equal calls of two subagents, one after the other, with different results", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			x, y, equal := h.subConv("look"), h.subConv("look"), does("bash:0", "bash", `{"cmd": "ls"}`)
			x.call(equal)
			y.call(equal)
			x.add(equal, result("bash:0", "one")).call(says("first"))
			y.add(equal, result("bash:0", "two")).call(says("second"))
			m.add(result("s", "x")).call(done)
		}, "1:main0 2:subagent1 3:subagent2 4:subagent2 5:subagent1 6:main0", 3, "I fixed it"},
		{"the later of two equal requests at the same time is lost", func(h *harness) {
			c, equal := h.mainConv().turn(runs, files), does("bash:0", "bash", `{"cmd": "ls"}`)
			p, q := c.begin(), c.begin()
			p.end(equal)
			q.end(equal, undelivered)
			c.add(equal, result("bash:0", "one")).call(done)
		}, "1:main0 2:main0 3:main0!cut_answer 4:main0", 1, "I fixed it"},
		{"the earlier of two equal requests at the same time is lost, and the next request is sent twice", func(h *harness) {
			c, equal := h.mainConv().turn(runs, files), does("bash:0", "bash", `{"cmd": "ls"}`)
			p, q := c.begin(), c.begin()
			p.end(equal, undelivered)
			q.end(equal)
			c.add(equal, result("bash:0", "one"))
			c.call(says("lost"), undelivered)
			c.call(done)
		}, "1:main0 2:main0!cut_answer 3:main0 4:main0!superseded 5:main0", 1, "I fixed it"},

		{"a lost answer has the text of a demonstration", func(h *harness) {
			c := h.conv("bash edit agent", system("you are an agent"), user("an example"), says("ok"), user(task))
			c.call(says("ok"), undelivered)
			c.turn(runs, files).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 1, "I fixed it"},
		{"a lost answer has the text of a demonstration, after the same message", func(h *harness) {
			c := h.conv("bash edit agent", system("you are an agent"), user(task), says("ok"), user(task))
			c.call(says("ok"), undelivered)
			c.turn(runs, files).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 1, "I fixed it"},
		{"a lost answer has the id of a demonstration", func(h *harness) {
			c := h.conv("bash edit agent", system("you are an agent"), user(task), does("call_0", "bash", `{"cmd": "pwd"}`), result("call_0", "/"))
			c.call(does("call_0", "bash", `{"cmd": "ls"}`), undelivered)
			c.turn(tool, result("c2", "7: for")).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 1, "I fixed it"},
		{"the first message is shortened, and the second of two equal texts is lost", func(h *harness) {
			c := h.mainConv().turn(says("Continue."), user("go on"))
			c.call(says("Continue."))
			c.msgs[1].text = "fix it"
			c.call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 2, "I fixed it"},
		{"the first message is shortened, and the second of two equal calls with the same id is lost", func(h *harness) {
			call := does("call_0", "bash", `{"cmd": "ls"}`)
			c := h.mainConv().turn(call, result("call_0", "main.go"))
			c.call(call)
			c.msgs[1].text = "fix it"
			c.call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 2, "I fixed it"},
		{"an example has the text of a lost answer, which its repeat had too", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
			c := h.subConv("look")
			c.call(says("I will look."), undelivered)
			c.turn(longer("I will look.", ""), result("c2", "ok")).call(says("looked"))
			h.conv("bash edit", system("you are a subagent"), user("an example"), says("I will look."), user("look again")).call(says("no"))
			m.call(done)
		}, "1:main0 2:subagent1!superseded 3:subagent2 4:subagent2 5:subagent1 6:main0", 3, "I fixed it"},
		{"a subagent has the history before the same answer has ended", func(h *harness) {
			m := h.mainConv().turn(runs, files)
			p := m.begin()
			x := h.conv("web", system("you are a subagent"), user("look"), files, says("ok"), user("go on")).begin()
			p.end(says("ok"))
			x.end(says("looked"))
			m.call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:auxiliary1!auxiliary 4:main0", 1, "I fixed it"},

		{"an answer is dropped, and old results are removed from the history", func(h *harness) {
			c := h.mainConv().turn(runs, files).turn(tool, result("c2", "7: for"))
			c.call(does("c3", "edit", "{}"))
			c.msgs[3].text = "[removed]"
			c.turn(does("c4", "edit", "{}"), result("c4", "ok")).call(done)
		}, "1:main0 2:main0 3:main0!ambiguous_retry 4:main0 5:main0", 2, "I fixed it"},
		{"an answer is dropped, and the last result is shortened", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool)
			c.msgs[3].text = "main"
			c.call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"an answer is stopped by the limit and dropped, and the last result is shortened", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool, stopped)
			c.msgs[3].text = "main"
			c.call(done)
		}, "1:main0 2:main0!cut_answer 3:main0", 1, "I fixed it"},
		{"the first answer is dropped, and the time in the system message changes", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.msgs[0] = system("it is 10:01")
			c.turn(does("c2", "bash", "{}"), result("c2", "ok")).call(done)
		}, "1:main0!ambiguous_retry 2:main0 3:main0", 1, "I fixed it"},
		{"two conversations without tools, with the same question and other system messages", func(h *harness) {
			h.mainConv().turn(runs, files).call(done)
			h.conv("", system("you are strict"), user("look")).call(says("no"))
			h.conv("", system("you are kind"), user("look")).call(says("yes"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:auxiliary2!auxiliary", 1, "I fixed it"},
		{"the history is rewritten without an answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool)
			h.conv("bash edit agent", system("you are an agent"), user(task), user("You listed the files.")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 2, "I fixed it"},
		{"a summary of a conversation that began with an example of the answer", func(h *harness) {
			c := h.conv("bash edit agent", system("you are an agent"), user("look"), says("ok"), user(task)).turn(runs, files)
			h.subConv("look").call(says("ok"))
			h.subConv("look").call(says("fine"))
			h.conv("", append([]msg{system("you summarize")}, c.msgs[1:]...)...).call(says("short"))
			c.call(done)
		}, "1:main0 2:subagent1!ambiguous_retry 3:subagent1 4:auxiliary2!auxiliary 5:main0", 2, "I fixed it"},
		{"the history is rewritten, and a summary has read the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files).turn(tool, result("c2", "7: for"))
			h.conv("", append([]msg{system("you summarize")}, c.clone(user("summarize")).msgs[1:]...)...).call(says("short"))
			h.conv("bash edit agent", system("you are an agent"), user("Summary: short")).call(done)
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:main0", 2, "I fixed it"},
		{"the history is rewritten, and a summary has read the text", func(h *harness) {
			c := h.mainConv().turn(runs, files).turn(says("ok"), user("go on"))
			h.conv("", append([]msg{system("you summarize")}, c.msgs[1:]...)...).call(says("a short summary of the first steps"))
			h.conv("bash edit agent", system("you are an agent"), user("a short summary of the first steps")).call(done)
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:main0", 2, "I fixed it"},

		{"another answer is in the place of the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("I would do it"))
			c.add(says("of another model"), user("go on")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"another answer with the same tool is in the place of the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool)
			c.add(does("x1", "bash", `{"cmd": "pwd"}`), result("x1", "/")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"another answer with the same text is in the place of the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(longer("I will look.", ""))
			c.add(longer("I will look.", " "), result("c3", "/")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"another answer with the same id is in the place of the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("call_0", "bash", `{"cmd": "ls"}`))
			c.add(does("call_0", "edit", "{}"), result("call_0", "ok")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"a short text is in the place of the answer, and happens to be a part of it", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("I will look into it"))
			c.add(says("ok"), user("go on")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"a text is in the place of the answer, and happens to contain it", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("no"))
			c.add(says("nothing is known"), user("go on")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"OpenCode: a call of an unknown tool becomes a call of another tool", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("c2", "find", `{"name": "x"}`))
			c.add(does("c2", "invalid", `{"tool": "find", "error": "unavailable"}`), result("c2", "no such tool")).call(done)
		}, "1:main0 2:main0 3:main0", 2, "I fixed it"},
		{"the place of the answer is empty in a request that failed", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool)
			c.add(says("[lost]"), user("go on")).call(done, failed)
		}, "1:main0 2:main0!ambiguous_retry", 1, ""},
		{"the answer has other ids in the history", func(h *harness) {
			c := h.mainConv()
			c.call(tool)
			other := tool
			other.calls = []toolCall{{"x", "bash", `{"cmd":"grep -n loop main.go"}`}}
			c.add(other, result("x", "ok")).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"a part of two answers to equal requests", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
			c := h.subConv("look")
			a, b := c.begin(), c.begin()
			a.end(says("one and two"))
			b.end(says("one and three"))
			c.add(says("one"), user("go on")).call(says("looked"))
			m.call(done)
		}, "1:main0 2:subagent1 3:subagent2!ambiguous_retry 4:subagent2 5:main0", 3, "I fixed it"},
		{"the same id in two answers to equal requests, and other arguments in the history", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
			c := h.subConv("look")
			a, b := c.begin(), c.begin()
			a.end(does("bash:0", "bash", `{"cmd":"ls"}`))
			b.end(does("bash:0", "bash", `{"cmd":"pwd"}`))
			c.add(does("bash:0", "bash", "{}"), result("bash:0", "ok")).call(says("looked"))
			m.call(done)
		}, "1:main0 2:subagent1 3:subagent2!ambiguous_retry 4:subagent2 5:main0", 3, "I fixed it"},
		{"one of two tool calls is in the history", func(h *harness) {
			c := h.mainConv()
			c.call(msg{role: "assistant", calls: append(runs.calls[:1:1], tool.calls...)})
			c.add(tool, result("c2", "ok")).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"the answer is a text with its arguments in the history", func(h *harness) {
			c := h.mainConv()
			c.call(does("c2", "bash", `{"cmd": "echo \"a\"\nls > \"b\"", "n": 1}`))
			c.add(says(`Calling tools: [{'name': 'bash', 'arguments': {'cmd': 'echo "a"\nls > "b"', 'n': 1}}]`), user("Observation: ok")).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"the history has a text with other arguments", func(h *harness) {
			c := h.mainConv()
			c.call(tool)
			c.add(says("Calling tools: [{'name': 'bash', 'arguments': {'cmd': 'ls'}}]"), user("Observation: ok")).call(done)
		}, "1:main0!ambiguous_retry 2:main0", 1, "I fixed it"},
		{"the history has a text with the name, and the arguments are not strings", func(h *harness) {
			c := h.mainConv()
			c.call(does("c2", "bash", `{"lines": [7, 12], "all": true}`))
			c.add(says("bash is not available"), user("go on")).call(done)
		}, "1:main0!ambiguous_retry 2:main0", 1, "I fixed it"},
		{"the history has a text with the name, and there are no arguments", func(h *harness) {
			c := h.mainConv()
			c.call(does("c2", "bash", "{}"))
			c.add(says("bash is not available"), user("go on")).call(done)
		}, "1:main0!ambiguous_retry 2:main0", 1, "I fixed it"},
		{"the answer is a text with its arguments in the history, and they are not strings", func(h *harness) {
			c := h.mainConv()
			c.call(does("c2", "bash", `{"lines": [7, 12], "all": true, "at": null}`))
			c.add(says("Calling tools: [{'name': 'bash', 'arguments': {'lines': [7, 12], 'all': True, 'at': None}}]"), user("Observation: ok")).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"the history has a text with other numbers", func(h *harness) {
			c := h.mainConv()
			c.call(does("c2", "bash", `{"lines": [7, 2]}`))
			c.add(says("Calling tools: [{'name': 'bash', 'arguments': {'lines': [7, 12]}}]"), user("Observation: ok")).call(done)
		}, "1:main0!ambiguous_retry 2:main0", 1, "I fixed it"},
		{"an empty answer that stays in the history, with other tokens", func(h *harness) {
			c := h.mainConv()
			c.call(thinks("hm", says("")))
			c.add(says(""), user("go on")).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"a user message with the text of the answer is not the answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("ok"), retry(0))
			c.add(result("x", "ok"), user("ok")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},

		{"a reply that names the tool", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("c2", "bash", "not JSON"))
			c.add(user("error in the call of bash")).call(done)
		}, "1:main0 2:main0 3:main0", 2, "I fixed it"},
		{"a reply that does not name the tool", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(tool)
			c.add(user("the connection was closed")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"a reply that is a retry by its own statement", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("I would do it"))
			c.add(user("go on")).call(done, retry(1))
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
	})
}
