package enginesim_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// The tools of Codex, as the tap translates them. The message of spawn_agent is not required.
const codexTools = `[{"type":"function","function":{"name":"exec_command","parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"]}}},
{"type":"function","function":{"name":"multi_agent_v1__spawn_agent","parameters":{"type":"object","properties":{"message":{"type":"string"},"fork_context":{"type":"boolean"}}}}},
{"type":"function","function":{"name":"multi_agent_v1__wait_agent","parameters":{"type":"object","properties":{"targets":{"type":"array","items":{"type":"string"}}},"required":["targets"]}}}]`

// TestWaits checks that the script calls both tools if one tool starts a subagent and another waits for
// it. The result of the first tool contains the id for the second tool.
func TestWaits(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, codexTools, enginesim.Marker(7, "subagent"), true)
	h.run(t)
	var names []string
	for _, o := range h.answers {
		for _, call := range o.calls {
			names = append(names, strings.Fields(call)[1])
		}
	}
	const want = "multi_agent_v1__spawn_agent multi_agent_v1__wait_agent exec_command exec_command"
	if got := strings.Join(names, " "); got != want || len(h.subs) != 1 {
		t.Errorf("%d subagents, and the calls are %s, want %s", len(h.subs), got, want)
	}
	s.inOrder(t, "")
}

// TestSummaryWithTools checks that a request for a summary can have tools if it forbids tool calls. The
// summary is in a tag if the request mentions the tag.
func TestSummaryWithTools(t *testing.T) {
	t.Parallel()
	s := small(t, enginesim.Config{})
	h := newHarness(t, s, codexTools, enginesim.Marker(7), false)
	h.say(map[string]any{"role": "user", "content": "Do NOT call any tools. Write a summary in <summary>."})
	status, raw := s.ask(t, h.body(codexTools))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	var o outcome
	o.add(t, decode[completion](t, raw))
	if len(o.calls) > 0 || !strings.HasPrefix(o.content, "<summary>\nSummary: ") || !strings.HasSuffix(o.content, "\n</summary>") {
		t.Errorf("the answer is %q and calls %q", o.content, o.calls)
	}
}
