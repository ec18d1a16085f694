//go:build linux

package cases_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/sink"
)

// TestExisting puts a tap in front of a server with agents that ran without a tap. In the short
// form, TestLetta does this.
func TestExisting(t *testing.T) {
	if testing.Short() {
		t.Skip("a case of TestLetta in the short form")
	}
	newWorld(t, Config{}).existing(t)
}

// existing checks that the server keeps the provider's address from its first start, in its
// database and in each agent. doctor must report it, and the steps in collector/tap/README.md must
// change both.
func (w *world) existing(t *testing.T) {
	t.Helper()
	w.l.Traces(true) // server runs are read
	w.l.Env("SGLANG_API_BASE=" + w.engine.url)
	w.l.Restart(t, 0)
	v := *w
	v.handle = "sglang/" + w.l.Model
	c := curl{&v, t}
	at := func(what, agent, want string) {
		t.Helper()
		var state struct {
			Config struct {
				Endpoint string `json:"model_endpoint"`
			} `json:"llm_config"`
		}
		c.must(http.MethodGet, "/v1/agents/"+agent, nil, &state)
		if got := state.Config.Endpoint; got != want+"/v1" {
			t.Errorf("%s: its model is called at %s, want %s/v1", what, got, want)
		}
	}
	say := func(agent string) {
		t.Helper()
		if status, answer := c.say(agent, "think-tool", nil); status != http.StatusOK {
			t.Fatalf("%d %.300s", status, answer)
		}
	}
	var old [3]string
	for i := range old {
		old[i] = c.agent("existing", nil, "add", "mul")
	}
	say(old[0])
	at("an agent from before", old[0], w.engine.url)
	if _, answer := c.do(http.MethodGet, "/v1/providers/?name=sglang", nil); string(answer) != "[]" {
		t.Errorf("the provider of the settings is listed: %s", answer)
	}

	spool := filepath.Join(t.TempDir(), "spool")
	p := &tapped{w: &v, spool: spool, reads: spool, handle: v.handle} // it is not a provider of the server
	p.start(t)
	w.l.Env("SGLANG_API_BASE=" + p.url)
	w.l.Restart(t, 0)
	at("the setting moves no new agent", c.agent("existing", nil, "add", "mul"), w.engine.url)
	doctor := func(code int, says ...string) {
		t.Helper()
		r := w.l.Run(t, w.program, "doctor", "--server", w.l.URLs[0], "--model", v.handle, "--tokenizer", w.l.Model, "--tap", p.url, "--prompts", "tap", "--prompt", "Please go on. [script:single]")
		if r.Code != code {
			t.Errorf("doctor: exit code %d, want %d\n%s", r.Code, code, r.Stderr)
		}
		wantOutput(t, r.Stdout, says...)
	}
	doctor(exit.Unusable, "the tap saw no call; for a new agent, the server calls the model at "+w.engine.url+"/v1", "4 of 4 agents that return token data bypass the tap ("+old[0], "; their most common endpoint is "+w.engine.url+"/v1")

	// The API does not know the id of the provider from the settings.
	w.l.Postgres.Query(t, "UPDATE providers SET base_url = '"+p.url+"/v1' WHERE name = 'sglang' AND organization_id IS NULL")
	fresh := c.agent("existing", nil, "add", "mul")
	at("a new agent", fresh, p.url)
	at("an agent from before", old[0], w.engine.url)
	// An agent file has the address of its agent, unless it is imported with a model.
	server := newSide(t, w.l.URLs[0], v.handle)
	file := string(server.do(http.MethodGet, "/v1/agents/"+old[0]+"/export", "").body)
	for want, fields := range map[string]map[string]string{w.engine.url: nil, p.url: {"model": v.handle}} {
		imported := server.upload(file, fields).text("agent_ids.0")
		at(fmt.Sprint("an agent of a file, imported with ", fields), imported, want)
		c.do(http.MethodDelete, "/v1/agents/"+imported, nil)
	}
	doctor(exit.OK, "the tap saw every call", "4 of 5 agents that return token data bypass the tap")

	// One agent through the API, all others by an SQL statement.
	var state struct {
		Config map[string]any `json:"llm_config"`
	}
	c.must(http.MethodGet, "/v1/agents/"+old[0], nil, &state)
	state.Config["model_endpoint"] = p.url + "/v1"
	c.must(http.MethodPatch, "/v1/agents/"+old[0], map[string]any{"llm_config": state.Config}, &state)
	at("an agent that was patched", old[0], p.url)
	doctor(exit.OK, "3 of 5 agents that return token data bypass the tap")
	w.l.Postgres.Query(t, "UPDATE agents SET llm_config = jsonb_set(llm_config::jsonb, '{model_endpoint}', '\""+p.url+"/v1\"') WHERE llm_config->>'model_endpoint' = '"+w.engine.url+"/v1'")
	doctor(exit.OK, "all 5 agents that return token data call the tap")

	// A provider that was created through the API is changed through the API.
	var made []struct{ ID string }
	if c.must(http.MethodGet, "/v1/providers/?name=sglang-sim", nil, &made); len(made) != 1 {
		t.Fatalf("%d providers, want 1", len(made))
	}
	c.must(http.MethodPatch, "/v1/providers/"+made[0].ID, map[string]any{"base_url": p.url + "/v1", "api_key": ""}, &made[0])
	at("a new agent of a provider that was made by the API", curl{w, t}.agent("other", nil, "add"), p.url)

	// Old and new agents, in one collection of server runs, and agents of a collection.
	began, from := time.Now().Add(-time.Second), len(w.engine.calls())
	for _, agent := range append(old[:], fresh) {
		say(agent)
	}
	run := v.readRuns(t, filepath.Join(t.TempDir(), "run"), exit.OK, "--from-runs", "tag=existing", "--from-runs", "since="+began.Format(time.RFC3339Nano), "--tap", p.url)
	res := enginecheck.Compare(run, w.engine.calls()[from:])
	w.total.Add(res)
	t.Logf("agents from before, through the tap\n%s", res)
	if res.Wrongs > 0 || res.Failures > 0 || res.Samples != 4 {
		t.Error("want 4 samples, none failed, and nothing wrong")
	}
	for _, agent := range append(old[:], fresh) { // the tap lacks a call in which the model was too certain
		if !slices.ContainsFunc(run.Rows, func(r *sink.StoredRow) bool {
			return r.AgentID == agent && r.Verification == "exact" && r.PromptSource == "tap"
		}) {
			t.Errorf("%s: no row from the tap", agent)
		}
	}
	v.collect(t, p.through(collection{name: "the provider's new address", tasks: []task{play("tool", "tool").uses("add")}, samples: 2, args: []string{"--prompts", "tap"}, source: "tap"}))
}
