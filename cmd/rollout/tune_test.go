package main

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// probeOf answers the probe of doctor --tune like a sandbox with these settings.
func probeOf(t *testing.T, cpu float64, imports, local bool, settings map[string]string) func(name, source string, args []byte) (string, string) {
	t.Helper()
	return func(name, source string, args []byte) (string, string) {
		if !strings.Contains(source, "def "+name+"(x: int) -> str:") || string(args) != `{"x":1}` {
			t.Errorf("the server is to run %s with %s:\n%s", name, args, source)
		}
		for _, secret := range []string{"PASSWORD", "KEY", "TOKEN", "SECRET", "environ.items", "environ.copy"} {
			if strings.Contains(source, secret) {
				t.Errorf("the probe asks for %s", secret)
			}
		}
		b, err := json.Marshal(map[string]any{"cpu": cpu, "letta": imports, "local": local, "settings": settings})
		if err != nil {
			t.Error(err)
		}
		return string(b), "success"
	}
}

// Each finding of doctor --tune has a measurement or the source of its figure, and the setting that
// fixes it. None is a failure.
func TestDoctorTune(t *testing.T) {
	t.Parallel()
	qwen := filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")
	for _, tt := range []struct {
		name string
		cfg  lettasim.Config
		file string // settings
		want []string
		not  []string
	}{
		{
			"as it is out of the box",
			lettasim.Config{RunTool: probeOf(t, 3.4, true, true, nil), Database: lettasim.Database{Connections: 20, Takes: 300 * time.Millisecond}},
			"server: {max_in_flight: 24}",
			[]string{
				`(?m)^hint sandbox    an empty tool takes \S+( ms)?, of which 3\.40s CPU \(measured: median of 3\)\n +effect: .*reference: release 0\.16\.7 on 2 cores\)\n +hint: TOOL_EXEC_DIR=DIR TOOL_EXEC_VENV_NAME=NAME `,
				`(?m)^hint pool       the server opens a new PostgreSQL connection for each use\n +effect: with a pool .*\n +hint: LETTA_DISABLE_SQLALCHEMY_POOLING=false `,
				`(?m)^hint database   [0-9]+ of (32|64|96) parallel reads failed, (16|32|64) succeeded: .*An unknown error occurred\n +effect: .*\n +hint: set PostgreSQL's max_connections above 4 × server\.max_in_flight \(24\) .*, or --max-in-flight (4|8|16)\n`,
				`(?m)^hint reasoning  .*\n +effect: measured: [0-9] of 1 prompts extend .*\n +hint: set agent\.keep_reasoning: true`,
				`(?m)^ok   agents     0 on the server, 0 of them created by rollout$`,
				`(?m)^hint sampling   .*top_p 0\.9 and max_new_tokens 4096.*\n +effect: .*\(reference: source of 0\.16\.7\)\n +hint: rollout tap --set `,
				`(?m)^ok   traces     `,
				`(?m)^ok   timeouts   30m0s for a send, 1h0m0s for an attempt$`,
				`(?m)^hint processes  one server\n`,
			},
			[]string{`(?m)^bad`},
		},
		{
			"tuned",
			lettasim.Config{RunTool: probeOf(t, 0.06, false, true, map[string]string{"LETTA_DISABLE_SQLALCHEMY_POOLING": "False", "LETTA_TRACK_PROVIDER_TRACE": "true"})},
			"server: {max_in_flight: 24}\nagent: {keep_reasoning: true}",
			[]string{
				`(?m)^ok   sandbox    an empty tool takes \S+( ms)?, of which 60 ms CPU `,
				`(?m)^ok   pool       `,
				`(?m)^ok   database   96 parallel reads succeed, [0-9]+ per second \(measured: one read \S+( ms)?, median of 96 \S+( ms)?\)$`,
				`(?m)^ok   reasoning  `,
			},
			[]string{`(?m)^hint (sandbox|pool|database|reasoning|traces)`},
		},
		{
			"a pool that is too small, no traces, short limits",
			lettasim.Config{
				InputIDs: true, NoTraces: true, Version: "0.17.0", Database: lettasim.Database{Connections: 2, Takes: 300 * time.Millisecond},
				RunTool: probeOf(t, 0.06, false, true, map[string]string{"LETTA_DISABLE_SQLALCHEMY_POOLING": "0", "LETTA_TRACK_PROVIDER_TRACE": "false"}),
			},
			"server: {timeout: 50s}\nagent: {keep: true}",
			[]string{
				`(?m)^hint database   [0-9] of 8 parallel reads failed, 1 succeeded: .*\n +effect: .*\n +hint: .*LETTA_PG_POOL_SIZE \+ LETTA_PG_MAX_OVERFLOW`,
				`(?m)^hint traces     the server stores no traces\n`,
				`(?m)^hint timeouts   server\.timeout is 50s for a whole send\n`,
				`(?m)^hint agents     .*agent\.keep keeps all agents of a run\n`,
			},
			[]string{`(?m)^....  ?sampling`}, // other releases are unknown
		},
		{
			"a sandbox elsewhere",
			lettasim.Config{RunTool: probeOf(t, 0.06, false, false, nil)},
			"",
			[]string{`(?m)^ok   sandbox    `, `(?m)^hint pool       unknown whether .*\n +effect: .*reference`},
			nil,
		},
		{
			"a sandbox that runs nothing",
			lettasim.Config{},
			"",
			[]string{`(?m)^hint sandbox    cannot run an empty tool: .*lettasim runs no code\n +effect: .*reference`},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, tt.cfg)
			url := serveSim(t, sim)
			file := writeFile(t, "run.yaml", []byte(tt.file+"\n"))
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id": "tool", "prompt": "Add 2 and 3. [case:tool]"}`+"\n"))
			args := []string{"doctor", "-c", file, "--server", url, "--model", simModel, "--tokenizer", qwen, "--tasks", tasks}
			r := invoke(t.Context(), append(args, "--tune")...)
			if plain := invoke(t.Context(), args...); plain.code != r.code || strings.Contains(plain.stdout, "sandbox") {
				t.Errorf("exit code %d, and %d without --tune\n%s", r.code, plain.code, plain.stdout)
			}
			for _, want := range tt.want {
				if !regexp.MustCompile(want).MatchString(r.stdout) {
					t.Errorf("want %s", want)
				}
			}
			for _, not := range tt.not {
				if found := regexp.MustCompile(not).FindString(r.stdout); found != "" {
					t.Errorf("do not want %q", found)
				}
			}
			if t.Failed() {
				t.Logf("doctor printed\n%s%s", r.stdout, r.stderr)
			}
			if n := sim.Stats().AgentsAlive; n != 0 && !strings.Contains(tt.file, "keep: true") {
				t.Errorf("%d agents remain", n)
			}
		})
	}
}

