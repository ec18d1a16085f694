package enginesim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// harnessScript is the name of the script for agent harnesses.
const harnessScript = "harness"

// A turn is the place of a request in a harness's conversation. It depends only on the request.
type turn struct {
	conversation
	marker    string // the marker without the parameter step
	tools     []tool
	auxiliary bool   // the request has no tools, or forbids tool calls: a title, a summary
	summary   bool   // an auxiliary request for a summary
	tagged    bool   // the last message asks for the summary in a tag
	text      string // all messages, as JSON
}

// harness returns the place of the request, or nil if its conversation does not have the script
// harness.
func (e *Engine) harness(body *chatRequest) *turn {
	var user, other []string
	var last string // the last message, if the user sent it
	var text strings.Builder
	for _, raw := range body.Messages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		text.Write(raw)
		text.WriteByte('\n')
		if json.Unmarshal(raw, &m) != nil {
			continue // render has refused the request
		}
		content := e.contentText(m.Content)
		last = ""
		if m.Role == "user" {
			user, last = append(user, content), content
		} else if m.Role != "tool" {
			other = append(other, content)
		}
	}
	// A summary can end up in a message of any role.
	found, ok := mark(strings.Join(user, "\n"))
	if !ok {
		found, ok = mark(strings.Join(other, "\n"))
	}
	if !ok || found.Script != harnessScript {
		return nil
	}
	t := &turn{conversation: found, tools: parseTools(body.Tools), text: text.String()}
	t.marker = t.mark(-1)
	t.auxiliary = len(t.tools) == 0 || forbidden.MatchString(last)
	t.summary = t.auxiliary && summaryWords.MatchString(t.text)
	t.tagged = strings.Contains(last, "<summary>")
	t.Step = max(t.int("step", 0), t.seenSteps())
	return t
}

var (
	summaryWords = regexp.MustCompile(`(?i)summar|compact|condense`)
	// Claude Code's request for a summary contains all of its tools.
	forbidden = regexp.MustCompile(`(?i)do not call any tools`)
)

// contentText returns the text of a message's content.
func (e *Engine) contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	parts, _ := textParts(content)
	return e.cfg.Dialect.joinParts(parts)
}

// mark returns the last marker in the text. It ignores the marker of a subagent if the marker of
// the agent that started the subagent is in the text too, because harnesses repeat a subagent's
// task in the messages of the agent that started it.
func mark(text string) (found conversation, ok bool) {
	seeds := map[string]bool{}
	var all []conversation
	for _, m := range marker.FindAllStringSubmatch(text, -1) {
		c := conversation{Script: m[1], Params: params(m[2])}
		seeds[c.seed()] = true
		all = append(all, c)
	}
	for _, c := range slices.Backward(all) {
		if of, sub := c.Params["of"]; !sub || !seeds[of] {
			return c, true
		}
	}
	return conversation{}, false
}

// seed returns the parameter seed, with the default "1".
func (c *conversation) seed() string { return cmp.Or(c.Params["seed"], "1") }

// has reports whether the marker has a parameter, with or without a value.
func (c *conversation) has(name string) bool { _, ok := c.Params[name]; return ok }

// mark returns the marker of the turn's conversation. If step is not negative, the marker also
// contains the step.
func (t *turn) mark(step int) string {
	words := []string{"[script:" + t.Script}
	for _, name := range slices.Sorted(maps.Keys(t.Params)) {
		switch value := t.Params[name]; {
		case name == "step":
		case value == "":
			words = append(words, name)
		default:
			words = append(words, name+"="+value)
		}
	}
	if step >= 0 {
		words = append(words, fmt.Sprintf("step=%d", step))
	}
	return strings.Join(words, " ") + "]"
}

// note returns the word that the k-th answer of the conversation contains, from 1. The words in a
// request show which answers its conversation already contains, whatever the harness did to them.
func (t *turn) note(k int) string { return fmt.Sprintf("note-%s-%d", t.seed(), k) }

// seenSteps returns the number of the last answer in the conversation.
func (t *turn) seenSteps() int {
	last := 0
	pattern := regexp.MustCompile(`note-` + regexp.QuoteMeta(t.seed()) + `-(\d+)`)
	for _, m := range pattern.FindAllStringSubmatch(t.text, -1) {
		if k, err := strconv.Atoi(m[1]); err == nil {
			last = max(last, k)
		}
	}
	return last
}

// reply returns the answer to the turn.
func (t *turn) reply() reply {
	switch {
	case t.summary:
		text := "Summary: notes are to be written and read back. " + t.mark(t.Step) + " %word%"
		if t.tagged {
			text = "<summary>\n" + text + "\n</summary>"
		}
		return reply{text: text}
	case t.auxiliary:
		return reply{text: "Notes about %word%"}
	}
	k := t.Step + 1 // the number of this answer
	steps := t.int("calls", 2)
	if t.has("parallel") {
		steps = 1
	}
	steps += t.delegating()
	var text string
	switch {
	case k <= steps:
		text = t.work(k)
	case k == steps+1:
		text = t.final(k)
	default:
		text = "Done."
	}
	if t.has("unicode") {
		text = strings.Replace(text, "%word%", "%word% – naïve 日本語 🎉🏽", 1)
	}
	if t.has("think") {
		text = think(fmt.Sprintf("Answer %d: I consider %%word%% and %%n%%.", k), text)
	}
	return reply{text: text}
}

