//go:build linux

package cases_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
)

// A curl drives agents like another program: with plain requests that do not ask for token data.
type curl struct {
	w *world
	t *testing.T
}

func (c curl) do(method, path string, body any) (int, []byte) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "curl", "--silent", "--show-error", "--no-buffer", "--request", method, "--write-out", "\n%{http_code}",
		"--header", "Content-Type: application/json", "--data-binary", "@-", c.w.l.URLs[0]+path)
	cmd.Stdin = bytes.NewReader(object(c.t, body))
	var said bytes.Buffer
	cmd.Stderr = &said
	answer, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("curl: %v: %s", err, said.Bytes())
	}
	at := bytes.LastIndexByte(answer, '\n')
	return must(strconv.Atoi(string(answer[at+1:])))(c.t), answer[:at]
}

// must makes a request that has to succeed, and decodes the answer.
func (c curl) must(method, path string, body, into any) {
	c.t.Helper()
	if status, answer := c.do(method, path, body); status != http.StatusOK || json.Unmarshal(answer, into) != nil {
		c.t.Fatalf("%s %s: %d %.300s", method, path, status, answer)
	}
}

func (c curl) agent(tag string, more map[string]any, tools ...string) string {
	c.t.Helper()
	body := map[string]any{
		"model": c.w.handle, "system": "You are a careful assistant.", "include_base_tools": false, "tags": []string{tag}, "tool_ids": c.w.toolIDs(tools...),
	}
	maps.Copy(body, more)
	var made struct{ ID string }
	c.must(http.MethodPost, "/v1/agents/", body, &made)
	c.t.Cleanup(func() {
		r, _ := http.NewRequest(http.MethodDelete, c.w.l.URLs[0]+"/v1/agents/"+made.ID, nil)
		if w, err := http.DefaultClient.Do(r); err == nil {
			_ = w.Body.Close()
		}
	})
	return made.ID
}

// say sends a message that the script answers. more has more fields of the request.
func (c curl) say(agent, script string, more map[string]any) (status int, answer []byte) {
	c.t.Helper()
	body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "Please go on. [script:" + script + "]"}}}
	maps.Copy(body, more)
	return c.do(http.MethodPost, "/v1/agents/"+agent+"/messages", body)
}

// approve approves or denies the pending call of the answer.
func (c curl) approve(agent string, answer []byte, yes bool) []byte {
	c.t.Helper()
	var a struct {
		Messages []struct {
			Type  string `json:"message_type"`
			Calls []struct {
				ID string `json:"tool_call_id"`
			} `json:"tool_calls"`
		}
	}
	noError(c.t, json.Unmarshal(answer, &a))
	var list []any
	for _, m := range a.Messages {
		for _, call := range m.Calls {
			if m.Type == "approval_request_message" {
				list = append(list, map[string]any{"type": "approval", "tool_call_id": call.ID, "approve": yes, "reason": "so"})
			}
		}
	}
	_, next := c.do(http.MethodPost, "/v1/agents/"+agent+"/messages", map[string]any{"messages": []any{map[string]any{"type": "approval", "approvals": list}}})
	return next
}

func (w *world) fromRuns(t *testing.T, full bool) {
	t.Helper()
	scripts, said, least := []string{"many", "think-tool", "nan"}, []string{"tool", "text-tool"}, 8
	if full {
		scripts, said, least = append(scripts, "unicode", "split", "sixteen", "length", "malformed", "fail"), []string{"tool", "think", "text-tool", "single"}, 25
	}
	c, from := curl{w, t}, len(w.engine.calls())
	const tag = "curled"
	all := []string{"add", "mul", "echo", "lookup", "fail"}
	good := func(agent, script string) {
		t.Helper()
		if status, answer := c.say(agent, script, nil); status != http.StatusOK {
			t.Errorf("%s: %d %.300s", script, status, answer)
		}
	}
	for _, script := range scripts {
		good(c.agent(tag, nil, all...), script)
	}
	good(c.agent(tag, parallelCalls, all...), "parallel")
	// A conversation of several server runs. The prompts of each contain the earlier ones.
	talk := c.agent(tag, nil, all...)
	for _, script := range said {
		good(talk, script)
	}
	// Approvals: waiting runs fail. Later runs know the results of the calls.
	guarded := c.agent(tag, nil, "guarded", "add")
	_, answer := c.say(guarded, "guarded", nil)
	c.approve(guarded, answer, true)
	_, answer = c.say(guarded, "guarded", nil)
	c.approve(guarded, answer, false)
	good(guarded, "tool")
	// A summary loses only the traces of the steps that made it.
	compacting := c.agent(tag, map[string]any{"context_window_limit": 3000}, "add")
	for _, script := range []string{"large", "tool"} {
		c.say(compacting, script, nil)
	}
	// Overrides in the request and later edits of the agent are not proven.
	overridden := c.agent(tag, nil, "add")
	c.say(overridden, "tool", map[string]any{"override_system": "You are a reckless assistant."})
	edited := c.agent(tag, nil, "add", "echo")
	good(edited, "tool")
	c.do(http.MethodPatch, "/v1/agents/"+edited+"/tools/detach/"+w.tools["echo"], map[string]any{})
	plain := c.agent(tag, nil, "add")
	c.say(plain, "tool", map[string]any{"return_logprobs": true}) // alone, it turns the native path off
	c.say(c.agent(tag, nil, "add"), "null-arguments", nil)
	gone := c.agent(tag, nil, "add")
	good(gone, "single")
	c.do(http.MethodDelete, "/v1/agents/"+gone, nil)

	run := w.readRuns(t, filepath.Join(t.TempDir(), "run"), exit.Failures, "--from-runs", "tag="+tag, "--fail-on-error", "100%")
	res := enginecheck.Compare(run, w.engine.calls()[from:])
	w.total.Add(res)
	t.Logf("server runs of others\n%s", res)
	if res.Wrongs > 0 {
		t.Errorf("%d things are wrong", res.Wrongs)
	}
	if res.Grades["count_verified"] != res.Rows || res.Rows < least {
		t.Errorf("%d rows, %v", res.Rows, res.Grades)
	}
	rows, fails := map[string]int{}, map[string][]string{}
	for _, r := range run.Rows {
		rows[r.AgentID]++
	}
	for _, f := range run.Failures {
		fails[f.AgentID] = append(fails[f.AgentID], strings.TrimSuffix(f.Class+" "+f.Reason, " "))
	}
	for agent := range fails {
		slices.Sort(fails[agent])
	}
	for _, x := range []struct {
		what, agent string
		rows        bool
		fails       string
	}{
		{"talk", talk, true, ""},
		{"guarded", guarded, true, "agent_error agent_error"},
		{"overridden", overridden, false, "no_prompt no_prompt"},
		{"edited", edited, false, "no_prompt no_prompt"},
		{"plain", plain, false, "no_turns not_native"},
		{"gone", gone, false, ""},
	} {
		if got := strings.Join(fails[x.agent], ", "); rows[x.agent] > 0 != x.rows || x.fails != strings.ReplaceAll(got, ", ", " ") {
			t.Errorf("%s: %d rows, failures %s; want %v and %q", x.what, rows[x.agent], got, x.rows, x.fails)
		}
	}
	if !slices.Contains(fails[compacting], "no_prompt compacted") {
		t.Errorf("compacting: %d rows, failures %v", rows[compacting], fails[compacting])
	}
}
