package session_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

const task = "fix the bug in main.go"

// mainConv is a conversation about the task.
func (h *harness) mainConv() *conv {
	return h.conv("bash edit agent", system("you are an agent"), user(task))
}

func (h *harness) subConv(text string) *conv {
	return h.conv("bash edit", system("you are a subagent"), user(text))
}

var (
	runs  = thinks("hm ", does("c1", "bash", `{"cmd": "ls"}`))
	again = does("c1", "bash", `{"cmd":"ls"}`) // as most harnesses send it back
	files = result("c1", "main.go")
	done  = says("I fixed it")
)

// A buildCase is a session and the result of Build. The result lists the calls. The number after the
// kind is the number of the chain.
type buildCase struct {
	name string
	do   func(h *harness)
	want string
	rows int
	text string
}

// TestBuild has one case for each known behavior of a harness.
func TestBuild(t *testing.T) {
	t.Parallel()
	runBuildCases(t, []buildCase{
		{"the history is sent back unchanged", func(h *harness) {
			h.mainConv().turn(runs, files).call(done)
		}, "1:main0 2:main0", 1, "I fixed it"},
		{"arguments are serialized again", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.add(thinks("hm ", again), files).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"reasoning is trimmed", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.add(thinks("hm", runs), files).call(done)
		}, "1:main0 2:main0", 2, "I fixed it"},
		{"reasoning is dropped, also from an answer without tools", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.add(again, files).call(thinks("easy", says("first half")))
			c.add(says("first half\n"), user("continue")).call(done)
		}, "1:main0 2:main0 3:main0", 3, "I fixed it"},
		{"content is null, then empty, then a list of parts", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.add(msg{role: "assistant", calls: again.calls}, files).call(says("half"))
			c.add(msg{role: "assistant", text: "half", parts: true}, user("more")).call(done)
		}, "1:main0 2:main0 3:main0", 2, "I fixed it"},
		{"parallel tool calls", func(h *harness) {
			two := msg{role: "assistant", calls: []toolCall{{"a", "bash", "{}"}, {"b", "edit", "{}"}}}
			h.mainConv().turn(two, result("b", "2"), result("a", "1")).call(done)
		}, "1:main0 2:main0", 1, "I fixed it"},

		{"a cut stream, then the same body again", func(h *harness) {
			c := h.mainConv()
			c.call(runs, cut(5, says("")))
			c.turn(runs, files).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 1, "I fixed it"},
		{"an answer cut in the middle of a conversation, three times", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			for range 3 {
				c.call(done, cut(3, says("I f")))
			}
			c.call(done)
		}, "1:main0 2:main0!superseded 3:main0!superseded 4:main0!superseded 5:main0", 1, "I fixed it"},
		{"the cut answer is a prefix of the second answer", func(h *harness) {
			c := h.mainConv()
			c.call(says("I will look at it"), cut(6, says("I will")))
			c.turn(says("I will look at it"), user("go on")).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 1, "I fixed it"},
		{"opencode: the cut answer and the second answer are both in the history", func(h *harness) {
			c := h.mainConv()
			c.call(does("x1", "bash", `{"cmd": "pwd"}`), cut(8, does("x1", "bash", "")))
			c.call(does("x2", "bash", `{"cmd": "pwd"}`))
			c.add(does("x1", "bash", "{}"), result("x1", "Tool execution aborted"), does("x2", "bash", `{"cmd":"pwd"}`), result("x2", "/")).call(done)
		}, "1:main0!superseded 2:main0 3:main0", 2, "I fixed it"},
		{"a cut answer that a later prompt contains token by token is trained", func(h *harness) {
			c := h.mainConv()
			c.call(says("I will look"), cut(12, says("I will look")))
			c.add(says("I will look"), user("you were cut off")).call(done)
		}, "1:main0 2:main0", 1, "I fixed it"},
		{"a cut answer of which a later prompt contains a part is not trained", func(h *harness) {
			c := h.mainConv()
			c.call(says("I will look at the file"), cut(11, says("I will look")))
			c.add(says("I will"), user("you were cut off")).call(done)
		}, "1:main0!cut_answer 2:main0", 1, "I fixed it"},
		{"Letta Code: the user message is appended again after a cut", func(h *harness) {
			c := h.mainConv()
			c.call(runs, cut(5, says("")))
			c.add(user("reminder: "+task)).turn(runs, files).call(done)
		}, "1:main0!cut_answer 2:main0 3:main0", 1, "I fixed it"},
		{"Letta Code: the user message is appended again after each failure", func(h *harness) {
			c := h.mainConv()
			for range 3 {
				c.call(runs, failed)
				c.call(runs, failed)
				c.add(user(task))
			}
			c.turn(runs, files).call(done)
		}, "7:main0 8:main0", 1, "I fixed it"},
		{"Qwen Code: an answer stopped by the limit is dropped, and the request repeated", func(h *harness) {
			c := h.mainConv()
			c.call(says("much too long"), stopped)
			c.turn(runs, files).call(done)
		}, "1:main0!cut_answer 2:main0 3:main0", 1, "I fixed it"},
		{"an answer stopped by the limit is the last one", func(h *harness) {
			h.mainConv().turn(runs, files).call(says("so"), stopped)
		}, "1:main0 2:main0", 1, "so"},
		{"an answer stopped by the limit stays in the history", func(h *harness) {
			c := h.mainConv()
			c.call(says("so"), stopped)
			c.add(says("so"), user("continue")).call(done)
		}, "1:main0 2:main0", 1, "I fixed it"},
		{"a 500, then the same body again", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(done, failed)
			c.call(done, retry(1))
		}, "1:main0 3:main0", 1, "I fixed it"},
		{"the SDK retries after it closed the connection early", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("too late"), undelivered)
			c.call(done, retry(1))
		}, "1:main0 2:main0!superseded 3:main0", 1, "I fixed it"},
		{"the SDK retries although the answer was delivered", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("lost", "bash", "{}"), retry(0))
			c.call(done, retry(1))
		}, "1:main0 2:main0!superseded 3:main0", 1, "I fixed it"},
		{"a failed request explains the retry", func(h *harness) {
			c := h.subConv("look")
			h.mainConv().turn(runs, files).call(done)
			c.call(says("one"))
			c.call(says(""), failed)
			c.call(says("two"), retry(1))
		}, "1:main0 2:main0 3:subagent1!ambiguous_retry 5:subagent1", 2, "I fixed it"},
		{"a retry of one of two equal requests", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), files)
			c := h.subConv("look")
			a, b := c.begin(), c.begin()
			a.end(says("one"))
			b.end(says("two"))
			c.call(says("three"), retry(1))
			m.call(done)
		}, "1:main0 2:subagent1!ambiguous_retry 3:subagent2!ambiguous_retry 4:subagent1 5:main0", 2, "I fixed it"},
		{"the same body again after a delivered tool call", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("c2", "bash", "{}"))
			c.turn(does("c3", "bash", "{}"), result("c3", "ok")).call(done)
		}, "1:main0 2:main0!ambiguous_retry 3:main0 4:main0", 1, "I fixed it"},
		{"Qwen Code: an empty answer, then the same body again, four times", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			for range 4 {
				c.call(says(""), retry(0))
			}
			c.call(says(""), retry(0))
		}, "1:main0 2:main0!ambiguous_retry 3:main0!ambiguous_retry 4:main0!ambiguous_retry 5:main0!ambiguous_retry 6:main0", 1, ""},
		{"Qwen Code: an empty first answer, and one with only reasoning, then the same body again", func(h *harness) {
			c := h.mainConv()
			c.call(says(""), retry(0))
			c.call(thinks("hm", says("")), retry(0))
			c.turn(runs, files).call(done)
		}, "1:main0!ambiguous_retry 2:main0!ambiguous_retry 3:main0 4:main0", 1, "I fixed it"},
		{"Qwen Code: an answer with leaked protocol tags, then the same body again", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("<tool_call>bash"), retry(0))
			c.call(done, retry(0))
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 1, "I fixed it"},
		{"the first answer is a text, then the same body again", func(h *harness) {
			c := h.mainConv()
			c.call(says("<tool_call>bash"), retry(0))
			c.turn(runs, files).call(done)
		}, "1:main0!ambiguous_retry 2:main0 3:main0", 1, "I fixed it"},
		{"the request with the answer fails, and the harness goes back", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("c2", "bash", "{}"))
			c.clone(does("c2", "bash", "{}"), result("c2", "much too long")).call(done, failed)
			c.call(done)
		}, "1:main0 2:main1 4:main0", 2, "I fixed it"},
		{"the request with the first answer fails, and the harness begins again", func(h *harness) {
			c := h.mainConv()
			c.call(does("c1", "bash", "{}"))
			c.clone(does("c1", "bash", "{}"), result("c1", "much too long")).call(done, failed)
			c.turn(runs, files).call(done)
		}, "1:subagent1 3:main0 4:main0", 2, "I fixed it"},
		{"a retry with another prompt proves nothing", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("lost", "bash", "{}"), retry(0))
			c.call(done, retry(1), otherPrompt)
		}, "1:main0 2:main0!ambiguous_retry 3:main0", 2, "I fixed it"},
		{"an empty answer that stays in the history", func(h *harness) {
			h.mainConv().turn(says(""), user("go on")).call(done)
		}, "1:main0 2:main0", 1, "I fixed it"},
		{"a reminder after an empty answer", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says(""))
			c.add(user("your answer was empty")).call(done)
		}, "1:main0 2:main0 3:main0", 2, "I fixed it"},
		{"mini-swe-agent: answers without a tool call, each dropped with an error as reply", func(h *harness) {
			c := h.mainConv()
			c.call(says("I would do it"))
			c.add(user("Tool call error: no tool calls")).call(says("I really would"))
			c.add(user("Tool call error: no tool calls")).call(says("no"))
		}, "1:main0 2:main0 3:main0", 3, "no"},
		{"mini-swe-agent: an answer without a tool call in the middle", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("I would do it"))
			c.add(user("Tool call error: no tool calls")).turn(does("c2", "bash", "{}"), result("c2", "ok")).call(done)
		}, "1:main0 2:main0 3:main0 4:main0", 2, "I fixed it"},
		{"mini-swe-agent: the reply to a rejected answer is cut off, then fails, then succeeds", func(h *harness) {
			c := h.subConv("look")
			h.mainConv().turn(does("s", "agent", "{}"), result("s", "started")).call(done)
			c.call(says("I would do it"))
			c.add(user("Tool call error: no tool calls"))
			c.call(runs, cut(3, says("")))
			c.call(runs, failed)
			c.turn(runs, files).call(done)
		}, "1:main0 2:main0 3:subagent1 4:subagent1!superseded 6:subagent1 7:subagent1", 3, "I fixed it"},
		{"mini-swe-agent: an answer stopped by the limit, dropped with an error as reply", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(says("much too long"), stopped)
			c.add(user("Tool call error: too long")).call(done)
		}, "1:main0 2:main0!cut_answer 3:main0", 1, "I fixed it"},
		{"the task is stated again after a delivered answer", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.add(user("reminder: "+task)).turn(again, files).call(done)
		}, "1:main0!ambiguous_retry 2:main0 3:main0", 1, "I fixed it"},
		{"the run ends during a call", func(h *harness) {
			h.mainConv().turn(runs, files).call(done, cut(3, says("I f")))
		}, "1:main0 2:main0!cut_answer", 1, ""},
		{"the answer has no ids", func(h *harness) {
			c := h.mainConv()
			c.call(runs, noIDs)
			c.add(runs, files).turn(does("c2", "edit", "{}"), result("c2", "ok")).call(done)
		}, "1:main0!no_ids 2:main0 3:main0", 1, "I fixed it"},
		{"fewer ids than the engine counted", func(h *harness) {
			c := h.mainConv().turn(runs, files)
			c.call(does("c2", "edit", "{}"), func(c *session.Call) { c.OutputTokens++ })
			c.add(does("c2", "edit", "{}"), result("c2", "ok")).call(done)
		}, "1:main0 2:main0!no_ids 3:main0", 1, "I fixed it"},
		{"fewer log-probabilities than ids", func(h *harness) {
			h.mainConv().turn(runs, files).call(done, func(c *session.Call) { c.Logprobs = c.Logprobs[1:] })
		}, "1:main0 2:main0!length_mismatch", 1, "I fixed it"},

		{"a title call at the same time, with the same text", func(h *harness) {
			title := h.conv("", system("you are a title generator"), user("Generate a title"), user(`"`+task+`"`)).begin()
			m := h.conv("bash edit agent", system("you are an agent"), user(`"`+task+`"`))
			first := m.begin()
			title.end(says("Bug fix"))
			first.end(runs)
			m.add(runs, files).call(done)
		}, "1:auxiliary1!auxiliary 2:main0 3:main0", 1, "I fixed it"},
		{"a memory extraction with the history of the run", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(done)
			x := h.conv("bash edit", append([]msg{system("managed memory extraction subagent")}, m.msgs[1:]...)...).add(user("extract"))
			x.turn(does("m1", "edit", "{}"), result("m1", "ok")).call(says("saved"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:auxiliary1!auxiliary", 1, "I fixed it"},
		{"a memory extraction with tools of its own", func(h *harness) {
			h.mainConv().turn(runs, files).call(done)
			h.conv("remember", system("managed memory extraction subagent"), user(task)).call(says("saved"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary", 1, "I fixed it"},
		{"Qwen Code: a memory extraction with the history, and tools of its own besides a tool of the run", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(done)
			x := h.conv("edit remember", append([]msg{system("managed memory extraction subagent")}, m.msgs[1:]...)...).add(user("extract"))
			x.turn(does("m1", "remember", "{}"), result("m1", "ok")).call(says("saved"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:auxiliary1!auxiliary", 1, "I fixed it"},
		{"a title after the run, with the history and without tools", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(done)
			(&conv{h, nil, m.clone(user("a title for this")).msgs}).call(says("Bug fix"))
			h.conv("", system("title generator"), user(task)).call(says("Bug fix"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:auxiliary2!auxiliary", 1, "I fixed it"},
		{"a question about the conversation, in the conversation", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(done)
			(&conv{h, []string{"respond"}, m.clone(user("who speaks next?")).msgs}).call(says("user"))
		}, "1:main0 2:main0 3:auxiliary1!auxiliary", 1, "I fixed it"},
		{"one answer without tools inside the conversation", func(h *harness) {
			m := h.mainConv().turn(runs, files)
			none := (&conv{h, nil, m.clone(user("think first")).msgs}).turn(says("I think"), user("now act"))
			(&conv{h, m.tool, none.msgs}).call(done)
		}, "1:main0 2:main1 3:main0", 2, "I fixed it"},
		{"a compaction by a summary, then a new prompt", func(h *harness) {
			m := h.mainConv().turn(runs, files)
			m.call(done, failed) // the prompt is too long
			h.conv("", system("context summarization assistant"), user("the history: "+task+" ls main.go")).call(says("We listed the files."))
			h.conv("bash edit agent", system("you are an agent"), user("Summary: We listed the files.")).turn(does("c2", "edit", "{}"), result("c2", "ok")).call(done)
		}, "1:main0 3:auxiliary1!auxiliary 4:main0 5:main0", 2, "I fixed it"},
		{"a compaction in the conversation itself", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(does("c2", "edit", "{}"), result("c2", "ok"))
			m.clone(user("summarize")).call(says("A long summary of everything that happened so far."))
			h.conv("bash edit agent", system("you are an agent"), user("A long summary of everything that happened so far.")).call(done)
		}, "1:main0 2:main0 3:main0 4:main0", 2, "I fixed it"},
		{"Qwen Code: a compaction with the tools of the run, again without tools, then a new prompt", func(h *harness) {
			m := h.mainConv().turn(runs, files).turn(does("c2", "edit", "{}"), result("c2", "ok"))
			m.call(done, failed) // the prompt is too long
			m.clone(user("summarize")).call(does("c3", "bash", "{}"))
			(&conv{h, nil, m.clone(user("summarize")).msgs}).call(says("We listed the files and edited main.go."))
			h.conv("bash edit agent", system("you are an agent"), user("Summary: We listed the files and edited main.go."), says("Got it.")).call(done)
		}, "1:main0 2:main0 4:main0 5:auxiliary1!auxiliary 6:main0", 2, "I fixed it"},
		{"Qwen Code: the harness drops the summary and continues", func(h *harness) {
			m := h.mainConv().turn(runs, files)
			m.clone(user("summarize")).call(says("We listed the files."))
			m.turn(does("c2", "edit", "{}"), result("c2", "ok")).call(done)
		}, "1:main0 2:main1 3:main0 4:main0", 2, "I fixed it"},
		{"old results are removed from the history", func(h *harness) {
			c := h.mainConv().turn(runs, files).turn(does("c2", "edit", "{}"), result("c2", "ok"))
			c.msgs[3].text = "[removed]"
			c.call(done)
		}, "1:main0 2:main0 3:main0", 2, "I fixed it"},
		{"smolagents: the history is rendered again as text", func(h *harness) {
			c := h.mainConv()
			c.call(does("c1", "bash", "{}"))
			c.add(says("Calling tools:\n[{'name': 'bash', 'arguments': {}}]"), user("Observation: ok")).call(does("c2", "bash", "{}"))
			c.add(says("Calling tools:\n[{'name': 'bash', 'arguments': {}}] 2"), user("Observation: ok")).call(done)
		}, "1:main0 2:main0 3:main0", 3, "I fixed it"},
		{"the time in the system message", func(h *harness) {
			c := h.mainConv()
			for i, clock := range []string{"10:00", "10:01", "10:02"} {
				c.msgs[0] = system("it is " + clock)
				c.turn(does(clock, "bash", "{}"), result(clock, string(rune('a'+i))))
			}
		}, "1:main0 2:main0 3:main0", 3, ""},

		{"a subagent between two calls", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			h.subConv("look").turn(runs, files).call(says("looked"))
			m.add(result("s", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent1 4:main0", 2, "I fixed it"},
		{"Qwen Code: a subagent in the background, with tools that the run does not have", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
			c := h.conv("bash edit web monitor", system("you are a subagent"), user("look"))
			c.call(runs)
			m.turn(does("c2", "edit", "{}"), result("c2", "ok"))
			c.add(runs, files).call(says("looked"))
			m.turn(says("waiting"), user("task-notification: looked")).call(done)
		}, "1:main0 2:subagent1 3:main0 4:subagent1 5:main0 6:main0", 2, "I fixed it"},
		{"two subagents of the same type, one after the other", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			h.subConv("look").turn(runs, files).call(says("looked"))
			m.add(result("s", "looked")).turn(does("t", "agent", "{}"))
			h.subConv("look again").turn(does("d1", "bash", "{}"), result("d1", "x")).call(says("looked"))
			m.add(result("t", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent1 4:main0 5:subagent2 6:subagent2 7:main0", 3, "I fixed it"},
		{"four nested subagents with equal requests, at the same time", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			var all []*pending
			for range 4 {
				all = append(all, c.begin())
			}
			for i, p := range all {
				p.end(does("n"+string(rune('0'+i)), "bash", "{}"))
			}
			for _, i := range []int{2, 0, 3, 1} {
				id := "n" + string(rune('0'+i))
				c.clone(does(id, "bash", "{}"), result(id, "ok")).call(says("looked"))
			}
			m.add(result("s", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent2 4:subagent3 5:subagent4 6:subagent3 7:subagent1 8:subagent4 9:subagent2 10:main0", 5, "I fixed it"},
		{"four nested subagents with equal requests, one inside the other", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			for i := range 3 {
				c.call(does("n"+string(rune('0'+i)), "agent", "{}"))
			}
			c.call(says("looked"))
			for i := 2; i >= 0; i-- {
				id := "n" + string(rune('0'+i))
				c.clone(does(id, "agent", "{}"), result(id, "looked")).call(says("looked too"))
			}
			m.add(result("s", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent2 4:subagent3 5:subagent4 6:subagent3 7:subagent2 8:subagent1 9:main0", 5, "I fixed it"},
		{"subagents whose tool calls have the same ids", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			a, b := c.begin(), c.begin()
			a.end(does("bash:0", "bash", `{"cmd":"ls"}`))
			b.end(does("bash:0", "bash", `{"cmd":"pwd"}`))
			c.clone(does("bash:0", "bash", `{"cmd":"ls"}`), result("bash:0", "x")).call(says("one"))
			c.clone(does("bash:0", "bash", `{"cmd":"pwd"}`), result("bash:0", "/")).call(says("two"))
			m.add(result("s", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent2 4:subagent1 5:subagent2 6:main0", 3, "I fixed it"},
		{"subagents with equal requests, whose answers the harness shortens", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"))
			c := h.subConv("look")
			a, b := c.begin(), c.begin()
			a.end(says("one and more"))
			b.end(says("two and more"))
			c.clone(says("one"), user("and now?")).call(says("done"))
			c.clone(says("two"), user("and now?")).call(says("done"))
			m.add(result("s", "looked")).call(done)
		}, "1:main0 2:subagent1 3:subagent2 4:subagent1 5:subagent2 6:main0", 5, "I fixed it"},
		{"the harness ends without the result of its subagent", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
			p := h.subConv("look").begin()
			m.call(done)
			p.end(runs, cut(2, says("")))
		}, "1:main0 2:subagent1!cut_answer 3:main0", 1, "I fixed it"},
		{"two continuations of one call", func(h *harness) {
			m := h.mainConv().turn(runs, files)
			a, b := m.clone(user("try A")), m.clone(user("try B"))
			p, q := a.begin(), b.begin()
			p.end(does("a", "bash", "{}"))
			q.end(does("b", "bash", "{}"))
			b.add(does("b", "bash", "{}"), result("b", "no")).call(says("B"))
			a.add(does("a", "bash", "{}"), result("a", "yes")).call(done)
		}, "1:main0 2:main0 3:main1 4:main1 5:main0", 2, "I fixed it"},
	})
}

func runBuildCases(t *testing.T, cases []buildCase) {
	t.Helper()
	for _, tt := range cases {
		h := newHarness(task)
		tt.do(h)
		out, err := session.Build(&h.record, session.Config{})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		rows, err := verify(&h.record, out)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := summary(out); got != tt.want || len(rows) != tt.rows || out.Main.Text != tt.text {
			t.Errorf("%s: %d rows, text %q\n got %s\nwant %s", tt.name, len(rows), out.Main.Text, got, tt.want)
		}
		for i := range out.Calls { // a call after a tool result has a tool span
			c := &h.record.Calls[out.Number[i]-1]
			last := string(h.record.Texts[c.Messages[len(c.Messages)-1]])
			if tool := strings.Contains(last, `"role":"tool"`); tool && out.Calls[i].After != tokenize.RoleTool {
				t.Errorf("%s: call %d: After is %v", tt.name, c.Number, out.Calls[i].After)
			}
		}
		slices.Reverse(h.record.Calls)
		if again, err := session.Build(&h.record, session.Config{}); err != nil || !reflect.DeepEqual(again, out) {
			t.Errorf("%s: another result for another order of the calls: %v", tt.name, err)
		}
	}
}
