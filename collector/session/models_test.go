package session_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// by makes another model answer, such as a LoRA adapter.
func by(model string) change { return func(c *session.Call) { c.Model = model } }

// step calls a model and adds the answer and more messages to the history.
func (c *conv) step(answer msg, f change, more ...msg) *conv {
	c.call(answer, f)
	return c.add(answer).add(more...)
}

// TestModels checks that a chain has one model, and that only the model of the main chain is trained.
func TestModels(t *testing.T) {
	t.Parallel()
	own, adapter := by(""), by("step-1")
	edits, edited := does("c2", "edit", "{}"), result("c2", "ok")
	for _, tt := range []struct {
		name  string
		do    func(h *harness)
		want  string
		rows  int
		model string
		text  string
	}{
		{"only an adapter", func(h *harness) {
			h.mainConv().step(runs, adapter, files).step(done, adapter)
		}, "1:main0 2:main0", 1, "step-1", "I fixed it"},
		{"the engine's own model with and without its name", func(h *harness) {
			h.mainConv().step(runs, own, files).step(done, by("qwen3"))
		}, "1:main0 2:main0", 1, "qwen3", "I fixed it"},
		{"a subagent of an adapter", func(h *harness) {
			m := h.mainConv().step(does("s", "agent", "{}"), own)
			h.subConv("look").step(runs, adapter, files).step(says("looked"), adapter)
			m.add(result("s", "looked")).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:auxiliary1!auxiliary 4:main0", 1, "qwen3", "I fixed it"},
		{"the adapter is the policy, and the engine's own model is a subagent", func(h *harness) {
			m := h.mainConv().step(does("s", "agent", "{}"), adapter)
			h.subConv("look").step(runs, own, files).step(says("looked"), own)
			m.add(result("s", "looked")).step(done, adapter)
		}, "1:main0 2:auxiliary1!auxiliary 3:auxiliary1!auxiliary 4:main0", 1, "step-1", "I fixed it"},
		{"one answer of an adapter in the main conversation", func(h *harness) {
			h.mainConv().step(runs, own, files).step(edits, adapter, edited).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:main0", 1, "qwen3", "I fixed it"},
		{"two models in turn", func(h *harness) {
			m := h.mainConv().step(runs, own, files).step(edits, adapter, edited)
			m.step(does("c3", "bash", "{}"), own, result("c3", "x")).step(does("c4", "bash", "{}"), adapter, result("c4", "x")).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:main0 4:auxiliary1!auxiliary 5:main0", 1, "qwen3", "I fixed it"},
		{"the adapter begins", func(h *harness) {
			h.mainConv().step(runs, adapter, files).step(edits, own, edited).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:auxiliary1!auxiliary", 1, "step-1", ""},
		{"the adapter ends", func(h *harness) {
			h.mainConv().step(runs, own, files).step(done, adapter)
		}, "1:main0 2:auxiliary1!auxiliary", 1, "qwen3", ""},
		{"a fork to an adapter, and the conversation continues", func(h *harness) {
			m := h.mainConv().step(runs, own, files)
			m.clone(user("or so?")).step(edits, adapter, edited).step(says("No, that is not it."), adapter)
			m.step(edits, own, edited).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:auxiliary1!auxiliary 4:main0 5:main0", 1, "qwen3", "I fixed it"},
		{"both models answer the same requests with the same answers", func(h *harness) {
			a, b := h.mainConv(), h.mainConv()
			p, q := a.begin(), b.begin()
			p.end(runs)
			q.end(runs, adapter)
			a.add(runs, files).step(edits, own, edited)
			b.add(runs, files).step(edits, adapter, edited)
			a.step(done, own)
			b.step(says("I broke it"), adapter)
		}, "1:auxiliary1!auxiliary 2:main0 3:auxiliary1!auxiliary 4:main0 5:auxiliary1!auxiliary 6:main0", 1, "step-1", "I broke it"},
		{"an adapter after a compaction", func(h *harness) {
			h.mainConv().step(runs, own, files).step(edits, own, edited).call(done, failed)
			h.conv("", system("context summarization assistant"), user("the history")).call(says("We listed the files and edited one."))
			h.conv("bash edit agent", system("you are an agent"), user("Summary: We listed the files and edited one.")).step(done, adapter)
		}, "1:main0 2:main0 4:auxiliary1!auxiliary 5:auxiliary2!auxiliary", 1, "qwen3", ""},
		{"the own model after a compaction by an adapter", func(h *harness) {
			h.mainConv().step(runs, own, files).step(edits, own, edited).call(done, failed)
			h.conv("", system("context summarization assistant"), user("the history")).step(says("We listed the files and edited one."), adapter)
			h.conv("bash edit agent", system("you are an agent"), user("Summary: We listed the files and edited one.")).step(done, own)
		}, "1:main0 2:main0 4:auxiliary1!auxiliary 5:main0", 2, "qwen3", "I fixed it"},
		{"an adapter ends a subagent, so it is not continued after a summary", func(h *harness) {
			m := h.mainConv().step(does("s", "agent", "{}"), own)
			h.subConv("look").step(runs, own, files).step(says("looked"), adapter)
			h.conv("", system("title generator"), user("a title")).step(says("Bug fix"), own)
			h.subConv("look again").step(says("looked"), own)
			m.add(result("s", "looked")).step(done, own)
		}, "1:main0 2:subagent1 3:auxiliary2!auxiliary 4:auxiliary3!auxiliary 5:subagent4 6:main0", 3, "qwen3", "I fixed it"},
		{"a compaction in the conversation itself by an adapter", func(h *harness) {
			m := h.mainConv().step(runs, own, files).step(says("I have read the files."), own, user("go on"))
			m.clone(user("summarize")).step(says("We listed the files and read all of them."), adapter)
			h.conv("bash edit agent", system("you are an agent"), user("We listed the files and read all of them.")).step(done, own)
		}, "1:main0 2:main0 3:auxiliary1!auxiliary 4:main0", 2, "qwen3", "I fixed it"},
		{"a cut answer of an adapter", func(h *harness) {
			m := h.mainConv().step(runs, own, files)
			m.call(edits, adapter, cut(2, says("")))
			m.step(edits, own, edited).step(done, own)
		}, "1:main0 2:auxiliary1!auxiliary 3:main0 4:main0", 1, "qwen3", "I fixed it"},
		{"an adapter replies to a rejected answer", func(h *harness) {
			m := h.mainConv().step(runs, own, files)
			m.call(says("I guess that it works."))
			m.add(user("call a tool")).step(edits, adapter, edited).step(done, own)
		}, "1:main0 2:main1 3:auxiliary2!auxiliary 4:main0", 2, "qwen3", "I fixed it"},
		{"an adapter repeats a cut call", func(h *harness) {
			m := h.mainConv().step(runs, own, files)
			m.call(edits, cut(2, says("")))
			m.step(edits, adapter, edited).step(done, own)
		}, "1:main0 2:main0!superseded 3:auxiliary1!auxiliary 4:main0", 1, "qwen3", "I fixed it"},
	} {
		h := newHarness(task)
		h.record.Head.Model = "qwen3"
		tt.do(h)
		for _, all := range []bool{false, true} {
			out, rows := h.build(t, session.Config{TrainAuxiliary: all})
			for i := range out.Calls {
				c, model := &out.Calls[i], cmp.Or(h.record.Calls[out.Number[i]-1].Model, "qwen3")
				if other := model != out.Main.Model; strings.Contains(c.Note, "another model") != other || other && c.Reason != tokenize.ReasonAuxiliary {
					t.Errorf("%s: call %d of the model %q: reason %v, note %q", tt.name, out.Number[i], model, c.Reason, c.Note)
				}
			}
			if all {
				continue // so are other calls of the policy, such as summaries
			}
			if got := summary(out); got != tt.want || len(rows) != tt.rows || out.Main.Text != tt.text || out.Main.Model != tt.model {
				t.Errorf("%s: %d rows, text %q, model %q\n got %s\nwant %s", tt.name, len(rows), out.Main.Text, out.Main.Model, got, tt.want)
			}
		}
	}
}
