package agent_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestToolsSeeNoPassword checks that a tool's environment, which a model can print, has no
// password.
func TestToolsSeeNoPassword(t *testing.T) { //nolint:paralleltest // it sets variables of the process
	const canary = "canary-7f3a-99"
	t.Setenv("ROLLOUT_TEST_PASSWORD", canary)
	t.Setenv("ROLLOUT_TEST_URL", "http://x:"+canary+"@y")
	t.Setenv("ROLLOUT_TEST_OTHER", "is kept")
	p, c := lettatest.NewReplay(t, "client-tool-return")
	c, err := letta.NewClient(letta.ClientConfig{BaseURL: c.BaseURL(), Password: canary})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	cfg, tool := model, bash(t)
	tool.Command = []string{"/bin/sh", "-c", "env"}
	cfg.ClientTools = []agent.ClientToolConfig{tool}
	play(t, p, c, cfg, attemptOf(messagesOf(t, p.Recording)), func(_ *collector.Reply, err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	if sent := string(p.Bodies[1]); strings.Contains(sent, canary) || !strings.Contains(sent, "is kept") {
		t.Errorf("the tool answered %s", sent)
	}
}
