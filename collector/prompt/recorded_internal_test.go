package prompt

import (
	"testing"

	"github.com/rollout-rl/rollout/collector/record"
)

// TestCompiled: a traced system message counts only if the server compiled it or the agent has it.
func TestCompiled(t *testing.T) {
	t.Parallel()
	const block = "<memory_metadata>\n- AGENT_ID: agent-0d0e8f6e-3f0e-4c59-9f4b-3b8b2c7a1e55\n- CONVERSATION_ID: default\n" +
		"- System prompt last recompiled: 2026-01-05 09:59:58 AM UTC+0000\n" +
		"- 12 previous messages between you and the user are stored in recall memory\n"
	for _, test := range []struct {
		name, shown, today string
		want               bool
	}{
		{"as today", "Be brief.", "Be brief.", true},
		{"edited since", "Be brief.\n\n\n\n" + block + "</memory_metadata>", "Be long.", true},
		{"with an archive", "Be brief.\n\n" + block + "- 3 total memories you created are stored in archival memory (use tools to access them)\n</memory_metadata>\n", "", true},
		{"overridden", "Be terse.", "Be brief.", false},
		{"nothing is known of today", "", "", false},
		{"with skills", "Be brief.\n\n" + block + "</memory_metadata>\n\n<available_skills>\nbake\n</available_skills>", "Be brief.\n\n" + block + "</memory_metadata>", false},
		{"cut", "Be brief.\n\n" + block, "", false},
	} {
		b := &rebuild{rollout: record.New(nil), transcript: &transcript{system: test.today}}
		if got := b.compiled(&traced{messages: history{{role: roleSystem, content: test.shown}}}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	b := &rebuild{rollout: record.New(nil), transcript: &transcript{}}
	if b.compiled(&traced{}) || b.compiled(&traced{messages: history{{role: "user", content: block + "</memory_metadata>"}}}) {
		t.Error("a message that is not the system's counts")
	}
}
