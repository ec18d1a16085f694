package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestParents has one case for each proof of the call that started a subagent, and for each missing
// proof. For each subagent, want contains the number of the call, or 0.
func TestParents(t *testing.T) {
	t.Parallel()
	const one, two = "The bug is in the second loop of main.go.", "The tests are in main_test.go, in the last part."
	agents := func(ids ...string) msg {
		prompts := map[string]string{"s": `{"prompt":"look"}`, "t": `{"prompts":["look again","look deeper"]}`}
		m := does(ids[0], "agent", prompts[ids[0]])
		for _, id := range ids[1:] {
			m.calls = append(m.calls, toolCall{id, "agent", prompts[id]})
		}
		return m
	}
	named := func(agent, parent string) change {
		return func(c *session.Call) { c.Agent, c.ParentAgent = agent, parent }
	}
	// nested runs two agents. The first agent starts the second. The changes apply to the calls of the
	// main agent and of the second agent.
	nested := func(inner, outer string, changes ...change) func(h *harness) {
		return func(h *harness) {
			m := h.mainConv()
			m.call(agents("s"), changes...)
			m.add(agents("s"))
			sub := h.conv("bash agent", system("you are a subagent"), user("look"))
			sub.call(agents("t"))
			sub.add(agents("t"))
			h.subConv("look deeper").call(says(one), changes...)
			sub.add(result("t", inner)).call(says(two))
			m.add(result("s", outer)).call(done)
		}
	}
	const prompt = "Find the bug in the second loop of the program."
	// later starts an agent with a prompt. The agent's first message is message, and its result comes later.
	later := func(argument, message string, back msg) func(h *harness) {
		return func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", `{"id":7,"prompt":"`+argument+`"}`), result("s", "started"))
			p := h.conv("bash agent", system("you are a subagent"), user(message)).begin()
			m.turn(does("w", "wait", "{}"))
			p.end(says(one))
			m.add(back).call(done)
		}
	}
	for _, c := range []struct {
		name string
		run  func(h *harness)
		want string
	}{
		{"a result", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(says(one))
			m.add(result("s", "<result>\n"+one+"\n</result>")).call(done)
		}, "1"},
		{"a request that failed has the result", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(says(one))
			m.add(result("s", one)).call(done, failed)
		}, "1"},
		{"a short text", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(says("ok"))
			m.add(result("s", "ok")).call(done)
		}, "0"},
		{"a part of the text", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(says(one))
			m.add(result("s", one[:35])).call(done)
		}, "0"},
		{"a user message", func(h *harness) {
			m := h.mainConv().turn(agents("s"), result("s", "started"))
			h.subConv("look").call(says(one))
			m.add(user(one)).call(done)
		}, "0"},
		{"the result of a later call", func(h *harness) {
			m := h.mainConv().turn(agents("s"), result("s", "started"))
			p := h.subConv("look").begin()
			m.turn(does("w", "wait", "{}"))
			p.end(says(one))
			m.add(result("w", one)).call(done)
		}, "0"},
		{"the result of a later call that ended before the agent's first request", func(h *harness) {
			m := h.mainConv().turn(agents("s"), result("s", "started"))
			m.call(does("w", "wait", "{}"))
			h.subConv("look").call(says(one))
			m.add(does("w", "wait", "{}"), result("w", one)).call(done)
		}, "0"},
		{"a prompt that is not in the arguments", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look at the file").call(says(one))
			m.add(result("s", one)).call(done)
		}, "0"},
		{"a result with another id", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(says(one))
			m.add(result("x", one)).call(done)
		}, "0"},
		{"two agents of one answer", func(h *harness) {
			m := h.mainConv().turn(agents("s", "t"))
			h.subConv("look").call(says(one))
			h.subConv("look again").call(says(two))
			m.add(result("s", one), result("t", two)).call(done)
		}, "1 1"},
		{"two agents of one answer in one result", func(h *harness) {
			m := h.mainConv().turn(agents("s", "t"))
			h.subConv("look").call(says(one))
			h.subConv("look again").call(says(two))
			m.add(result("s", one+"\n"+two), result("t", "lost")).call(done)
		}, "1 1"},
		{"an agent whose result is only in the result of another agent", nested("lost", one+"\n"+two), "1 0"},
		{"two agents of one answer with the same text", func(h *harness) {
			m := h.mainConv().turn(agents("s", "t"))
			h.subConv("look").call(says(one))
			h.subConv("look again").call(says(one))
			m.add(result("s", one), result("t", one)).call(done)
		}, "1 1"},
		{"the same text, and one result", func(h *harness) {
			m := h.mainConv().turn(agents("s", "t"))
			h.subConv("look").call(says(one))
			h.subConv("look again").call(says(one))
			m.add(result("s", one), result("t", "lost")).call(done)
		}, "0 0"},
		{"the same text, and headers", func(h *harness) {
			m := h.mainConv()
			m.call(agents("s", "t"), named("main", ""))
			m.add(agents("s", "t"))
			h.subConv("look").call(says(one), named("a", "main"))
			h.subConv("look again").call(says(one), named("b", "other"))
			m.add(result("s", one), result("t", "lost")).call(done)
		}, "1 0"},
		{"headers alone", func(h *harness) {
			m := h.mainConv()
			m.call(agents("s"), named("main", ""))
			h.subConv("look").call(says(one), named("a", "main"))
			m.add(agents("s"), result("s", "lost")).call(done)
		}, "0"},
		{"the prompt had the text", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("say: " + one).call(says(one))
			m.add(result("s", one)).call(done)
		}, "0"},
		{"a prompt, and the result of a later call", later(prompt, prompt, result("w", one)), "1"},
		{"a prompt after a reminder, and a user message", later(prompt, "<reminder>\n"+prompt, user("agent 7: "+one)), "1"},
		{"a prompt, and a system message", later(prompt, prompt, system("<result>"+one+"</result>")), "1"},
		{"a prompt, but no result", later(prompt, prompt, result("w", "nothing")), "0"},
		{"a part of a prompt", later(prompt+" Now.", prompt, result("w", one)), "0"},
		{"a prompt with more text", later(prompt, prompt+" Now.", result("w", one)), "0"},
		{"a prompt that ends with the argument of another call", later(prompt, "Do this: "+prompt, result("w", one)), "0"},
		{"a short prompt", later("look", "look", result("w", one)), "0"},
		{"a prompt of two answers", func(h *harness) {
			m := h.mainConv().turn(does("r", "agent", `{"prompt":"`+prompt+`"}`), result("r", "failed"))
			m.turn(does("s", "agent", `{"prompt":"`+prompt+`"}`), result("s", "started"))
			h.conv("bash agent", system("you are a subagent"), user(prompt)).call(says(one))
			m.add(user(one)).call(done)
		}, "0"},
		{"a prompt in a file, and an agent that reads it", func(h *harness) {
			m := h.mainConv().turn(does("w", "edit", `{"path":"p.txt","text":"`+prompt+`"}`), result("w", "written"))
			m.turn(does("s", "agent", `{"path":"p.txt"}`), result("s", "started"))
			h.conv("bash agent", system("you are a subagent"), user(prompt)).call(says(one))
			m.add(user(one)).call(done)
		}, "0"},
		{"a prompt, and a result in another conversation", func(h *harness) {
			m := h.mainConv().turn(does("s", "agent", `{"prompt":"`+prompt+`"}`), result("s", "started"))
			h.conv("bash agent", system("you are a subagent"), user(prompt)).call(says(one))
			h.subConv("read: " + one).call(says(two))
			m.add(user("done")).call(done)
		}, "0 0"},
		{"nested agents", nested(one, two), "1 2"},
		{"the outer result has both texts", nested(one, one+" "+two), "1 2"},
		{"the outer result has both texts, and headers", nested(one, one+" "+two, named("x", "")), "1 2"},
		{"headers contradict the result", func(h *harness) {
			m := h.mainConv()
			m.call(agents("s"), named("main", ""))
			h.subConv("look").call(says(one), named("a", "other"))
			m.add(agents("s"), result("s", one)).call(done)
		}, "0"},
		{"an agent that calls tools", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").turn(runs, files).call(says(one))
			m.add(result("s", one)).call(done)
		}, "1"},
		{"a lost answer that is repeated", func(h *harness) {
			m := h.mainConv().turn(agents("s"))
			h.subConv("look").call(runs, undelivered)
			h.subConv("look").turn(runs, files).call(says(one))
			m.add(result("s", one)).call(done)
		}, "1"},
	} {
		h := newHarness(task)
		c.run(h)
		out, _ := h.build(t, session.Config{})
		var got []string
		for _, x := range out.Chains[1:] {
			n := 0
			if x.Parent >= 0 {
				n = out.Number[x.Parent]
			}
			got = append(got, fmt.Sprint(n))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: the parents are %s, want %s\n%s", c.name, got, c.want, summary(out))
		}
	}
}
