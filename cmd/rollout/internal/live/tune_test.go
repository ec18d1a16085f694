//go:build linux

package live_test

import (
	"regexp"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live"
)

// The findings of doctor --tune are right for two servers. One imports all of Letta for its tools,
// and its PostgreSQL has 20 connections. The other has a small environment for tools, a pool and
// 500 connections.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("two servers, one after the other")
	}
	program := live.Build(t)
	for _, tt := range []struct {
		name string
		cfg  live.Config
		want []string
	}{
		{"slow", live.Config{MaxConnections: 20, Env: []string{"TOOL_EXEC_VENV_NAME=", "LETTA_TRACK_PROVIDER_TRACE=false"}}, []string{
			`(?m)^hint sandbox    a tool that does nothing takes .* of it CPU .*\n +effect: every call of a tool starts a Python that imports all of Letta`,
			`(?m)^hint pool       the server connects to PostgreSQL anew`,
			`(?m)^hint database   [0-9]+ of (16|32|64|96) reads at once failed, (8|16|32|64) at once went well: .*An unknown error occurred`,
			`(?m)^hint traces     the server keeps none`,
		}},
		{"quick", live.Config{MaxConnections: 500, Pool: true}, []string{
			`(?m)^(ok  |hint) sandbox    a tool that does nothing takes .*, [0-9]+ ms of it CPU `,
			`(?m)^ok   pool       the server keeps its connections to PostgreSQL`,
			`(?m)^ok   database   96 reads at once go well`,
			`(?m)^ok   agents     0 on the server, 0 of them of rollouts`,
			`(?m)^ok   traces     `,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := live.Start(t, tt.cfg)
			engine := newStub(t, l.Model)
			handle := l.Provider(t, "sglang-stub", engine.URL)
			// Without traces a prompt can be unproven, so doctor can fail.
			r := l.Run(t, program, "doctor", "--server", l.URLs[0], "--model", handle, "--tokenizer", l.Model, "--prompt", "Hi.", "--tune")
			if r.Code != exit.OK && r.Code != exit.Unusable {
				t.Errorf("exit code %d", r.Code)
			}
			for _, want := range tt.want {
				if !regexp.MustCompile(want).MatchString(r.Stdout) {
					t.Errorf("want %s", want)
				}
			}
			if left := l.Agents(t); len(left) > 0 {
				t.Errorf("agents are left: %v", left)
			}
			t.Logf("doctor said\n%s%s", r.Stdout, r.Stderr)
		})
	}
}
