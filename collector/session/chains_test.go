package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestLateSummary checks that a conversation continues after a summary, however many calls of
// subagents were between them.
func TestLateSummary(t *testing.T) {
	t.Parallel()
	const summary = "The files are listed, and the bug is in main.go."
	for _, tt := range []struct {
		name string
		last msg // of the conversation before the summary
	}{
		{"after a tool call", does("c2", "agent", "{}")},
		{"after a text", says("I have seen enough of the files, and I will go on.")},
	} {
		h := newHarness(task)
		m := h.mainConv().turn(runs, files)
		m.call(tt.last)
		m.clone(tt.last, result("c2", "much too long")).call(done, failed)
		for i := range 200 {
			h.subConv(fmt.Sprint("look ", i)).turn(does(fmt.Sprint("s", i), "bash", "{}"), result(fmt.Sprint("s", i), "ok")).call(says("ok"))
		}
		h.conv("", system("you summarize"), user("the history")).call(says(summary))
		for i := range 200 {
			h.subConv(fmt.Sprint("look again ", i)).call(says("ok"))
		}
		h.conv("bash edit agent", system("you are an agent"), user(summary+" Continue.")).call(done)
		out, _ := h.build(t, session.Config{})
		if got := out.Chains[0].Calls; len(got) != 3 || out.Main.Text != "I fixed it" || len(out.Chains) != 402 {
			t.Errorf("%s: the main chain has the calls %v of %d chains", tt.name, got, len(out.Chains))
		}
	}
}

// TestTitleIsNoSummary checks that an unfinished conversation does not continue with another one if the
// only call without tools began before it ended.
func TestTitleIsNoSummary(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	m := h.mainConv().turn(does("s", "agent", "{}"))
	title := h.conv("", system("title generator"), user(task)).begin()
	c := h.subConv("look").begin()
	title.end(says("Bug fix"))
	c.end(runs)
	h.subConv("look again").turn(runs, files).call(says("looked"))
	m.add(result("s", "looked")).call(done)
	out, _ := h.build(t, session.Config{})
	if got, want := summary(out), "1:main0 2:auxiliary1!auxiliary 3:subagent2 4:subagent3 5:subagent3 6:main0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTwoProcesses checks that two processes with the same conversation at the same time are two
// conversations, also if the model gives them the same answers.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	c := h.mainConv()
	for i := range 3 {
		a, b := c.begin(), c.begin()
		answer := does(fmt.Sprint("bash:", i), "bash", "{}")
		b.end(answer)
		a.end(answer)
		c.add(answer, result(fmt.Sprint("bash:", i), "ok"))
	}
	a, b := c.begin(), c.begin()
	a.end(done)
	b.end(says("It is fixed"))
	out, _ := h.build(t, session.Config{})
	if out.Tally.Trained != out.Tally.Sampled || len(out.Chains) != 2 || len(out.Chains[0].Calls) != 4 || len(out.Chains[1].Calls) != 4 {
		t.Errorf("%+v: %s", out.Tally, summary(out))
	}
}

// TestRepeatedIDs checks a conversation whose tool calls all have the same id, and whose history is
// changed in each request.
func TestRepeatedIDs(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	c := h.mainConv()
	for i := range 5 {
		c.msgs[0] = system(fmt.Sprint("it is ", i))
		c.turn(does("call_0", "bash", fmt.Sprintf(`{"n": %d}`, i/2)), result("call_0", fmt.Sprint(i)))
	}
	c.call(done)
	out, _ := h.build(t, session.Config{})
	if got, want := summary(out), "1:main0 2:main0 3:main0 4:main0 5:main0 6:main0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRoles checks that messages with the same text, but another role, are different messages.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"user", "system", "developer", "tool", ""} {
		h := newHarness(task)
		c := h.mainConv()
		c.call(says("ok"), func(c *session.Call) { c.Delivered = false })
		c.add(msg{role: role, text: "ok"}, user("reminder: "+task)).call(done)
		out, _ := h.build(t, session.Config{})
		if got, want := summary(out), "1:main0!cut_answer 2:main0"; got != want {
			t.Errorf("role %q: got %s, want %s", role, got, want)
		}
	}
}

// TestUnknownTask checks which conversation is the main chain if the task's prompt is unknown.
func TestUnknownTask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(h *harness)
		want string
	}{
		{"the first with tools", func(h *harness) {
			h.conv("", user("title")).call(says("a title"))
			h.mainConv().turn(runs, files).call(done)
			h.subConv("look").call(says("ok"))
		}, "1:auxiliary1!auxiliary 2:main0 3:main0 4:subagent2"},
		{"the first, if none has tools", func(h *harness) {
			h.conv("", user("one")).call(says("1"))
			h.conv("", user("two")).call(says("2"))
		}, "1:main0 2:auxiliary1!auxiliary"},
		{"the longest of equal ones", func(h *harness) {
			c := h.mainConv()
			a, b := c.begin(), c.begin()
			a.end(says("no"))
			b.end(runs)
			c.add(runs, files).call(done)
		}, "1:subagent1 2:main0 3:main0"},
		{"the first, whose first answer was lost before the time changed", func(h *harness) {
			c := h.mainConv()
			c.call(runs)
			c.msgs[0] = system("it is 10:01")
			c.turn(runs, files).call(done)
		}, "1:main0!ambiguous_retry 2:main0 3:main0"},
	} {
		h := newHarness("")
		h.record.Head.Task = nil
		tt.do(h)
		out, _ := h.build(t, session.Config{})
		if got := summary(out); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestNotes checks that the note of a call that is left out names the request that shows it.
func TestNotes(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	c := h.mainConv().turn(runs, files)
	c.call(says("lost"))
	c.add(says("of another model"), user("go on"))
	c.call(says("I"), cut(1, says("")))
	c.call(says("I fi"), cut(2, says("")))
	out, _ := h.build(t, session.Config{})
	var notes []string
	for i := range out.Calls {
		if out.Calls[i].Reason != tokenize.ReasonNone {
			notes = append(notes, out.Calls[i].Note)
		}
	}
	want := `session: the answer to request 2 is not in request 3, which continues the conversation
session: the answer to request 3 was not read, and request 4 repeats it
session: the answer to request 4 is incomplete or was not delivered, and no later prompt contains it`
	if got := strings.Join(notes, "\n"); got != want {
		t.Errorf("notes\n%s\nwant\n%s", got, want)
	}
}
