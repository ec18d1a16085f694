package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// Without tasks, doctor makes its agent call a tool. This finds a template that renders only tool
// results wrong.
func TestDoctorUsesATool(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{})
	var sent bytes.Buffer
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case r.Method != http.MethodPost:
		case r.URL.Path == "/v1/agents/": // replays a recorded agent that calls add
			body = bytes.ReplaceAll(body, []byte(`"task_id":"doctor"`), []byte(`"task_id":"tool"`))
		case strings.HasSuffix(r.URL.Path, "/messages"):
			sent.Write(body) // requests come one at a time
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		sim.ServeHTTP(w, r)
	}))

	args := []string{"doctor", "--server", url, "--model", simModel, "--tokenizer"}
	// The recorded agent had another message. Only its trace shows that.
	r := mustRun(t, exit.OK, append(args, qwen3Dir)...)
	contains(t, sent.String(), "Call the tool ")
	if strings.Contains(r.stdout, "no tool was called") || !strings.Contains(r.stdout, "2 calls with ") {
		t.Errorf("doctor printed\n%s", r.stdout)
	}

	other := qwen3Folder(t, func(b []byte) []byte {
		changed := bytes.ReplaceAll(b, []byte(`<tool_response>\\n`), []byte(`<tool_result>\\n`)) // only in the template
		if bytes.Equal(changed, b) {
			t.Fatal("the template does not mention results")
		}
		return changed
	})
	r = mustRun(t, exit.Unusable, append(args, other)...)
	if !strings.Contains(r.stdout, "bad  prompt 1 ") || strings.Contains(r.stdout, "bad  prompt 0 ") {
		t.Errorf("doctor printed\n%s", r.stdout)
	}
}

// An agent file without --model is enough, because it names the model.
func TestAgentFileAlone(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	file := writeFile(t, "agent.af", []byte(`{"agents":[{"name":"x","model":"`+simModel+`","system":"You are.","llm_config":{"handle":"`+simModel+`"},"tools":[],"messages":[]}]}`))
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"--server", url, "--agent-file", file, "--tasks", tasks, "--out", dir}
	mustRun(t, exit.OK, append([]string{"doctor"}, args...)...)
	mustRun(t, exit.OK, append([]string{"config", "check"}, args...)...)
	mustRun(t, exit.OK, append([]string{"collect", "--dry-run"}, args...)...)
	mustRun(t, exit.OK, append([]string{"collect"}, args...)...)
	if got := readDataset(t, dir); len(got.rows) != 1 {
		t.Errorf("%d samples have rows", len(got.rows))
	}
	mustRun(t, exit.OK, "collect", "--resume", "--out", dir)
	contains(t, mustRun(t, exit.Usage, "collect", "--server", url, "--tasks", tasks, "--out", dir+"2").stderr, "use --model or --agent-file, or set agent.model")
}

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
				`(?m)^hint sandbox    a no-op tool takes \S+( ms)?, including 3\.40s of CPU time \(median of 3 runs\)\n +effect: .*reference: release 0\.16\.7 on 2 cores\)\n +hint: set TOOL_EXEC_DIR=DIR TOOL_EXEC_VENV_NAME=NAME `,
				`(?m)^hint pool       the server opens a new PostgreSQL connection every time it needs one\n +effect: with a pool, .*\n +hint: set LETTA_DISABLE_SQLALCHEMY_POOLING=false `,
				`(?m)^hint database   [0-9]+ of (32|64|96) parallel reads failed \(.*An unknown error occurred\); with (16|32|64) at a time, none failed\n +effect: .*\n +hint: set PostgreSQL's max_connections above 4 × server\.max_in_flight \(24\) .*, or collect with --max-in-flight (4|8|16)\n`,
				`(?m)^hint reasoning  .*\n +effect: on this server, [0-9] of 1 prompts began with .*\n +hint: set agent\.keep_reasoning: true`,
				`(?m)^ok   agents     0 on the server, 0 of them created by rollout$`,
				`(?m)^hint sampling   .*top_p 0\.9 and max_new_tokens 4096.*\n +effect: .*\(reference: source of 0\.16\.7\)\n +hint: run rollout tap --set `,
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
				`(?m)^ok   sandbox    a no-op tool takes \S+( ms)?, including 60 ms of CPU time `,
				`(?m)^ok   pool       `,
				`(?m)^ok   database   96 parallel reads succeeded, [0-9]+ per second \(one read alone took \S+( ms)?; the median of 96 parallel reads is \S+( ms)?\)$`,
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
				`(?m)^hint database   [0-9] of 8 parallel reads failed \(.*\); with 1 at a time, none failed\n +effect: .*\n +hint: .*LETTA_PG_POOL_SIZE \+ LETTA_PG_MAX_OVERFLOW`,
				`(?m)^hint traces     the server does not store traces\n`,
				`(?m)^hint timeouts   server\.timeout limits a send to 50s\n`,
				`(?m)^hint agents     .*agent\.keep keeps all agents of a run\n`,
			},
			[]string{`(?m)^....  ?sampling`}, // other releases are unknown
		},
		{
			"a sandbox elsewhere",
			lettasim.Config{RunTool: probeOf(t, 0.06, false, false, nil)},
			"",
			[]string{`(?m)^ok   sandbox    `, `(?m)^hint pool       it is unknown whether .*\n +effect: .*reference`},
			nil,
		},
		{
			"a sandbox that runs nothing",
			lettasim.Config{},
			"",
			[]string{`(?m)^hint sandbox    cannot run a no-op tool: .*lettasim runs no code\n +effect: .*reference`},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, tt.cfg)
			url := serveSim(t, sim)
			file := writeFile(t, "run.yaml", []byte(tt.file+"\n"))
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id": "tool", "prompt": "Add 2 and 3. [case:tool]"}`+"\n"))
			args := []string{"doctor", "-c", file, "--server", url, "--model", simModel, "--tokenizer", qwen3Dir, "--tasks", tasks}
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
		noError(t, json.Unmarshal([]byte(line), &check))
		found[check.Check] = check.State
		if check.Check == "sandbox" && (!strings.HasPrefix(check.Hint, "set TOOL_EXEC_DIR=") || len(check.Detail) != 1) {
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
		{"as the server says", []string{"--set", "top_p=0.9", "--set", "max_new_tokens=4096"}, `(?m)^hint sampling   the engine received .*top_p 0\.9, max_new_tokens 4096 \(measured by the tap\)\n +effect: .*\n +hint: run rollout tap --set `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, engineURL := newEngine(t)
			p := startTap(t, append([]string{"--engine", engineURL + "/v1"}, tt.set...)...)
			url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, Engine: p.url}))
			r := mustRun(t, exit.OK, "doctor", "--server", url, "--model", simModel, "--tap", p.url, "--prompt", "Hi.", "--tune")
			if !regexp.MustCompile(tt.want).MatchString(r.stdout) {
				t.Errorf("want %s\n%s", tt.want, r.stdout)
			}
		})
	}
}