// work returns the k-th answer, which calls tools. Odd answers also say something. If the request
// has no suitable tool, the answer calls none.
func (t *turn) work(k int) string {
	said := "Answer %n% about %word% (" + t.note(k) + ").\n"
	if t.has("long") {
		said = strings.Repeat("I consider %word% at length. ", 300) + "\n" + said
	}
	var calls []string
	first := 1 + t.delegating()
	waits := 1 < k && k < first
	switch {
	case waits:
		calls = append(calls, t.wait(k))
	case k < first:
		calls = append(calls, t.delegate(k))
	case t.has("parallel"):
		for i := range t.int("calls", 2) {
			calls = append(calls, t.shell(k, fmt.Sprintf("echo %s-%c > %[1]s-%[2]c.txt && cat %[1]s-%[2]c.txt", t.note(k), 'a'+i)))
		}
	case k == first && t.has("remember"):
		calls = append(calls, t.shell(k, fmt.Sprintf(remember, t.note(k), t.answer())))
	case k == first:
		calls = append(calls, t.shell(k, fmt.Sprintf("echo %s > %[1]s.txt", t.note(k))))
	default:
		calls = append(calls, t.shell(k, fmt.Sprintf("cat %s.txt && echo %s", t.note(first), t.note(k))))
	}
	if slices.Contains(calls, "") {
		return said + "There is no tool for it."
	}
	if k%2 == 0 && !t.has("long") && !waits { // a call that waits does not write a note
		said = ""
	}
	return said + strings.Join(calls, "\n")
}

// remember is a command that commits the answer to the memory of a Letta Code agent. The prompts of
// later conversations contain the file. The command also writes the note.
const remember = `echo %s > %[1]s.txt; cd "${MEMORY_DIR:?}" && ` +
	`printf '%%s\n' --- 'name: Notes' 'description: What I was told' --- 'The answer is %s.' > notes.md && ` +
	`git add notes.md && git commit -m 'Add a note'`

// answer returns the answer to the task. With the option recall, it is the number that the messages
// contain.
func (t *turn) answer() string {
	if !t.has("recall") {
		return cmp.Or(t.Params["answer"], "42")
	}
	if m := recalled.FindStringSubmatch(t.text); m != nil {
		return m[1]
	}
	return "unknown"
}

var recalled = regexp.MustCompile(`The answer is (\d+)`)

// shell returns a call of the request's tool for commands, or of its tool for files.
func (t *turn) shell(k int, command string) string {
	values := map[string]string{"command": command, "note": t.note(k)}
	if tool := choose(t.tools, shellTools, "command", "cmd"); tool != nil {
		return t.call(tool, values)
	}
	if tool := choose(t.tools, writeTools, "content", "file_text"); tool != nil {
		return t.call(tool, values)
	}
	return ""
}

// delegating returns the number of answers that start a subagent or wait for it.
func (t *turn) delegating() int {
	switch {
	case !t.has("subagent"):
		return 0
	case choose(t.tools, agentTools, "prompt") != nil && choose(t.tools, waitTools) != nil:
		return 2
	}
	return 1
}

var startedAgent = regexp.MustCompile(`agent_id[\\": ]+([0-9A-Za-z-]+)`)

// wait returns a call of the request's tool that waits for a subagent. The result of the call that
// started the subagent contains its id.
func (t *turn) wait(k int) string {
	values := map[string]string{"note": t.note(k)}
	if m := startedAgent.FindStringSubmatch(t.text); m != nil {
		values["targets"] = m[1]
	}
	return t.call(choose(t.tools, waitTools), values)
}

// delegate returns a call of the request's tool that starts a subagent, or, without such a tool,
// an ordinary call. The subagent's task has its own marker.
func (t *turn) delegate(k int) string {
	sub := conversation{Script: harnessScript, Params: map[string]string{"seed": t.seed() + "s", "of": t.seed(), "calls": "1"}}
	if t.has("think") {
		sub.Params["think"] = ""
	}
	task := fmt.Sprintf("Write a note and read it back. %s", (&turn{conversation: sub}).mark(-1))
	if tool := choose(t.tools, agentTools, "prompt"); tool != nil {
		return t.call(tool, map[string]string{"prompt": task, "note": t.note(k)})
	}
	return t.shell(k, fmt.Sprintf("echo %s > %[1]s.txt", t.note(k)))
}

// submitWord is what a command of mini-swe-agent prints to end the run.
const submitWord = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

// final returns the last answer: a text, or a call of the tool with which the harness ends a run.
func (t *turn) final(k int) string {
	said := fmt.Sprintf("The notes are written, %%word%% %%n%% (%s). The answer is %s.", t.note(k), t.answer())
	if strings.Contains(t.text, submitWord) {
		if call := t.shell(k, fmt.Sprintf("echo %s && echo %s", submitWord, t.note(k))); call != "" {
			return said + "\n" + call
		}
	}
	if tool := choose(t.tools, finishTools); tool != nil {
		return t.call(tool, map[string]string{"command": said, "prompt": said, "note": said})
	}
	return said
}

// call returns a tool call as the model samples it. With the parameter compact, the arguments
// contain no spaces, unlike those that a template prints.
func (t *turn) call(tool *tool, values map[string]string) string {
	if t.has("numbers") {
		values["timeout"] = "60000.0"
	}
	arguments := tool.arguments(values)
	if t.has("compact") {
		var compact strings.Builder
		if err := compactJSON(&compact, arguments); err == nil {
			arguments = compact.String()
		}
	}
	return toolCall(tool.Name, arguments)
}