// With --json, doctor --tune reports the same findings as on the terminal.
func TestDoctorTuneJSON(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, RunTool: probeOf(t, 3.4, true, true, nil)}))
	r := mustRun(t, exit.OK, "doctor", "--server", url, "--model", simModel, "--tune", "--json")
	found := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		var check struct {
			Check, State, Text, Hint string
			Detail                   []string
		}
		if err := json.Unmarshal([]byte(line), &check); err != nil {
			t.Fatal(err)
		}
		found[check.Check] = check.State
		if check.Check == "sandbox" && (!strings.HasPrefix(check.Hint, "TOOL_EXEC_DIR=") || len(check.Detail) != 1) {
			t.Errorf("%s", line)
		}
	}
	for _, name := range []string{"sandbox", "pool", "database", "reasoning", "agents", "sampling", "traces", "timeouts", "processes"} {
		if found[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
}

// With a tap between the server and its engine, doctor reports the sampling parameters that the
// engine received.
func TestDoctorTuneSampling(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  []string
		want string
	}{
		{"set", []string{"--set", "top_p=1.0", "--set", "max_new_tokens=64"}, `(?m)^ok   sampling   the engine received .*top_p 1, max_new_tokens 64 \(measured by the tap\)$`},
		{"as the server says", []string{"--set", "top_p=0.9", "--set", "max_new_tokens=4096"}, `(?m)^hint sampling   the engine received .*top_p 0\.9, max_new_tokens 4096 \(measured by the tap\)\n +effect: .*\n +hint: rollout tap --set `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			engine, err := enginesim.New(enginesim.Config{})
			if err != nil {
				t.Fatal(err)
			}
			e := httptest.NewServer(engine)
			defer e.Close()
			p := startTap(t, append([]string{"--engine", e.URL + "/v1"}, tt.set...)...)
			url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, Engine: p.url}))
			r := mustRun(t, exit.OK, "doctor", "--server", url, "--model", simModel, "--tap", p.url, "--prompt", "Hi.", "--tune")
			if !regexp.MustCompile(tt.want).MatchString(r.stdout) {
				t.Errorf("want %s\n%s", tt.want, r.stdout)
			}
		})
	}
}