// printsRoles returns a folder with the Qwen3 tokenizer and a changed chat template that prints the
// role of a message directly, like the template of Kimi-K2. Releases before 5.22.2 render it as
// MessageRole.user, later ones as user.
func printsRoles(t *testing.T) string {
	t.Helper()
	return qwen3Folder(t, func(config []byte) []byte {
		return bytes.ReplaceAll(config, []byte("+ message.role +"), []byte("~ message.role ~"))
	})
}

// oldServer returns a simulated server that counts tokens by the rules before 5.22.2, which print
// the names of the roles.
func oldServer(t *testing.T, dir string) string {
	t.Helper()
	tok := must(model.LoadTokenizer("dir", dir, false, nil))(t)
	var mu sync.Mutex
	counts := map[string]int{} // recorded count → count by the old rules
	var was, is int            // sums of the current send; sends come one at a time
	role := regexp.MustCompile(`<\|im_start\|>(user|assistant)\n`)
	sim := newSim(t, lettasim.Config{Prompt: func(recorded []int32, _ lettasim.Face) []int32 {
		text, err := tok.AppendText(nil, recorded, bpe.DecodeOptions{})
		if err != nil {
			t.Error(err)
		}
		body, opened := strings.CutSuffix(string(text), "<|im_start|>assistant\n") // this text is from the template
		if !opened {
			t.Errorf("a recorded prompt ends with %q", text[len(text)-40:])
		}
		// Tool results are in the user's turn, with text from the template.
		body = role.ReplaceAllString(body, "<|im_start|>MessageRole.$1\n")
		body = strings.ReplaceAll(body, "<|im_start|>MessageRole.user\n<tool_response>", "<|im_start|>user\n<tool_response>")
		ids, err := tok.AppendTokens(nil, body+"<|im_start|>assistant\n")
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		was, is = was+len(recorded), is+len(ids)
		counts[strconv.Itoa(len(recorded))], counts[strconv.Itoa(was)] = len(ids), is
		return recorded
	}})
	counted := regexp.MustCompile(`"prompt_tokens": ?([0-9]+)`)
	return serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			mu.Lock()
			was, is = 0, 0
			mu.Unlock()
		}
		rec := httptest.NewRecorder()
		sim.ServeHTTP(rec, r)
		body := counted.ReplaceAllStringFunc(rec.Body.String(), func(s string) string {
			mu.Lock()
			defer mu.Unlock()
			if n, ok := counts[counted.FindStringSubmatch(s)[1]]; ok {
				return `"prompt_tokens":` + strconv.Itoa(n)
			}
			return s
		})
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.WriteHeader(rec.Code)
		_, _ = w.Write([]byte(body))
	}))
}

