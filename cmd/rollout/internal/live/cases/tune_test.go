//go:build linux

package cases_test

import (
	"regexp"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// The findings of doctor --tune are right for two servers. One imports all of Letta for its tools,
// and its PostgreSQL has 20 connections. The other has a small environment for tools, a pool and
// 500 connections.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("two servers, one after the other")
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"slow", Config{MaxConnections: 20, Env: []string{"TOOL_EXEC_VENV_NAME=", "LETTA_TRACK_PROVIDER_TRACE=false"}}, []string{
			`(?m)^hint sandbox    an empty tool takes .*, including .* of CPU time .*\n +effect: every tool call starts a Python process that imports all of Letta`,
			`(?m)^hint pool       the server opens a new PostgreSQL connection every time it needs one`,
			`(?m)^hint database   [0-9]+ of (16|32|64|96) parallel reads failed \(.*An unknown error occurred\); with (8|16|32|64) at a time, none failed`,
			`(?m)^hint traces     the server does not store traces`,
		}},
		{"quick", Config{MaxConnections: 500, Pool: true}, []string{
			`(?m)^(ok  |hint) sandbox    an empty tool takes .*, including [0-9]+ ms of CPU time `,
			`(?m)^ok   pool       the server pools its PostgreSQL connections`,
			`(?m)^ok   database   96 parallel reads succeed`,
			`(?m)^ok   agents     0 on the server, 0 of them created by rollout`,
			`(?m)^ok   traces     `,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := Start(t, tt.cfg)
			handle := l.Provider(t, "sglang-sim", newEngine(t, l.Model).url)
			// Without traces a prompt can be unproven, so doctor can fail.
			r := l.Run(t, Build(t), "doctor", "--server", l.URLs[0], "--model", handle, "--tokenizer", l.Model, "--prompt", "Hi.", "--tune")
			if r.Code != exit.OK && r.Code != exit.Unusable {
				t.Errorf("exit code %d", r.Code)
			}
			for _, want := range tt.want {
				if !regexp.MustCompile(want).MatchString(r.Stdout) {
					t.Errorf("want %s", want)
				}
			}
			l.NoAgents(t)
			t.Logf("doctor printed\n%s%s", r.Stdout, r.Stderr)
		})
	}
}