// If the server's release of transformers differs from tokens.transformers, no wrong row is
// written. The preflight and doctor name the right value, and with it there are rows.
func TestTransformersRelease(t *testing.T) {
	t.Parallel()
	dir := printsRoles(t)
	for _, tt := range []struct{ name, url, wrong, right, says string }{
		{"an old server", oldServer(t, dir), "5.23", "4.57", "the server renders prompts like transformers 4.57, 5.0, 5.21, "},
		{"a new server", serveSim(t, newSim(t, lettasim.Config{})), "4.57", "5.22.2", "the server renders prompts like transformers 5.22.2, 5.23, "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run")
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"tool","prompt":"What is 2 + 3? Use the tool."}`+"\n"))
			args := []string{"--server", tt.url, "--model", simModel, "--tokenizer", dir, "--tasks", tasks, "--out", out, "--transformers"}
			verb := func(name string, more ...string) []string { return append(append([]string{name}, args...), more...) }

			r := mustRun(t, exit.Unusable, verb("doctor", tt.wrong)...)
			contains(t, r.stdout, tt.says+"but tokens.transformers is "+tt.wrong, "hint: use --transformers "+tt.right+"\n")
			r = mustRun(t, exit.OK, verb("doctor", tt.right)...)
			contains(t, r.stdout, "ok   transformers "+tt.says+"not like ")

			r = mustRun(t, exit.Unusable, verb("collect", tt.wrong)...)
			contains(t, r.stderr, "the server renders prompts like transformers "+tt.right, "hint: use --transformers "+tt.right+"\n")
			mustRun(t, exit.Tolerance, verb("collect", tt.wrong, "--preflight", "connect")...)
			readDataset(t, out).has(t, 0, 1)
			// tokens.* can change while the run has no rows.
			mustRun(t, exit.OK, verb("collect", tt.right, "--resume", "--retry-failed")...)
			got := readDataset(t, out)
			for _, row := range got.allRows() {
				if row.Verification != tokenize.CountVerified.String() {
					t.Errorf("a row is %s", row.Verification)
				}
			}
			if len(got.rows) != 1 {
				t.Errorf("%d samples have rows, want 1", len(got.rows))
			}
			r = mustRun(t, exit.Folder, verb("collect", tt.wrong, "--resume")...)
			if want := "tokens.transformers: the run has " + tt.right + ", but you set " + tt.wrong + " (--transformers)"; !strings.Contains(r.stderr, want) {
				t.Errorf("collect --resume printed\n%s", r.stderr)
			}
		})
	}
}

// If the server sends ids, rows do not depend on tokens.transformers, so a wrong value is only a
// hint.
func TestTransformersReleaseWithIDs(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true}))
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"tool","prompt":"What is 2 + 3? Use the tool."}`+"\n"))
	r := mustRun(t, exit.OK, "doctor", "--server", url, "--model", simModel, "--tokenizer", printsRoles(t), "--tasks", tasks)
	contains(t, r.stdout,
		"the release of transformers differs\n", "this does not affect the rows, because their prompts come from the turns and are exact\n",
		"hint transformers the server renders prompts like transformers 5.22.2, 5.23, but tokens.transformers is 4.57\n", "hint: use --transformers 5.22.2\n",
	)
}

// A flag of an added token that only tokenizer_config.json has can change ids without changing the
// length. The row has the ids of the server. A resume with another tokenizer_config.json is
// refused.
func TestTokenizerConfigMerged(t *testing.T) {
	t.Parallel()
	const dir, name = "../../testdata/cases", "added-token-flag"
	raw := must(os.ReadFile(filepath.Join(dir, name+".json")))(t)
	var recorded struct {
		Exchanges []struct {
			ModelCalls []struct {
				InputIDs []int32 `json:"input_ids"`
			} `json:"model_calls"`
		}
	}
	noError(t, json.Unmarshal(raw, &recorded))
	cases := must(lettasim.LoadCases(os.DirFS(dir), "."))(t)
	sim := must(lettasim.New(lettasim.Config{Cases: slices.DeleteFunc(cases, func(c *lettasim.Case) bool { return c.Name != name })}))(t)
	// Only tokenizer_config.json says that <tool_call> strips the white space after it.
	tokenizer := qwen3Folder(t, func(b []byte) []byte {
		var config map[string]any
		noError(t, json.Unmarshal(b, &config))
		config["added_tokens_decoder"].(map[string]any)["151657"].(map[string]any)["rstrip"] = true
		return []byte(asText(t, config))
	})
	out := filepath.Join(t.TempDir(), "run")
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"`+name+`","prompt":"Print <tool_call> now please [case:single]"}`+"\n"))
	args := []string{"collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--out", out, "--tokenizer"}
	mustRun(t, exit.OK, append(args, tokenizer)...)
	rows := readDataset(t, out).rows[sampleID{name, 0}]
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1", len(rows))
	}
	row, want := rows[0], recorded.Exchanges[0].ModelCalls[0].InputIDs
	if row.Verification != tokenize.CountVerified.String() || !slices.Equal(row.InputIDs[:row.PromptLength], want) {
		t.Errorf("%s, prompt %v\nwant %v", row.Verification, row.InputIDs[:row.PromptLength], want)
	}
	r := mustRun(t, exit.Folder, append(args, qwen3Dir, "--resume")...)
	contains(t, r.stderr, "tokenizer")
}
